"""What is on record of writes and reads is what happened: on logs and a broker in memory."""

import asyncio
from collections.abc import Sequence
from itertools import groupby, pairwise
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.decision import Decision, Kind
from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.chain import Chain
from kordon.proxy.ordering.images import ImageParts, ImageRecord, Written
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.topics.views import PHYSICAL, VIRTUAL, View
from kordon.testing.managed_writes import a_batch
from kordon.testing.noted import Noted
from kordon.testing.random_logs import NAME, World, fetch, grown_world, read_all, readers_of, worlds
from kordon.testing.waiting import until
from kordon.testing.writes_in_memory import WritesInMemory


def contiguous(chain: Chain, given: Sequence[Decision]) -> bool:
    """Whether deliveries of one stream follow on each other, from stay to stay; stays without an offset are passed.

    A topic that was taken over stays where it was without having moved: two stays, one place.
    """
    stays = [(stay.partition, stay.move) for stay in chain.stays if stay.end != stay.start]
    places = [place for place, _ in groupby(stays)]
    for before, after in pairwise(given):
        if (after.partition, after.move) == (before.partition, before.move):
            if after.first_offset != (before.last_offset or 0) + 1:
                return False
            continue
        came = places.index((before.partition or 0, before.move or 0))
        if places[came + 1] != (after.partition, after.move):
            return False
    return True


@settings(max_examples=60)
@given(worlds(), st.integers(1, 2_000), st.integers(1, 3_000))
def test_deliveries_cover_all_that_was_read_once(world: World, most_bytes: int, partition_max_bytes: int) -> None:
    """Their ranges follow on each other from each stream's start, and their records are those that the reader counted.

    Through moves, strays, markers, bypass and foreign batches, and where logs got shorter.
    """
    noted = Noted()
    client = noted.journal.connected()
    born = [v for v, chain in enumerate(world.layout.chains) if chain.stays]

    async def play() -> dict[int, list[str]]:
        readers, _ = readers_of(world, most_bytes, 1 << 20, noted.journal)
        try:
            return await read_all(readers, born, partition_max_bytes=partition_max_bytes, client=client)
        finally:
            await readers.close()

    found = asyncio.run(play())
    noted.journal.end_runs()
    asked_again = "NOT_LEADER_OR_FOLLOWER"  # on a busy machine
    assert {each.kind for each in noted.of() if each.reason != asked_again} <= {Kind.DELIVER}
    for v, values in found.items():
        given_to = [each for each in noted.of(Kind.DELIVER) if each.stream == v]
        assert sum(each.records or 0 for each in given_to) == len(values)
        assert contiguous(world.layout.chains[v], given_to)


async def test_a_reader_that_goes_back_is_on_record() -> None:
    """It has all of its stream, asks for the beginning again, and gets it again: two deliveries, a rewind between."""
    noted, world = Noted(), grown_world()
    client = noted.journal.connected()
    readers, topic = readers_of(world, 1 << 20, 1 << 20, noted.journal)
    topic.layouts_offset = 17
    for offset in (0, 2, 0):
        await fetch(readers, {1: offset}, client=client)
    noted.journal.end_runs()
    await readers.close()
    first, second, rewind, again = noted.of()
    assert [each.kind for each in noted.of()] == [Kind.DELIVER, Kind.DELIVER, Kind.REWIND, Kind.DELIVER]
    assert (first.partition, first.move, first.first_offset, first.last_offset) == (0, 0, 0, 1)
    assert (second.partition, second.move, second.first_offset, second.last_offset) == (1, 1, 0, 0)
    assert (rewind.reason, rewind.partition, rewind.first_offset) == ("back", 0, 0)
    assert (again.first_offset, again.last_offset, again.records) == (0, 1, 1)
    assert {(each.layout_epoch, each.layouts_offset) for each in (first, second, again)} == {(1, 17)}


async def test_what_retention_took_is_named_in_the_delivery_that_passes_over_it() -> None:
    """The range is whole; the evidence says where nothing is left."""
    noted, world = Noted(), grown_world()
    world.logs[0].start, world.logs[0].batches = 2, world.logs[0].batches[2:]
    readers, _ = readers_of(world, 1 << 20, 1 << 20, noted.journal)
    found = await read_all(readers, [0, 1], client=noted.journal.connected())
    noted.journal.end_runs()
    await readers.close()
    assert found == {0: ["0 after"], 1: ["1 after"]}
    passed = [each for each in noted.of(Kind.DELIVER) if "holes" in each.evidence]
    assert {each.stream: each.evidence["holes"] for each in passed} == {0: [[0, 1]], 1: [[0, 1]]}
    assert [(each.first_offset, each.records) for each in passed if each.stream == 1] == [(0, 0)]


async def test_an_error_that_a_reader_gets_is_on_record_with_its_rule() -> None:
    """The same again and again is one record."""
    noted = Noted()
    client = noted.journal.connected()
    readers, _ = readers_of(grown_world(), 1 << 20, 1 << 20, noted.journal)
    for _ in range(3):
        await fetch(readers, {0: 0, 9: 4}, client=client, current_leader_epoch=7 << 15)
    noted.journal.end_runs()
    await readers.close()
    refused = {(each.stream, each.reason, each.rule, each.batches) for each in noted.of(Kind.REFUSE)}
    assert refused == {(0, "UNKNOWN_LEADER_EPOCH", "RISING-EPOCH", 3), (9, "UNKNOWN_TOPIC_OR_PARTITION", None, 3)}


class Stage(WritesInMemory):
    """A worker's lanes to a broker that writes at once, and one client's connection."""

    def __init__(self, view: View = VIRTUAL) -> None:
        self.noted = Noted()
        super().__init__(Layout.created(NAME, UUID(int=1), 1, 4), journal=self.noted.journal, view=view)
        self.topic.layouts_offset = 17

    async def told(self, *kinds: Kind) -> list[Decision]:
        """Ends; returns what is on record."""
        await self.dispatcher.close()
        self.noted.journal.end_runs()
        return self.noted.of(*kinds)


def idempotent(sequence: int, records: int = 2, producer_id: int = 7) -> bytes:
    return a_batch(*(["a"] * records), producer_id=producer_id, epoch=0, sequence=sequence)


async def test_what_is_acknowledged_is_on_record_as_one_run_while_it_goes_on() -> None:
    """Sequences as the client counts them, offsets of the physical partition; a new layout begins another record."""
    stage = Stage()
    for sequence in (0, 2, 4):
        assert await stage.write(3, idempotent(sequence)) == 0
    stage.change(2, {0: 6, 1: 0})
    assert await stage.write(0, idempotent(0)) == 0
    before, after = await stage.told(Kind.ADMIT)
    assert (before.stream, before.partition, before.move, before.producer_id) == (3, 0, 0, 7)
    assert (before.first_sequence, before.last_sequence, before.first_offset, before.last_offset) == (0, 5, 0, 5)
    assert (before.batches, before.records, before.connection) == (3, 6, stage.client.number)
    assert [(each.layout_epoch, each.layouts_offset) for each in (before, after)] == [(0, 17), (1, 22)]
    assert before.evidence == {}


async def test_what_a_client_of_the_dialect_believed_is_on_record() -> None:
    """Its count and the epoch by which that was judged, where it is admitted and where it is refused."""
    stage = Stage(PHYSICAL)
    assert await stage.write(0, idempotent(0), count=1, layout_epoch=0) == 0
    stage.change(2, {0: 2, 1: 0})
    assert await stage.write(0, idempotent(2), count=1, layout_epoch=0) == Code.INVALID_PARTITION_METADATA
    admitted, refused = await stage.told(Kind.ADMIT, Kind.REFUSE)
    assert (admitted.stream, admitted.move) == (physical_stream(0), 0)
    assert admitted.evidence == {"undeleted_partition_count": 1, "sent_epoch": 0}
    assert (refused.reason, refused.rule, refused.layout_epoch) == ("INVALID_PARTITION_METADATA", "COUNT-FENCE", 1)
    assert refused.evidence == {"undeleted_partition_count": 1, "layout_epoch": 0, "in_force": 2}


async def test_writes_that_wait_for_a_fence_are_on_record_from_its_beginning_to_its_end() -> None:
    """One HOLD, one RELEASE, then the write."""
    stage = Stage()
    assert await stage.write(3, idempotent(0)) == 0
    stage.fence()
    writing = stage.write(3, idempotent(2))
    await asyncio.sleep(0)
    assert not writing.done()
    stage.change(1, {0: 2})
    assert await writing == 0
    told = [each for each in await stage.told(Kind.HOLD, Kind.RELEASE) if each.reason == "fence"]
    assert [(each.kind, each.stream, each.partition, each.fence) for each in told] == [
        (Kind.HOLD, 3, 0, "f1"),
        (Kind.RELEASE, 3, 0, None),
    ]
    assert not told[1].evidence["given_up"]


async def test_an_acknowledgement_stands_behind_all_that_was_admitted_before_it() -> None:
    """When a drain returns, what it has waited for is in the journal: an open run ends in front of the decision."""
    stage = Stage()
    writing = stage.write(3, idempotent(0))
    await until("the lane has sent it", lambda: stage.dispatcher.under_way, pause=0)
    stage.fence()
    await stage.dispatcher.drain(NAME, frozenset({0}))
    stage.noted.journal.note(Decision(kind=Kind.ACKNOWLEDGE, topic=NAME, fence="f1"))
    assert await writing == 0
    assert [each.kind for each in await stage.told(Kind.ADMIT, Kind.ACKNOWLEDGE)] == [Kind.ADMIT, Kind.ACKNOWLEDGE]


async def test_a_stray_is_refused_with_the_offset_at_which_it_landed() -> None:
    """What stands behind the cut is no success (LATE-ANSWER), and is no ADMIT."""
    stage = Stage()
    assert await stage.write(3, idempotent(0)) == 0
    writing = stage.write(3, idempotent(2))
    await until("the lane has sent it", lambda: stage.dispatcher.under_way, pause=0)
    stage.change(2, {0: 2, 1: 0})
    assert await writing == Code.NOT_LEADER_OR_FOLLOWER
    (refused,) = await stage.told(Kind.REFUSE)
    assert (refused.reason, refused.rule) == ("NOT_LEADER_OR_FOLLOWER", "LATE-ANSWER")
    assert refused.evidence == {"partition": 0, "move": 0, "base_offset": 2}


async def test_a_repeated_write_is_admitted_without_an_offset() -> None:
    """By the broker, which has forgotten where it stands, or by what the stream had before its last move."""
    stage = Stage()
    stage.error_code = Code.DUPLICATE_SEQUENCE_NUMBER
    assert await stage.write(3, idempotent(0)) == 0
    stage.error_code = 0
    stage.change(2, {0: 6, 1: 0}, {3: ImageParts({1: ImageRecord({7: Written(0, 5)}, 0)})})
    for _ in range(2):
        assert await stage.write(3, idempotent(2)) == 0
    assert await stage.write(3, idempotent(6)) == 0
    by_broker, by_image, again, new = await stage.told(Kind.ADMIT)
    assert by_image == again
    for each in (by_broker, by_image):
        assert (each.reason, each.evidence) == ("duplicate", {"repeated": True})
        assert (each.first_offset, each.last_offset, each.records, each.bytes) == (None, None, 2, new.bytes)
        assert (each.producer_id, each.connection) == (7, stage.client.number)
    assert (by_broker.partition, by_broker.move, by_broker.layouts_offset) == (0, 0, 17)
    assert (by_image.partition, by_image.move, by_image.layouts_offset) == (None, None, 22)
    assert (by_broker.rule, by_image.rule) == ("LENT-IDENTITY", "SEQ-IMAGE")
    assert (by_image.first_sequence, by_image.last_sequence) == (2, 3)
    assert (new.first_sequence, new.partition, new.evidence) == (6, 1, {})


async def test_a_stream_whose_writes_go_elsewhere_is_on_record_once() -> None:
    """When the first one does: those that live where they lived are not, nor those of which nothing is written."""
    stage = Stage()
    for sequence in (0, 2):
        assert await stage.write(3, idempotent(sequence)) == await stage.write(0, idempotent(sequence)) == 0
    stage.change(2, {0: 8, 1: 0}, {3: ImageParts({1: ImageRecord({7: Written(0, 3)}, 0)})})
    for sequence in (4, 6):
        assert await stage.write(3, idempotent(sequence)) == await stage.write(0, idempotent(sequence)) == 0
        assert await stage.write(1, idempotent(sequence - 4)) == 0
    (redirect,) = await stage.told(Kind.REDIRECT)
    assert (redirect.api_key, redirect.stream, redirect.partition, redirect.move) == (apis.PRODUCE, 3, 1, 1)
    assert (redirect.layout_epoch, redirect.layouts_offset, redirect.reason) == (1, 22, "moved")
    assert redirect.evidence == {"from_partition": 0, "from_move": 0}


async def test_errors_of_brokers_are_not_on_record_as_refusals() -> None:
    """Kordon has only passed them on."""
    stage = Stage()
    stage.error_code = Code.MESSAGE_TOO_LARGE
    assert await stage.write(3, idempotent(0)) == Code.MESSAGE_TOO_LARGE
    assert await stage.told(Kind.ADMIT, Kind.REFUSE) == []


@pytest.mark.parametrize(("number", "reason"), [(3, "INVALID_RECORD"), (4, "UNKNOWN_TOPIC_OR_PARTITION")])
async def test_what_never_gets_a_line_is_refused_on_record(number: int, reason: str) -> None:
    """A batch that cannot be read, and a partition that is not there."""
    stage = Stage()
    assert await stage.write(number, b"no batch")
    (refused,) = await stage.told()
    assert (refused.kind, refused.api_key, refused.stream, refused.reason) == (Kind.REFUSE, 0, number, reason)
