"""What writing asks brokers: for producer ids (LENT-IDENTITY), and which identities have begun (OPENER-ALONE)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import structlog

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.producers import ProducerRows
from kordon.proxy.core import verdicts
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.ends import describe_producers
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.producer import new_identity
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import WRITER_BITS, tag, writer_of
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.writes.stream_queue import StreamQueue
from kordon.proxy.writes.unsent_writes import UnsentWrites

_PURPOSE: Final = "writers"
_AGAIN_SECONDS: Final = 0.5

log = structlog.get_logger(__name__)


class WriterQuestions:
    """Asks questions for queues, and then lets them continue.

    Args:
        leaders: Leaders of physical partitions.
        unsent: Refuses what waits for an answer that does not come.
    """

    def __init__(self, links: BrokerConnections, leaders: Leaders, unsent: UnsentWrites, tasks: Tasks) -> None:
        self._links = links
        self._leaders = leaders
        self._unsent = unsent
        self._tasks = tasks
        self._producer_id: int | None = None
        self._without_id: dict[StreamQueue, None] = {}
        self._curious: dict[tuple[str, int], dict[StreamQueue, None]] = {}
        """By topic and physical partition, who waits for the next question; empty while one is under way."""

    def renew_id(self) -> None:
        """Gives another producer id to the queues that ask from now on."""
        self._producer_id = None

    def ask(self, queue: StreamQueue) -> None:
        """Asks what a queue needs before it can continue, if anything."""
        sequencer = queue.sequencer
        if sequencer.needs_id:
            self._want_id(queue)
        if sequencer.has_question:
            self._want_writers(queue)

    def _want_id(self, queue: StreamQueue) -> None:
        """Gets a producer id for a queue that needs one."""
        if self._producer_id is not None and self._producer_id != queue.sequencer.spent_id:
            queue.sequencer.identify(self._producer_id)
            queue.go_on()
            return
        asking = bool(self._without_id)
        self._without_id[queue] = None
        if not asking:
            self._tasks.keep(self._get_id, name="get a producer id")

    def _want_writers(self, queue: StreamQueue) -> None:
        """Asks which identities have begun in a queue's home."""
        home = queue.topic.layout.chain(queue.stream).home
        if home is None:
            return
        place = queue.topic.name, home.partition
        if place in self._curious:
            self._curious[place][queue] = None
        else:
            self._curious[place] = {queue: None}
            self._tasks.keep(
                partial(self._get_writers, *place), name="ask who has written", of=f"{place[0]}-{place[1]}"
            )

    async def _get_id(self) -> None:
        while any(queue.sequencer.needs_id for queue in self._without_id):
            try:
                self._producer_id = (await new_identity(partial(self._links.ask_any, _PURPOSE))).producer_id
                break
            except UpstreamUnavailable as error:
                log.warning("producer_id_unavailable", error=str(error))
            await asyncio.sleep(_AGAIN_SECONDS)
        waiting, self._without_id = self._without_id, {}
        for queue in waiting:
            if queue.sequencer.needs_id and self._producer_id is not None:
                queue.sequencer.identify(self._producer_id)
        for queue in waiting:
            queue.go_on()

    async def _get_writers(self, topic: str, partition: int) -> None:
        """Asks, and asks again while others have come that need a newer answer."""
        place = topic, partition
        while queues := self._curious[place]:
            self._curious[place] = {}
            homes = [(queue, queue.topic.layout.chain(queue.stream).home) for queue in queues]
            here = [(queue, home) for queue, home in homes if home is not None and home.partition == partition]
            for queue, _ in here:
                queue.sequencer.begin_question()
            try:
                producers = await self._ask(topic, partition)
            except UpstreamUnavailable:
                self._leaders.forget(topic)
                for queue, _ in here:
                    self._unsent.give_up_question(queue)
            except Exception:
                self._curious[place] |= queues  # they wait for an answer still
                raise
            else:
                await self._tell(here, producers)
            for queue in queues:
                queue.go_on()
        del self._curious[place]

    async def _tell(self, here: list[tuple[StreamQueue, Stay]], producers: ProducerRows) -> None:
        """Says who has begun, with turns for all else where they are many."""
        begun: dict[int, set[int]] = {_owner_bits(queue, home): set() for queue, home in here}
        for run in producers.runs():
            for producer_id in run.ids():
                if (found := begun.get(producer_id >> WRITER_BITS)) is not None:
                    found.add(writer_of(producer_id))
            await asyncio.sleep(0)
        for queue, home in here:
            queue.sequencer.learn(home.partition, home.move, begun[_owner_bits(queue, home)])

    async def _ask(self, topic: str, partition: int) -> ProducerRows:
        """Returns what the leader of a physical partition knows of producers.

        Raises:
            UpstreamUnavailable: The broker does not answer, or is not the leader.
        """
        client = await self._leaders.connection(topic, partition, _PURPOSE)
        found = (await describe_producers(client, topic, [partition])).get(partition)
        if found is None or found.error_code != Code.NONE:
            what = "is not in its answer" if found is None else name_of(found.error_code)
            raise UpstreamUnavailable(f"{verdicts.api_name(apis.DESCRIBE_PRODUCERS)} of {topic}-{partition}: {what}")
        return found.producers


def _owner_bits(queue: StreamQueue, home: Stay) -> int:
    return tag(queue.stream, home.move, 0) >> WRITER_BITS
