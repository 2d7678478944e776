"""Who has written is read before a fence, and under it only what is new; against a log in memory."""

from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs.producers import ProducerRow, ProducerRows
from kordon.proxy.controller import ahead
from kordon.proxy.controller.ahead import MOST_SINCE, TOO_FAST, WhoWrote
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import BatchIdentity, NewRecord, build_batch
from kordon.proxy.kafka.ends import Ends, Snapshot
from kordon.proxy.ordering.changes import WriteAhead
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.next_images import NextImages
from kordon.proxy.own_topics.layouts_writer import Records

LAYOUT = Layout.created("orders", UUID(int=1), 1, 2)
FOLLOWING = LAYOUT.next_epoch(2)


class Log:
    """A partition as its leader tells of it; one batch of one record after the other."""

    def __init__(self) -> None:
        self.leader_epoch = 4
        self.batches: list[tuple[int, int, int]] = []
        self.meanwhile: list[tuple[int, int, int]] = []
        """What is written behind the next question for the log end."""
        self.most = 1 << 30
        """Batches that one answer has room for."""

    async def leaders(self, topic: str) -> dict[int, object]:
        return {0: object()}

    async def producers_of(self, topic: str, partitions: list[int]) -> dict[int, ProducerRows]:
        return {0: self._rows()}

    async def snapshot(self, topic: str, partition: int) -> Snapshot:
        """Tells its end, then who has written; of others that they are empty."""
        if partition:
            return Snapshot(0, ProducerRows.of(()), Ends(0, 0, self.leader_epoch))
        before = len(self.batches)
        self._write_meanwhile()
        return Snapshot(before, self._rows(), self._ends())

    async def read_behind(self, topic: str, positions: dict[int, int]) -> dict[int, tuple[Snapshot, memoryview]]:
        """Tells its end, what stands behind a position, and both ends."""
        found: dict[int, tuple[Snapshot, memoryview]] = {}
        for q, position in positions.items():
            if q:
                found[q] = (await self.snapshot(topic, q), memoryview(b""))
                continue
            before = len(self.batches)
            data = b"".join(self._batch(place) for place in range(position, min(before, position + self.most)))
            self._write_meanwhile()
            found[q] = (Snapshot(before, ProducerRows.of(()), self._ends()), memoryview(data))
        return found

    def _write_meanwhile(self) -> None:
        self.batches += self.meanwhile
        self.meanwhile = []

    def _rows(self) -> ProducerRows:
        last = {producer_id: (epoch, sequence) for producer_id, epoch, sequence in self.batches}
        return ProducerRows.of(ProducerRow(each, *state, 1, -1, -1) for each, state in last.items())

    def _ends(self) -> Ends:
        return Ends(len(self.batches), len(self.batches), self.leader_epoch)

    def _batch(self, place: int) -> bytes:
        producer_id, epoch, sequence = self.batches[place]
        batch = build_batch([NewRecord("k", b"v")], BatchIdentity(producer_id, epoch, sequence), is_transactional=False)
        return place.to_bytes(8, "big") + batch[8:]


class Written:
    """The ledger and the controller of a topic that is not managed yet: nobody else has to read what is written."""

    def __init__(self) -> None:
        self.topics: dict[str, object] = {}
        self.records: list[str] = []
        self.parts = 0

    async def write(self, records: Records) -> None:
        self.records += [key for key, _ in records]

    def on_written_ahead(self, topic: str, parts: list[object]) -> None:
        self.parts += len(parts)


class Stage:
    """Who wrote, of a log."""

    def __init__(self) -> None:
        self.log, self.written = Log(), Written()
        self.who = WhoWrote(cast("Any", self.log), cast("Any", self.written), cast("Any", None))
        self.images = NextImages(LAYOUT, FOLLOWING, {}, 10**9)

    async def write_ahead(self) -> tuple[str | None, str]:
        command = WriteAhead("orders", frozenset({0, 1}), self.images)
        return await self.who.write_ahead(cast("Any", self.written), command)

    async def cut(self) -> dict[int, dict[int, tuple[int, int]]]:
        """Returns who has written since, by the virtual partition that moves; as images of two virtual partitions."""
        cuts = await self.who.settled("orders", frozenset({0, 1}), self.images)
        images = self.images.at_cut({q: cut.written for q, cut in cuts.items()}, 0)
        return {v: {each: tuple(row) for each, row in image.items()} for v, image in images.items() if v >= 0}  # type: ignore[misc]


async def test_what_is_written_while_images_are_counts_as_well() -> None:
    """Before the producers are told, behind that, and behind the images: the last batch of each is what counts."""
    stage = Stage()
    stage.log.batches = [(tag(1, 0, 7), 0, 0), (tag(1, 0, 8), 0, 0), (tag(1, 0, 9), 0, 0)]
    stage.log.meanwhile = [(tag(1, 0, 7), 0, 1)]
    assert await stage.write_ahead() == (None, "")
    assert stage.written.parts == len(stage.written.records) > 0
    stage.log.batches += [(tag(1, 0, 8), 1, 0), (-1, -1, -1), (tag(1, 0, 10), 0, 0)]
    stage.log.meanwhile = [(tag(1, 0, 10), 0, 1)]
    assert await stage.cut() == {1: {7: (0, 1), 8: (1, 0), 9: (0, 0), 10: (0, 1)}}


async def test_a_cut_waits_until_all_that_stands_before_it_has_been_read() -> None:
    """An end that stands still is not enough: what is not read yet would be written again, and be a second copy."""
    stage = Stage()
    stage.log.batches = [(tag(1, 0, 7), 0, 0)]
    await stage.write_ahead()
    stage.log.batches += [(tag(1, 0, 8), 0, 0), (tag(1, 0, 9), 0, 0), (tag(1, 0, 8), 0, 1)]
    stage.log.most = 1
    assert await stage.cut() == {1: {7: (0, 0), 8: (0, 1), 9: (0, 0)}}


async def test_images_are_written_once_for_several_attempts() -> None:
    """Another attempt reads on where the one before ended."""
    stage = Stage()
    stage.log.batches = [(tag(1, 0, 7), 0, 0)]
    await stage.write_ahead()
    records = list(stage.written.records)
    stage.log.batches += [(tag(1, 0, 8), 0, 0)]
    assert await stage.write_ahead() == (None, "")
    assert stage.written.records == records
    assert await stage.cut() == {1: {7: (0, 0), 8: (0, 0)}}


async def test_under_another_leader_nothing_of_before_counts() -> None:
    """It may not have what the former one told; what comes again would be called a duplicate, and be lost."""
    stage = Stage()
    stage.log.batches = [(tag(1, 0, 7), 0, 0)]
    await stage.write_ahead()
    stage.log.leader_epoch += 1
    with pytest.raises(UpstreamUnavailable, match="another leader"):
        await stage.cut()
    problem, reason = await stage.write_ahead()
    assert problem is not None
    assert "another leader" in problem
    assert reason == "", "it is tried again"
    with pytest.raises(UpstreamUnavailable, match="nothing is known"):
        await stage.cut()


async def test_producers_that_come_faster_than_they_are_read_are_told_as_the_reason() -> None:
    """A fence would have to add too many."""
    stage = Stage()
    stage.log.batches = [(tag(1, 0, 7), 0, 0)]
    await stage.write_ahead()
    stage.log.batches += [(tag(1, 0, 100 + each), 0, 0) for each in range(MOST_SINCE + 1)]
    assert await stage.write_ahead() == (TOO_FAST, TOO_FAST)


async def test_few_producers_are_asked_for_under_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only from a number on does it pay to write images ahead."""
    stage = Stage()
    monkeypatch.setattr(ahead, "FEW_PRODUCERS", 1)
    stage.log.batches = [(tag(1, 0, 7), 0, 0)]
    assert not await stage.who.are_many("orders")
    stage.log.batches += [(tag(1, 0, 8), 0, 0)]
    assert await stage.who.are_many("orders")
