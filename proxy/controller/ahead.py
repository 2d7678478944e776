"""Reads who has written to partitions: all of it before a fence where that is much, under it what is new (STILL-CUT).

A log is read up to a known end, then its producers are asked for, then the headers of all batches from that end on: so
much is known while writes continue. Under the fence only what has been written since is read. That holds as long as the
same leader leads: another one may not have what the former one told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import structlog

from kordon.codecs.errors import WireError
from kordon.codecs.records import batches
from kordon.proxy.controller.adoption import Adoption
from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import PartitionEnds, Snapshot
from kordon.proxy.ordering.changes import Producers, WriteAhead
from kordon.proxy.ordering.known_topics import KnownTopics
from kordon.proxy.ordering.next_images import Ahead, NextImages
from kordon.proxy.ordering.records import image_key
from kordon.proxy.ordering.tail import Tail
from kordon.proxy.runtime.clock import now_ms

log = structlog.get_logger(__name__)

FEW_PRODUCERS: Final = 3_000
"""Of a topic, up to which a fence asks for all of them: to write images ahead would cost more than it saves."""
MOST_SINCE: Final = 20_000
"""Producers that may have written since their images were written ahead; beyond it these are made again."""
NEAR_BYTES: Final = 1024 * 1024
"""Of a log that has been read up to its end but for so much, a fence reads the rest at once."""
CATCH_UP_SECONDS: Final = 20.0
_PARTITIONS_AT_ONCE: Final = 4
_BATCHES_OF_A_TURN: Final = 2_000
_RECORDS_OF_A_COMMIT: Final = 2
MOVES_ON: Final = (
    "a writer that goes around Kordon wrote to it while its writes were held; have it write through Kordon"
)
TOO_FAST: Final = (
    "its producers write faster, or appear in greater numbers, than Kordon can keep up with; "
    "try again when there are fewer, or keep producers alive for longer (docs/limits.md#many-producers)"
)


class _Stale(UpstreamUnavailable):
    """Raised when what was read before may no longer hold."""


class _TooFast(Exception):  # noqa: N818 - a state of the world
    """Raised when more is written than can be read."""


class _KnownLogs(NamedTuple):
    """The known part of a topic's logs."""

    images: NextImages
    tails: dict[int, Tail]
    """The tails by physical partition."""


class WhoWrote:
    """Finds out who has written to the partitions of topics.

    Args:
        adoption: The wait until all proxies have read the images.
    """

    def __init__(self, ends: PartitionEnds, ledger: Ledger, adoption: Adoption) -> None:
        self.moved = False
        """Whether partitions received records while their ends were last read."""
        self._ends = ends
        self._ledger = ledger
        self._adoption = adoption
        self._kept: dict[str, _KnownLogs] = {}

    async def are_many(self, topic: str) -> bool:
        """Whether a topic has so many producers that their images are to be written ahead.

        Raises:
            TopicsRefused: A broker does not lead a partition any more, or Kordon may not know.
            UpstreamUnavailable: A leader does not answer.
        """
        left, count = sorted(await self._ends.leaders(topic)), 0
        while left and count <= FEW_PRODUCERS:
            several, left = left[:_PARTITIONS_AT_ONCE], left[_PARTITIONS_AT_ONCE:]
            count += sum(map(len, (await self._ends.producers_of(topic, several)).values()))
        return count > FEW_PRODUCERS

    async def write_ahead(self, known: KnownTopics, command: WriteAhead) -> tuple[str | None, str]:
        """Writes images down, and reads on until little is left to read under the fence.

        Returns:
            What `on_ahead` wants to know: the problem, if there was one, and the reason that would stay.

        Raises:
            Fenced: Another controller has taken over.
        """
        topic, images = command.topic, command.images
        try:
            if (kept := self._kept.get(topic)) is None or kept.images is not images:
                self._kept.pop(topic, None)
                kept = self._kept[topic] = await self._read_all(known, command)
            await self._catch_up(topic, kept)
        except _TooFast:
            self._kept.pop(topic, None)
            log.warning("images_too_slow", topic=topic, detail=TOO_FAST)
            return TOO_FAST, TOO_FAST
        except (UpstreamUnavailable, WireError) as error:
            self._kept.pop(topic, None)
            log.warning("images_unwritten", topic=topic, error=str(error))
            return str(error), ""
        return None, ""

    async def settled(self, topic: str, partitions: Iterable[int], images: NextImages | None) -> dict[int, Producers]:
        """Reads ends, and who has written, until they stand still (STILL-CUT); the caller bounds the wait.

        With `images` that were written ahead, only producers that have written since are told; otherwise all are.

        Raises:
            TopicsRefused: A broker does not lead one of the partitions any more, or Kordon may not know.
            UpstreamUnavailable: A leader does not answer, or has changed since images were written ahead.
        """
        self.moved = False
        kept = self._kept.get(topic) if images is not None else None
        if images is not None and (kept is None or kept.images is not images):
            raise _Stale(f"nothing is known of {topic} any more")
        cuts: dict[int, Producers] = {}
        ends: dict[int, int] = {}
        left = frozenset(partitions)
        while left := left - cuts.keys():
            cuts |= await self._look(topic, left) if kept is None else await self._look_behind(topic, kept, left, ends)
        return cuts

    def forget(self, topic: str) -> None:
        """Forgets a topic whose change is over."""
        self._kept.pop(topic, None)

    async def _look(self, topic: str, partitions: frozenset[int]) -> dict[int, Producers]:
        found = await self._ends.snapshots(topic, partitions)
        self.moved = any(each.log_end_before != each.ends.log_end_offset for each in found.values())
        return {q: await _all_of(snapshot) for q, snapshot in found.items() if snapshot.is_cut}

    async def _look_behind(
        self, topic: str, kept: _KnownLogs, partitions: frozenset[int], before: dict[int, int]
    ) -> dict[int, Producers]:
        found = await self._read_on(topic, {q: kept.tails[q] for q in partitions})
        ends = {q: snapshot.ends.log_end_offset for q, (snapshot, _) in found.items()}
        self.moved = any(before.get(q, end) != end for q, end in ends.items())
        before |= ends
        seen_ms = now_ms()
        return {
            q: Producers(ends[q], tail.written, bool(tail.in_transaction), tail.leader_epoch, seen_ms)
            for q, tail in kept.tails.items()
            if q in found and found[q][0].is_cut and tail.position == ends[q]
        }

    async def _read_all(self, known: KnownTopics, command: WriteAhead) -> _KnownLogs:
        topic, images, tails = command.topic, command.images, dict[int, Tail]()
        for q in sorted(command.partitions):  # one after the other: their answers are large
            snapshot = await self._ends.snapshot(topic, q)
            read_ms = now_ms()
            tail = tails[q] = Tail(snapshot.log_end_before, snapshot.ends.leader_epoch)
            for run in snapshot.producers.runs():
                images.add(q, [(row.producer_id, row.producer_epoch, row.last_sequence) for row in run], read_ms)
                tail.in_transaction |= {row.producer_id for row in run if row.in_transaction}
                await self._put_down(known, topic, images, _RECORDS_OF_A_COMMIT)
        for _ in images.carry(now_ms()):
            await self._put_down(known, topic, images, _RECORDS_OF_A_COMMIT)
        await self._put_down(known, topic, images, 1)
        record = self._ledger.topics.get(topic)
        if record is not None:  # or else clients would wait, under the fence, until the slowest has read all that
            await self._ledger.write(await self._adoption.wait_until_adopted(record))
        log.info("images_written_ahead", topic=topic, epoch=images.following.number)
        return _KnownLogs(images, tails)

    async def _put_down(self, known: KnownTopics, topic: str, images: NextImages, least: int) -> None:
        await asyncio.sleep(0)
        while len(images.to_write) >= least:
            ahead: list[Ahead] = images.take(_RECORDS_OF_A_COMMIT)
            await self._ledger.write(tuple((image_key(topic, each.stream, each.number), each.part) for each in ahead))
            known.on_written_ahead(topic, ahead)

    async def _catch_up(self, topic: str, kept: _KnownLogs) -> None:
        ends_at = time.monotonic() + CATCH_UP_SECONDS
        while sum(read for _, read in (await self._read_on(topic, kept.tails)).values()) > NEAR_BYTES:
            if time.monotonic() > ends_at:
                raise _TooFast
        if sum(len(tail.written) for tail in kept.tails.values()) > MOST_SINCE:
            raise _TooFast

    async def _read_on(self, topic: str, tails: Mapping[int, Tail]) -> dict[int, tuple[Snapshot, int]]:
        """Reads on where each log was read to; returns its ends, and how many bytes came."""
        found = await self._ends.read_behind(topic, {q: tail.position for q, tail in tails.items()})
        for q, (snapshot, records) in found.items():
            if snapshot.ends.leader_epoch != tails[q].leader_epoch:
                raise _Stale(f"{topic}-{q} has another leader since its producers were asked for")
            await _take(tails[q], records)
        return {q: (snapshot, len(records)) for q, (snapshot, records) in found.items()}


async def _take(tail: Tail, records: memoryview) -> None:
    for place, span in enumerate(batches(records)):
        header = span.header
        if header is not None and header.base_offset >= tail.position:
            tail.take(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
                is_transactional=header.is_transactional,
                is_control=header.is_control,
            )
            tail.position = header.next_offset
        if place % _BATCHES_OF_A_TURN == _BATCHES_OF_A_TURN - 1:
            await asyncio.sleep(0)


async def _all_of(snapshot: Snapshot) -> Producers:
    written: dict[int, tuple[int, int]] = {}
    in_transaction = False
    for run in snapshot.producers.runs():
        written.update((row.producer_id, (row.producer_epoch, row.last_sequence)) for row in run)
        in_transaction = in_transaction or any(row.in_transaction for row in run)
        await asyncio.sleep(0)
    ends, read_ms = snapshot.ends, now_ms()
    return Producers(ends.log_end_offset, written, in_transaction, ends.leader_epoch, read_ms)
