"""The wishes that have not come to an end, and which of them something is done for."""

from __future__ import annotations

from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.wishes import Wish
from kordon.proxy.own_topics.layouts_writer import Records
from kordon.proxy.runtime.clock import clock


class OpenWishes:
    """Keeps the wishes of one controller.

    Args:
        ledger: The ledger, which knows with which topics something is under way, and writes outcomes.

    Attributes:
        by_topic: The wishes by topic and id, in the order in which they came.
        under_way: The id of the wish that is being fulfilled, by topic.
        since: The time when the oldest open wish came, or since which no earlier wish is open, by topic.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.by_topic: dict[str, dict[str, Wish]] = {}
        self.under_way: dict[str, str] = {}
        self.since: dict[str, float] = {}

    @property
    def all(self) -> tuple[Wish, ...]:
        """All open wishes."""
        return tuple(wish for of_topic in self.by_topic.values() for wish in of_topic.values())

    def add(self, wish_id: str, wish: Wish) -> None:
        """Takes in a wish."""
        self.by_topic.setdefault(wish.topic, {})[wish_id] = wish
        self.since.setdefault(wish.topic, clock())

    def remove(self, topic: str, wish_id: str) -> None:
        """Forgets a wish that has come to an end."""
        of_topic = self.by_topic[topic]
        del of_topic[wish_id]
        self.since[topic] = clock()
        if not of_topic:
            del self.by_topic[topic], self.since[topic]

    def begin(self, topic: str) -> tuple[str, Wish]:
        """Begins with the oldest wish for a topic, which is busy from now on; returns its id, and the wish."""
        wish_id, wish = next(iter(self.by_topic[topic].items()))
        self.under_way[topic] = wish_id
        self._ledger.busy.add(topic)
        return wish_id, wish

    def postpone(self, topic: str) -> None:
        """Has what is under way with a topic begin again, behind the wishes for other topics."""
        self._end(topic)
        self.by_topic[topic] = self.by_topic.pop(topic)

    async def conclude(self, topic: str, outcome: OutcomeRecord, more: Records = ()) -> None:
        """Tells whoever wished what is under way with a topic, in one transaction with `more`; nothing if nobody did.

        Raises:
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        wish_id = self.under_way.get(topic)
        if wish_id is None:
            return
        await self._ledger.write((*more, (f"wish/{wish_id}", None), (f"outcome/{wish_id}", outcome)))
        self.remove(topic, wish_id)
        self._end(topic)

    def _end(self, topic: str) -> None:
        del self.under_way[topic]
        self._ledger.busy.discard(topic)
