"""Where a group goes on with physical partitions that has read virtual ones before."""

from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.inherited_positions import inherited_positions
from kordon.proxy.ordering.layout import Layout
from kordon.testing.known import known

N, V = 2, 8
COUNTS = st.lists(st.integers(N, V), max_size=6)


class Log:
    """Records of all virtual partitions, written where each lives, while the topic grows and shrinks."""

    def __init__(self, counts: list[int], random: Random) -> None:
        self.layout = Layout.created("orders", UUID(int=1), N, V)
        self.ends = dict.fromkeys(range(V), 0)
        self.records: list[tuple[int, int, int]] = []
        """Virtual partition, physical partition, offset there."""
        for u in [*counts, self.layout.u]:
            for v in random.choices(range(V), k=12):
                self._write(v)
            if u != self.layout.u:
                following = self.layout.next_epoch(u)
                touched = self.layout.change_to(following).touched
                self.layout = self.layout.changed(following, {q: self.ends[q] for q in touched})

    def _write(self, v: int) -> None:
        q = known(self.layout.homes[v])
        self.records.append((v, q, self.ends[q]))
        self.ends[q] += 1

    def virtual_offset(self, v: int, q: int, offset: int) -> int:
        stay = next(stay for stay in self.layout.chains[v].stays if stay.partition == q and stay.holds(offset))
        return offset + stay.delta


@given(COUNTS, st.randoms(use_true_random=False))
def test_nothing_that_is_unread_is_left_out(counts: list[int], random: Random) -> None:
    """Wherever the members of the group stood: what they have not read stands at the new positions or behind them."""
    log = Log(counts, random)
    places = [(v, log.virtual_offset(v, q, offset), q, offset) for v, q, offset in log.records]
    committed = {v: random.randint(0, 1 + max((at for w, at, *_ in places if w == v), default=0)) for v in range(V)}
    positions = inherited_positions(log.layout, committed)
    unread = [(q, offset) for v, at, q, offset in places if at >= committed[v]]
    assert all(positions[q] <= offset for q, offset in unread)


@given(COUNTS, st.randoms(use_true_random=False))
def test_a_group_that_has_read_all_gets_nothing_twice(counts: list[int], random: Random) -> None:
    """It stands at the end of every physical partition, the retired ones included."""
    log = Log(counts, random)
    ends = {}
    for v, chain in enumerate(log.layout.chains):
        home = known(chain.home)
        ends[v] = log.ends[home.partition] + home.delta
    positions = inherited_positions(log.layout, ends)
    assert positions == {q: log.ends[q] for q in {segment.id.partition for segment in log.layout.segments}}


def test_a_virtual_partition_without_a_commit_counts_as_unread() -> None:
    """Nobody knows whether it is empty: what there is comes once more rather than never."""
    layout = Layout.created("orders", UUID(int=1), N, V)
    assert inherited_positions(layout, dict.fromkeys(range(1, V), 7)) == {0: 0, 1: 7}
