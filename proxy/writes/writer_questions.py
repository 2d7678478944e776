"""What lanes ask of brokers: producer ids of their own (LENT-IDENTITY), which identities have begun (OPENER-ALONE)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import structlog

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.producers import ProducerRows
from kordon.proxy.core import verdicts
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import describe_producers
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.links import Links
from kordon.proxy.kafka.plain_writer import INIT_VERSIONS
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import CLIENT_BITS, LARGEST_CLIENT_ID, tag
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.writes.lane import Course

_PURPOSE: Final = "writers"
_AGAIN_SECONDS: Final = 0.5

log = structlog.get_logger(__name__)


class WriterQuestions:
    """Asks on behalf of lines.

    Args:
        links: Connections to brokers.
        leaders: Of physical partitions.
        tasks: Own the questions.
        go_on: Called with courses that have their answers.
        give_up: Called with those that get none.
    """

    def __init__(
        self,
        links: Links,
        leaders: Leaders,
        tasks: Tasks,
        go_on: Callable[[Iterable[Course]], None],
        give_up: Callable[[Course], None],
    ) -> None:
        self._links = links
        self._leaders = leaders
        self._tasks = tasks
        self._go_on = go_on
        self._give_up = give_up
        self._producer_id: int | None = None
        self._without_id: dict[Course, None] = {}
        self._curious: dict[tuple[str, int], dict[Course, None]] = {}
        """By topic and physical partition, who waits for the next question; empty while one is under way."""

    def renew_id(self) -> None:
        """Has lines from now on get another producer id."""
        self._producer_id = None

    def want_id(self, course: Course) -> None:
        """Gets a producer id for a line that needs one."""
        if self._producer_id is not None and self._producer_id != course.line.spent_id:
            course.line.identify(self._producer_id)
            self._go_on([course])
            return
        asking = bool(self._without_id)
        self._without_id[course] = None
        if not asking:
            self._tasks.keep(self._get_id, name="get a producer id")

    def want_writers(self, course: Course) -> None:
        """Asks which identities have begun in a line's home."""
        home = course.topic.layout.chain(course.stream).home
        if home is None:
            return
        place = course.topic.name, home.partition
        if place in self._curious:
            self._curious[place][course] = None
        else:
            self._curious[place] = {course: None}
            self._tasks.keep(
                partial(self._get_writers, *place), name="ask who has written", of=f"{place[0]}-{place[1]}"
            )

    async def _get_id(self) -> None:
        fields = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        while any(course.line.needs_id for course in self._without_id):
            try:
                answer = await self._links.ask_any(_PURPOSE, apis.INIT_PRODUCER_ID, INIT_VERSIONS, fields)
                if answer.error_code == Code.NONE:
                    self._producer_id = answer.producer_id
                    break
                log.warning("producer_id_refused", error=name_of(answer.error_code))
            except UpstreamUnavailable as error:
                log.warning("producer_id_unavailable", error=str(error))
            await asyncio.sleep(_AGAIN_SECONDS)
        waiting, self._without_id = self._without_id, {}
        for course in waiting:
            if course.line.needs_id and self._producer_id is not None:
                course.line.identify(self._producer_id)
        self._go_on(waiting)

    async def _get_writers(self, topic: str, partition: int) -> None:
        """Asks, and asks again while others have come that need a newer answer."""
        place = topic, partition
        while courses := self._curious[place]:
            self._curious[place] = {}
            homes = [(course, course.topic.layout.chain(course.stream).home) for course in courses]
            here = [(course, home) for course, home in homes if home is not None and home.partition == partition]
            for course, _ in here:
                course.line.begin_question()
            try:
                producers = await self._ask(topic, partition)
            except UpstreamUnavailable:
                self._leaders.forget(topic)
                for course, _ in here:
                    self._give_up(course)
            except Exception:
                self._curious[place] |= courses  # they wait for an answer still
                raise
            else:
                await self._tell(here, producers)
            self._go_on(courses)
        del self._curious[place]

    async def _tell(self, here: list[tuple[Course, Stay]], producers: ProducerRows) -> None:
        """Says who has begun, with turns for all else where they are many."""
        begun: dict[int, set[int]] = {_owner_bits(course, home): set() for course, home in here}
        for run in producers.runs():
            for producer_id in run.ids():
                if (found := begun.get(producer_id >> CLIENT_BITS)) is not None:
                    found.add(producer_id & LARGEST_CLIENT_ID)
            await asyncio.sleep(0)
        for course, home in here:
            course.line.learn(home.partition, home.move, begun[_owner_bits(course, home)])

    async def _ask(self, topic: str, partition: int) -> ProducerRows:
        """Returns what the leader of a physical partition knows of producers.

        Raises:
            UpstreamUnavailable: It does not answer, or is not the leader.
        """
        leader = (await self._leaders.of(topic)).get(partition)
        if leader is None:
            raise UpstreamUnavailable(f"nobody leads {topic}-{partition}")
        client = await self._links.to(leader.node_id, _PURPOSE)
        found = (await describe_producers(client, topic, [partition])).get(partition)
        if found is None or found.error_code != Code.NONE:
            what = "is not in its answer" if found is None else name_of(found.error_code)
            raise UpstreamUnavailable(f"{verdicts.api_name(apis.DESCRIBE_PRODUCERS)} of {topic}-{partition}: {what}")
        return found.producers


def _owner_bits(course: Course, home: Stay) -> int:
    return tag(course.stream, home.move, 0) >> CLIENT_BITS
