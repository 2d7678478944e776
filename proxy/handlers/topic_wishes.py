"""Admin requests about managed topics: each becomes a wish for the controller, and the broker does the rest.

Whoever asks is answered when the wish has come true, or with the reason why it cannot.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import ClassVar, Final, Generic, NamedTuple, TypeAlias
from uuid import UUID

from kordon.codecs.error_codes import Code
from kordon.codecs.messages import response
from kordon.codecs.row import Row
from kordon.proxy.core.errors import NoCommonVersion, UpstreamUnavailable
from kordon.proxy.core.waiting import Answer
from kordon.proxy.handlers.api_handler import ApiHandler, AskedT, Handled, HeldRequest, ServedRequest, ToldT
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.findings import why_too_old
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.source_records import SourceWish
from kordon.proxy.ordering.wishes import Manage, Wish
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import NO_ID

_AT_ONCE: Final = 32
"""Wishes of one request that come true side by side; each of them waits for all proxies to know of it."""
AnyWish: TypeAlias = Wish | SourceWish
Fulfil: TypeAlias = Callable[[AnyWish], Awaitable[OutcomeRecord]]
Check: TypeAlias = Callable[[AnyWish], Awaitable[OutcomeRecord]]
"""Tells what would come of a wish now, and changes nothing."""


async def check_nothing(_: AnyWish) -> OutcomeRecord:
    """Takes every wish for one that can come true."""
    return OutcomeRecord(Code.NONE, "")


class TakenOut(NamedTuple):
    """What is taken out of a request for Kordon."""

    wishes: Mapping[str, AnyWish | OutcomeRecord]
    """By topic; a refusal where it cannot be."""
    has_rest: bool
    """Whether anything is left for the broker."""
    ids: Mapping[UUID, tuple[str, UUID]] = MappingProxyType({})
    """The name and the id that was said of topics that are named by an id, by the id that the broker knows."""


class WishedApi(ApiHandler, Generic[AskedT, ToldT]):
    """A handler of an api by which topics are managed. Its requests are looked at even while no topic is."""

    is_always_wanted = True
    right: ClassVar[Operation | None]
    """What a client must be allowed to do with a topic; None: the broker judges that, as it gets a part of the request.
    """
    answered: ClassVar[str]
    """The field of the response with a row per topic."""

    def __init__(self, fulfil: Fulfil, check: Check = check_nothing) -> None:
        self._fulfil = fulfil
        self._check = check

    @abstractmethod
    def take(self, value: AskedT, topics: ManagedTopics) -> TakenOut | None:
        """Takes out of a request, in place, what is Kordon's; None: nothing is."""
        ...

    def row(self, name: str) -> Row:
        """Returns the row of the response for a topic that the broker was not asked about."""
        return Row(name=name, error_code=Code.NONE, error_message=None)

    def decide(self, held: HeldRequest) -> Handled:
        """Serves the wishes of a request."""
        value: AskedT = held.read()
        taken = self.take(value, held.topics)
        if taken is None:
            return None
        rest = held.build(value) if taken.has_rest else None
        return TopicWishes(self, held, taken, rest, only_checked=value.get("validate_only", False))

    async def fulfil(self, asked: TopicWishes[AskedT, ToldT], part: ToldT | None) -> Row:
        """Has the wishes come true, after the broker has done its part; returns the response."""
        answer = Row() if part is None else part
        rows = dict(_by_name(row, asked.taken.ids) for row in answer.get(self.answered, list[Row]()))
        room = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for name, wish in asked.taken.wishes.items():
                row = rows.setdefault(name, self.row(name))
                if not row["error_code"]:
                    group.create_task(self._answer_one(row, wish, room, only_checked=asked.only_checked))
        answer[self.answered] = list(rows.values())
        return answer

    async def _answer_one(
        self, row: Row, wish: AnyWish | OutcomeRecord, room: asyncio.Semaphore, *, only_checked: bool
    ) -> None:
        async with room:
            outcome = await self._outcome(wish, only_checked=only_checked)
        row.update(error_code=outcome.error_code, error_message=outcome.message or None)
        if "num_partitions" in row and isinstance(wish, Manage) and not outcome.error_code:
            row["num_partitions"] = wish.virtual_partitions  # what its clients see from now on

    async def _outcome(self, wish: AnyWish | OutcomeRecord, *, only_checked: bool) -> OutcomeRecord:
        if isinstance(wish, OutcomeRecord):
            return wish
        try:
            return await (self._check if only_checked else self._fulfil)(wish)
        except TopicsRefused as error:
            return OutcomeRecord(error.code, str(error))
        except NoCommonVersion as error:
            return OutcomeRecord(Code.UNSUPPORTED_VERSION, why_too_old(error))
        except UpstreamUnavailable as error:
            return OutcomeRecord(Code.REQUEST_TIMED_OUT, str(error))


class TopicWishes(ServedRequest, Generic[AskedT, ToldT]):
    """The wishes of a request.

    Args:
        rest: The body of what the broker is asked; None: nothing.
        only_checked: Nothing is to be changed (validate_only).
    """

    needs_layouts = False

    def __init__(
        self,
        handler: WishedApi[AskedT, ToldT],
        held: HeldRequest,
        taken: TakenOut,
        rest: bytes | None,
        *,
        only_checked: bool,
    ) -> None:
        self.taken = taken
        self.rest = rest
        self.only_checked = only_checked
        self.right = handler.right
        self._handler = handler
        self._held = held

    def names(self) -> Collection[str]:
        """Returns the names of the topics."""
        return self.taken.wishes.keys()

    def refuse(self, codes: Mapping[str, int]) -> TopicWishes[AskedT, ToldT]:
        """Puts refusals in the place of wishes."""
        refusals = {name: OutcomeRecord(code, "") for name, code in codes.items()}
        taken = self.taken._replace(wishes={**self.taken.wishes, **refusals})
        return TopicWishes(self._handler, self._held, taken, self.rest, only_checked=self.only_checked)

    async def answer(self, part: Awaitable[ToldT] | None) -> Answer:
        """Answers once the broker has done its part, and the wishes have come true."""
        route = self._held.route
        answer = await self._handler.fulfil(self, None if part is None else await part)
        self._held.shared.refusals.parts(self._held.client, route.api.key, answer, self.names())
        return partial(response(route.api.key).build, route.version, answer)


def _by_name(row: Row, ids: Mapping[UUID, tuple[str, UUID]]) -> tuple[str | UUID, Row]:
    """Returns a row of the broker's answer as the client sees it, and what it is about: a name, or an unknown id."""
    name: str | None = row.get("name", row.get("resource_name", None))
    topic_id = row.get("topic_id", NO_ID)
    if topic_id not in ids:
        return (topic_id if name is None else name), row
    name, row["topic_id"] = ids[topic_id]
    return name, row
