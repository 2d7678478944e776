"""Offsets along chains, over random histories of growth, shrink, retention and elections, against a plain model."""

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering import lookups
from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.epochs import LARGEST_EPOCH, split_epoch, virtual_epoch
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.lookups import FoundOffset, epoch_end, epoch_question, partitions_to_ask, resolve, visible
from kordon.proxy.ordering.reading import first_readable
from kordon.testing.known import known


@dataclass
class Log:
    """A physical partition as its broker knows it; each record is a batch."""

    records: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    """(timestamp, v, move, leader epoch) by offset."""
    start: int = 0
    epoch: int = 0

    def answer(self, timestamp: int) -> FoundOffset:
        """Answers ListOffsets as a broker does (UnifiedLog.fetchOffsetByTimestamp)."""
        live = [FoundOffset(offset, *self.records[offset][::3]) for offset in range(self.start, len(self.records))]
        if timestamp == lookups.LATEST:
            return FoundOffset(len(self.records), -1, self.epoch)
        if timestamp == lookups.EARLIEST:
            return FoundOffset(self.start, -1, live[0].epoch if live else -1)
        if timestamp == lookups.MAX_TIMESTAMP:
            return max(live, key=lambda found: found.timestamp, default=FoundOffset())
        return next((found for found in live if found.timestamp >= timestamp), FoundOffset())

    def end_of_epoch(self, epoch: int) -> FoundOffset:
        """Answers OffsetForLeaderEpoch as a broker does (LeaderEpochFileCache.endOffsetFor), before any retention."""
        if epoch == self.epoch:
            return FoundOffset(len(self.records), -1, epoch)
        starts = {of: offset for offset, (*_, of) in reversed(list(enumerate(self.records)))}
        higher = min((of for of in starts if of > epoch), default=None)
        if higher is None:
            return FoundOffset()
        return FoundOffset(starts[higher], -1, max((of for of in starts if of <= epoch), default=epoch))


@dataclass
class History:
    """A layout and the logs that came to be under it and its predecessors."""

    layout: Layout
    logs: dict[int, Log]

    def records_of(self, v: int) -> list[tuple[int, int]]:
        """Returns (virtual offset, timestamp) of what readers of v can still get, in order."""
        return [
            (offset + stay.delta, self.logs[stay.partition].records[offset][0])
            for stay in self.layout.chains[v].stays
            for offset in range(max(stay.start, self.logs[stay.partition].start), self.end(stay))
            if self.logs[stay.partition].records[offset][1:3] == (v, stay.move)
        ]

    def end(self, stay: Stay) -> int:
        return len(self.logs[stay.partition].records) if stay.end is None else stay.end

    def find(self, v: int, timestamp: int, floor: int = 0, limit: int | None = None) -> FoundOffset:
        """Looks an offset up the way that is tested."""
        stays = visible(self.layout.chains[v], floor, limit)
        asked = partitions_to_ask(stays, timestamp)
        return resolve(stays, timestamp, {q: self.logs[q].answer(timestamp) for q in asked})


@st.composite
def histories(draw: st.DrawFn, *, monotonic: bool = False, retention: bool = True) -> History:
    """A topic that was written to, grew, shrank and lost its oldest records; strays stand behind some cuts."""
    n, bits = draw(st.tuples(st.integers(1, 3), st.integers(0, 3)))
    layout = Layout.created("orders", UUID(int=7), n, n << bits)
    logs = {q: Log() for q in range(layout.v_count)}
    clock = 0
    for _ in range(draw(st.integers(1, 6))):
        for v in draw(st.lists(st.integers(0, layout.v_count - 1), max_size=12)):
            home = known(layout.chains[v].home)
            clock += draw(st.integers(0, 3))
            log = logs[home.partition]
            log.epoch += draw(st.sampled_from([0, 0, 0, 1]))
            log.records.append((clock if monotonic else draw(st.integers(0, 40)), v, home.move, log.epoch))
        before = layout
        u = draw(st.integers(layout.n, layout.v_count))
        layout = layout.changed(layout.next_epoch(u), {q: len(log.records) for q, log in logs.items()})
        for v in draw(st.lists(st.integers(0, layout.v_count - 1), max_size=2)):
            home = known(before.chains[v].home)
            if home not in layout.chains[v].stays:  # it has left: what lands now is a stray
                logs[home.partition].records.append((clock, v, home.move, logs[home.partition].epoch))
    if retention:
        for log in logs.values():
            log.start = draw(st.integers(0, len(log.records)))
    return History(layout, logs)


@given(histories())
def test_everything_lies_between_earliest_and_latest(history: History) -> None:
    """Whoever reads from the earliest to the latest offset gets all that is left, and both are offsets of the chain."""
    for v, chain in enumerate(history.layout.chains):
        earliest, latest = history.find(v, lookups.EARLIEST), history.find(v, lookups.LATEST)
        assert chain.home is not None
        assert chain.start <= earliest.offset <= latest.offset == history.end(chain.home) + chain.home.delta
        assert all(earliest.offset <= offset < latest.offset for offset, _ in history.records_of(v))


@given(histories(), st.integers(0, 45))
def test_nothing_that_is_old_enough_lies_before_what_is_found_by_time(history: History, timestamp: int) -> None:
    """A reader who begins there misses nothing; where nothing is found there is nothing."""
    for v in range(history.layout.v_count):
        found = history.find(v, timestamp)
        fitting = [offset for offset, stamp in history.records_of(v) if stamp >= timestamp]
        assert found.offset == -1 or found.timestamp >= timestamp
        assert not fitting or 0 <= found.offset <= fitting[0]


@given(histories(monotonic=True), st.integers(0, 45))
def test_a_time_is_found_exactly_where_time_goes_forward(history: History, timestamp: int) -> None:
    """With rising timestamps the first record a reader gets there is the first that is old enough."""
    for v in range(history.layout.v_count):
        found = history.find(v, timestamp)
        read = [stamp for offset, stamp in history.records_of(v) if offset >= found.offset >= 0]
        assert all(stamp >= timestamp for stamp in read)


@given(histories())
def test_the_greatest_timestamp_stands_where_it_is_said_to(history: History) -> None:
    """The offset is one of the chain's, and no record of the virtual partition on the same stay is younger."""
    for v in range(history.layout.v_count):
        found = history.find(v, lookups.MAX_TIMESTAMP)
        if found.offset < 0:
            continue
        stay = known(history.layout.chains[v].stay_of(found.offset))
        assert history.logs[stay.partition].records[found.offset - stay.delta][0] == found.timestamp


@given(histories(), st.data())
def test_deleted_records_are_not_found(history: History, data: st.DataObject) -> None:
    """OWN-FLOOR: nothing below the floor is told, by any question; a topic emptied so begins at its end."""
    for v in range(history.layout.v_count):
        latest = history.find(v, lookups.LATEST).offset
        floor = data.draw(st.integers(0, latest))
        for timestamp in (lookups.EARLIEST, lookups.LATEST, lookups.MAX_TIMESTAMP, 0, 20):
            found = history.find(v, timestamp, floor)
            assert found.offset == -1 or floor <= found.offset <= latest
        assert history.find(v, lookups.EARLIEST, latest).offset == latest


@given(histories(), st.data())
def test_nothing_is_told_beyond_a_fence(history: History, data: st.DataObject) -> None:
    """FROZEN-READS: what readers may see of the home ends at the fence's high watermark, by any question."""
    for v, chain in enumerate(history.layout.chains):
        assert chain.home is not None
        limit = data.draw(st.integers(chain.home.start, history.end(chain.home)))
        assert history.find(v, lookups.LATEST, limit=limit).offset == limit + chain.home.delta
        for timestamp in (lookups.MAX_TIMESTAMP, 0, 20, 40):
            assert history.find(v, timestamp, limit=limit).offset < limit + chain.home.delta


@given(histories(retention=False))
def test_leader_epochs_end_where_the_next_one_begins(history: History) -> None:
    """RISING-EPOCH: along the chain, moves included, each leader epoch that was current ends where the next begins."""
    for chain in history.layout.chains:
        starts = epoch_starts(history, chain)
        epochs = sorted(starts)
        for at, epoch in enumerate(epochs):
            question = known(epoch_question(chain, epoch))
            found = epoch_end(question, history.logs[question.stay.partition].end_of_epoch(question.epoch))
            if at + 1 < len(epochs) and split_epoch(epochs[at + 1])[0] == question.stay.move:
                assert found == FoundOffset(starts[epochs[at + 1]], -1, epoch)
            else:
                assert found == FoundOffset(history.end(question.stay) + question.stay.delta, -1, epoch)


def epoch_starts(history: History, chain: Chain) -> dict[int, int]:
    """Returns the virtual offset where each leader epoch of a virtual partition begins."""
    starts: dict[int, int] = {}
    for stay in chain.stays:
        for offset in range(stay.start, history.end(stay)):
            epoch = history.logs[stay.partition].records[offset][3]
            starts.setdefault(virtual_epoch(stay.move, epoch), offset + stay.delta)
    return starts


def test_leader_epochs_nobody_knows_are_undefined() -> None:
    """Epochs of moves to come, and none at all, are answered as brokers answer them: -1, -1."""
    chain = Layout.created("orders", UUID(int=7), 1, 4).chains[0]
    assert epoch_question(chain, -1) is None
    assert epoch_question(chain, virtual_epoch(1, 0)) is None
    question = known(epoch_question(chain, 5))
    assert epoch_end(question, FoundOffset()) == FoundOffset()


def test_one_leader_epoch_over_the_takeover_of_a_topic() -> None:
    """PAST-STAYS: before and after Kordon came the partition is the same, and so are its leader epochs."""
    old, new = Stay(1, 0, 0, 200, 0, tagged=False), Stay(1, 0, 200, None, 0)
    question = known(epoch_question(Chain((old, new)), 3))
    assert epoch_end(question, FoundOffset(150, -1, 3)) == FoundOffset(150, -1, 3)


@given(st.integers(0, 65_535), st.integers(0, 32_767))
def test_virtual_epochs_are_taken_apart_again(move: int, epoch: int) -> None:
    """A virtual leader epoch is a non-negative 32-bit number, and holds both."""
    virtual = virtual_epoch(move, epoch)
    assert 0 <= virtual < 1 << 31
    assert split_epoch(virtual) == (move, epoch)
    assert virtual_epoch(move, -1) == -1


def test_the_epoch_before_a_change_leads_to_the_cut_of_a_physical_partition() -> None:
    """KIP-253 8.4.3: what was open before layout epoch 4 ended at 120, though no segment begins with epoch 3."""
    sealed, opened = Stay(0, 1, 20, 120, 0), Stay(0, 4, 120, None, 0)
    chain = Chain((sealed, opened))
    question = epoch_question(chain, virtual_epoch(4, 0) - 1)
    assert question == (sealed, LARGEST_EPOCH)
    assert question is not None
    assert epoch_end(question, FoundOffset()).offset == 120  # the broker knows no such epoch
    assert epoch_question(chain, virtual_epoch(5, 0)) is None  # larger than any there is
    assert epoch_question(chain, virtual_epoch(0, 9)) is None  # from before its time
    assert epoch_question(chain, virtual_epoch(4, 2)) == (opened, 2)


def test_a_retired_partition_ends_for_every_later_epoch_and_begins_at_its_end_when_it_is_empty() -> None:
    """Partition 3 was there from 0 to 95; retention has taken all of it."""
    chain = Chain((Stay(3, 1, 0, 95, 0),))
    question = known(epoch_question(chain, virtual_epoch(2, 0)))
    assert epoch_end(question, FoundOffset()).offset == 95
    stays = visible(chain)
    assert resolve(stays, lookups.LATEST, {3: FoundOffset(99, -1, 7)}).offset == 95
    assert resolve(stays, lookups.EARLIEST, {3: FoundOffset(97, -1, 7)}).offset == 95
    assert first_readable(chain, 0, lambda _: 97) == 95


def test_a_partition_begins_at_its_floor_or_where_its_log_does() -> None:
    """Whichever comes later (OWN-FLOOR), as long as there is something behind it."""
    chain = Chain((Stay(3, 1, 0, 95, 0),))
    assert [first_readable(chain, floor, lambda _: 20) for floor in (0, 40, 95)] == [20, 40, 95]
