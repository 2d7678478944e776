"""What comes before the fence of a change that moves virtual partitions of a topic with transactions.

    ANNOUNCING ──(durable)──> TELLING ──(all have acknowledged)──> OLDER ──(nobody older is open)──> the fence

The announcement makes workers add coming homes to transactions (DOUBLE-ADD). Transactions from before it are waited for
(OLDER-FIRST); writes are not held meanwhile. The log ends that tell the older ones are written down, so the next
controller continues with the same wait. A fence that moves nothing has nothing to announce.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kordon.proxy.ordering.changes import AskEnds, AskOpen, Change, Command, Commit, ConfirmMembers, OlderOpen, Stage
from kordon.proxy.ordering.known_topics import KnownTopics
from kordon.proxy.ordering.records import AnnouncementRecord, Value
from kordon.proxy.ordering.standing_announcements import StandingAnnouncements
from kordon.proxy.ordering.transactions.adds import Announcement
from kordon.proxy.ordering.transactions.older_transactions import OlderTransactions, OpenAt, is_older

LOOK_SECONDS: Final = 1.0
"""Between two looks for older transactions at most; a wait that is short is looked at more often."""
_LOOKS_OF_A_WAIT: Final = 10
"""One look comes when the wait is longer by a tenth than at the one before."""
_REST: Final = 5
"""Between two looks, times what the last one took: leaders may remember very many producers."""
DOUBT_SECONDS: Final = 1.0
"""For how long a coordinator may not know its transactions when it has just begun."""
TELL_SECONDS: Final = 5.0
"""After which an announcement is made again: an acknowledgement may not have been written."""
STALE_SECONDS: Final = 5.0
"""After which an announcement is withdrawn for which no change continues; that one may be about to begin again."""

OLDER_CURE: Final = (
    "Each ends with its transaction timeout at the latest. To end one now, call Admin.fenceProducers with its"
    " transactional id: docs/managing.md#changes-that-wait-for-transactions"
)
"""What operators are told of transactions that a change waits for."""

Records = list[tuple[str, Value | None]]


class Announcing:
    """The announcements of one controller.

    Args:
        known: The managed topics.
        changes: What is under way, by topic.

    Attributes:
        announced: What stands.
        standing: The last announcement of each topic, a withdrawal included.
    """

    def __init__(self, known: KnownTopics, changes: Mapping[str, Change]) -> None:
        self.announced = StandingAnnouncements(known)
        self.standing = self.announced.standing
        self._known = known
        self._changes = changes
        self._idle_since: dict[str, float] = {}

    def first(self, topic: str, new_id: str) -> AnnouncementRecord:
        """Returns what is announced before a topic has transactions: that nothing moves."""
        return self.announced.behind(topic, new_id, {})

    def begin(self, change: Change, new_id: str, now: float) -> list[Command]:
        """Begins what has to come before the fence of a change; returns nothing if the fence may be raised now."""
        layout, standing = self._known.layout(change.topic), self.standing.get(change.topic)
        coming = dict(layout.change_to(change.following(layout)).moves) if layout.has_transactions else {}
        if not coming:
            return []
        if standing is None or standing.coming != coming or standing.ends is None:
            return self._announce(change, coming, f"{new_id}-{change.topic}", now)
        if change.waited_out == standing.id:
            return []
        change.announced = standing
        return self._wait(change, now)

    def stands(self, topic: str) -> bool:
        """Whether something is announced."""
        return topic in self.standing and bool(self.standing[topic].coming)

    def on_committed(self, change: Change, now: float) -> list[Command]:
        """The announcement is durable, or the log ends are by which older transactions are told."""
        change.is_writing = False
        if is_interrupted(change):
            return change.enter(Stage.WAITING, now)
        if change.stage is Stage.ANNOUNCING:
            change.enter(Stage.TELLING, now)
            assert change.announced is not None, "it was written"
            return [ConfirmMembers(change.topic, change.announced.id)]
        return self._ask(change, now)

    def on_confirmed(self, change: Change, announcement: str) -> None:
        """The members that are known were all that had joined when an announcement was durable."""
        if change.announced is not None and change.announced.id == announcement:
            change.is_confirmed = True

    def look(self, change: Change, members: Collection[str], alone_from: float, now: float) -> list[Command]:
        """Continues if all know of the announcement who may serve."""
        if change.stage is not Stage.TELLING or now < alone_from or not is_told(change, members):
            return []
        return self._wait(change, now)

    def on_ends(self, topic: str, announcement: str, ends: Mapping[int, int] | None, now: float) -> list[Command]:
        """The log ends have been read of the partitions that something leaves, or (None) could not be."""
        change = self._asked(topic, announcement, now)
        if change is None or change.announced is None or ends is None:
            return []
        change.announced = self.announced.put(replace(change.announced, ends=ends))
        acks: Records = [(f"ack/{announcement}/{each}", None) for each in sorted(change.told_to)]
        change.older, change.is_writing = OlderTransactions(ends), True
        return [Commit(topic, ((f"announcement/{topic}", change.announced), *acks))]

    def on_open(
        self, topic: str, announcement: str, open_at: Iterable[OpenAt], known: Sequence[OlderOpen] | None, now: float
    ) -> list[Command]:
        """Leaders, and then coordinators, have said who is open, or (None) have not.

        Args:
            open_at: What leaders say.
            known: What coordinators say, of the producers that may be older.
        """
        change = self._asked(topic, announcement, now)
        if change is None or change.older is None or known is None:
            return []
        at_leaders = tuple(open_at)
        by_coordinators = {(q, each.producer_id) for each in known for q in each.partitions}
        doubted = self._doubted(change, at_leaders, by_coordinators, now)
        change.left = change.older.left(at_leaders, by_coordinators | doubted)
        change.waited = tuple(
            each for each in known if any((q, each.producer_id) in change.left for q in each.partitions)
        )
        if change.left:
            return []
        change.waited_out = announcement
        return change.enter(Stage.WAITING, now)

    def on_tick(self, change: Change, now: float) -> list[Command]:
        """Time has passed."""
        if change.stage is Stage.TELLING and now - change.since > TELL_SECONDS:
            return change.enter(Stage.WAITING, now)  # it is announced again
        is_idle = change.stage is Stage.OLDER and not change.is_asking and not change.is_writing
        pause = max(min((now - change.since) / _LOOKS_OF_A_WAIT, LOOK_SECONDS), _REST * change.took)
        return self._ask(change, now) if is_idle and now - change.asked > pause else []

    def interrupt(self, change: Change, now: float) -> list[Command]:
        """Has a change mend a log first that got shorter, which waits for nobody."""
        return [] if change.is_writing else change.enter(Stage.WAITING, now)

    def withdrawal(self, topic: str) -> Records:
        """Returns the record that ends what is announced; none where nothing is."""
        if not self.stands(topic):
            return []
        return [(f"announcement/{topic}", self.announced.behind(topic, f"{self.standing[topic].id}-over", {}))]

    def withdraw_stale(self, is_idle: Callable[[str], bool], now: float) -> list[Command]:
        """Withdraws what a former controller has announced and nobody wants any more.

        Args:
            is_idle: Whether nothing happens with a topic, and nobody wishes anything of it.
        """
        idle = [topic for topic in self.standing if self.stands(topic) and is_idle(topic)]
        self._idle_since = {topic: self._idle_since.get(topic, now) for topic in idle}
        stale = [topic for topic, since in self._idle_since.items() if now - since > STALE_SECONDS]
        return [Commit(topic, tuple(self.withdrawal(topic))) for topic in stale]

    def _announce(self, change: Change, coming: Mapping[int, int], new_id: str, now: float) -> list[Command]:
        topic = change.topic
        record = change.announced = self.announced.behind(topic, new_id, coming)
        change.told_to, change.is_confirmed, change.is_writing = set(), False, True
        change.older, change.left, change.waited = None, frozenset(), ()
        change.enter(Stage.ANNOUNCING, now)
        return [Commit(topic, ((f"announcement/{topic}", record),))]

    def _wait(self, change: Change, now: float) -> list[Command]:
        assert change.announced is not None, "it was announced"
        ends = change.announced.ends
        change.older = None if ends is None else OlderTransactions(ends)
        change.left, change.doubted = frozenset(), {}
        change.enter(Stage.OLDER, now)
        return self._ask(change, now)

    def _ask(self, change: Change, now: float) -> list[Command]:
        assert change.announced is not None, "it was announced"
        change.is_asking, change.asked = True, now
        topic, announced = change.topic, change.announced
        if announced.ends is not None:
            return [AskOpen(topic, announced.id, announced.ends, frozenset(each for _, each in change.left))]
        homes = {v: q for v, q in enumerate(self._known.layout(topic).homes) if q is not None}
        return [AskEnds(topic, announced.id, Announcement(announced.number, announced.coming).left(homes))]

    def _asked(self, topic: str, announcement: str, now: float) -> Change | None:
        """Returns the change for which somebody was asked; None: that is over."""
        change = self._changes.get(topic)
        if change is None or change.stage is not Stage.OLDER or change.announced is None:
            return None
        if change.announced.id != announcement:
            return None
        change.is_asking, change.asked, change.took = False, now, now - change.asked
        return change

    def _doubted(
        self, change: Change, at_leaders: Iterable[OpenAt], known: Collection[tuple[int, int]], now: float
    ) -> frozenset[tuple[int, int]]:
        """Returns what is open at a leader, and has not been unknown to all coordinators for long enough yet.

        A coordinator that has just begun may not know its transactions yet.
        """
        ends = change.announced.ends if change.announced is not None else None
        older = {(each.partition, each.producer_id) for each in at_leaders if is_older(each, ends or {})}
        change.doubted = {each: change.doubted.get(each, now) for each in older - set(known)}
        return frozenset(each for each, since in change.doubted.items() if now - since < DOUBT_SECONDS)


def is_told(change: Change, members: Collection[str]) -> bool:
    """Whether all members have acknowledged an announcement, and are all that had joined when it was durable."""
    return change.is_confirmed and change.told_to.issuperset(members)


def is_interrupted(change: Change) -> bool:
    """Whether a change has to mend a log first that got shorter."""
    return bool(change.shortened)
