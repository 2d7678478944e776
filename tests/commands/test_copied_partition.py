"""What a copy writes next, whatever has ended the one before, and where groups go on: without a broker."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.commands.copied_partition import CopiedPartition, CopyPlace, RecordsBehind, SourceRecord
from kordon.proxy.kafka.batches import Copy

BEGUN = CopyPlace("an-id", 7, 0, 0, 0, 0)
MOST_BYTES = 100


def record(offset: int, codec: int = 0, size: int = 30) -> SourceRecord:
    return SourceRecord(offset, codec, size, Copy(b"key", str(offset).encode(), 0))


@dataclass
class Target:
    """A partition as brokers keep it: a batch of one producer is appended behind its last sequence, or known again."""

    offsets: list[int] = field(default_factory=list)
    """Of the source, of each record."""
    last: tuple[int, int] | None = None
    """Sequence and count of the last batch."""

    def append(self, place: CopyPlace, records: Sequence[SourceRecord]) -> bool:
        """Whether the broker acknowledges it."""
        batch = (place.identity.base_sequence, len(records))
        if batch == self.last:
            return True
        if batch[0] != len(self.offsets):
            return False
        self.offsets += [each.offset for each in records]
        self.last = batch
        return True


class Run:
    """A copy, which may be killed at any of its steps.

    Attributes:
        committed: What outlives it.
        late: A batch of a run that was killed, which may come any time.
    """

    def __init__(self, source: list[int], target: Target) -> None:
        self.source, self.target = source, target
        self.committed = (BEGUN.written, BEGUN.dump())
        self.late: tuple[CopyPlace, list[SourceRecord]] | None = None

    def copy(self, end: int, killed_at: int | None, size: int) -> None:
        """Copies up to an offset; a kill comes before the commit (0), behind it (1), or behind the batch (2)."""
        part = CopiedPartition(CopyPlace.load(*self.committed).resumed(len(self.target.offsets)))
        part.add([record(each, size=size) for each in self.source if each < end], end, end)
        while records := part.take(MOST_BYTES):
            place = part.place.sending(records)
            if killed_at == 0:
                return
            self.committed = (place.written, place.dump())
            if killed_at == 1:
                self.late = (place, records)
                return
            if self.late is not None and self.target.append(*self.late):  # it overtakes the one that repeats it
                self.late = None
            assert self.target.append(place, records)
            if killed_at == 2:
                return
            part.place = place.sent()


kills = st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from([20, 30, 60]), st.booleans())


@given(st.sets(st.integers(0, 60), max_size=40), st.lists(kills, max_size=6))
def test_a_copy_that_is_killed_loses_and_doubles_nothing(
    offsets: set[int], killed: list[tuple[int, int, bool]]
) -> None:
    """Whatever was under way then, and whether the broker gets it at once, later, or never."""
    source, target = sorted(offsets), Target()
    run = Run(source, target)
    for at, size, arrives in killed:
        run.copy(61, at, size)
        if arrives and run.late is not None:
            target.append(*run.late)
            run.late = None
    run.copy(61, None, 30)
    assert target.offsets == source
    if run.late is not None:
        target.append(*run.late)
    assert target.offsets == source


@given(st.sets(st.integers(0, 60), min_size=1, max_size=40), st.data())
def test_what_retention_has_taken_on_the_way_is_not_made_up_for(offsets: set[int], data: st.DataObject) -> None:
    """A batch that may be on its way and is not whole any more is appended once, or refused; never beside the other."""
    run = Run(sorted(offsets), Target())
    run.copy(61, 1, 30)
    taken = data.draw(st.integers(0, 61))
    run.source = [each for each in run.source if each >= taken]
    part = CopiedPartition(CopyPlace.load(*run.committed).resumed(0))
    part.add([record(each) for each in run.source], 61, 61)
    records = part.take(MOST_BYTES)
    if run.late is not None and records and len(records) != len(run.late[1]):
        run.target.append(*run.late)
        assert not run.target.append(part.place.sending(records), records)


def test_a_batch_has_one_codec_and_so_many_bytes() -> None:
    """Brokers compress batches as a whole; a record that is larger than that is a batch of its own."""
    part = CopiedPartition(BEGUN)
    part.add([record(0), record(1), record(2, 4), record(3, 4, 200), record(4, 4)], 9, 9)
    taken: list[list[int]] = []
    while records := part.take(MOST_BYTES):
        taken.append([each.offset for each in records])
    assert taken == [[0, 1], [2], [3], [4]]
    assert part.waiting_bytes == 0


def test_a_batch_that_may_be_on_its_way_waits_for_all_its_records() -> None:
    """Half of it under the same sequence would be taken for the whole."""
    part = CopiedPartition(CopyPlace("an-id", 7, 5, 10, 3, 13))
    part.add([record(10)], 11, 20)
    assert part.take(MOST_BYTES) == []
    part.add([record(11), record(12), record(13)], 14, 20)
    assert [each.offset for each in part.take(1)] == [10, 11, 12]
    assert part.copied_to == 10


def test_offsets_that_others_have_are_no_records_to_go() -> None:
    """Virtual offsets have holes: what is behind the last record counts as copied once it has been read."""
    part = CopiedPartition(BEGUN)
    assert part.to_go == 0
    part.add([record(3)], 20, 25)
    assert (part.copied_to, part.to_go) == (0, 25)
    part.place = part.place.sending(part.take(MOST_BYTES)).sent()
    assert (part.copied_to, part.to_go) == (20, 5)


@pytest.mark.parametrize("end", [4, 6, 9])
def test_a_target_that_ends_elsewhere_is_not_written_to(end: int) -> None:
    """Somebody else has written, or something is lost: nobody knows which records these are."""
    place = CopyPlace("an-id", 7, 5, 10, 3, 13)
    assert place.resumed(5) == place
    assert place.resumed(8) == CopyPlace("an-id", 7, 8, 13, 0, 13)
    with pytest.raises(ValueError, match=f"ends at {end}"):
        place.resumed(end)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kordon-copy-1",
        "other a 1 2 3 9",
        "kordon-copy-1 a 1 2 3 4",
        "kordon-copy-1 a x 2 3 9",
        "kordon-copy-1 a 1 -2 0 9",
    ],
)
def test_commits_of_others_are_no_places(text: str) -> None:
    with pytest.raises(ValueError, match=r"no place|invalid literal"):
        CopyPlace.load(0, text)


@given(st.lists(st.integers(0, 99), min_size=1, unique=True), st.lists(st.integers(0, 120), min_size=1))
def test_groups_go_on_at_the_first_record_that_they_have_not_read(offsets: list[int], commits: list[int]) -> None:
    """Wherever a group stands: between records, before all of them, or behind the end."""
    source = sorted(offsets)
    behind = RecordsBehind(commits)
    for offset in source:
        if offset >= behind.first:
            behind.add(offset)
    assert behind.places(len(source)) == {each: len([o for o in source if o < each]) for each in commits}


def test_sequences_begin_anew_behind_the_largest() -> None:
    """As Kafka's do: so they are the offsets for any number of records."""
    place = CopyPlace("an-id", 7, 2**31 + 5, 0, 0, 0)
    assert place.identity.base_sequence == 5
