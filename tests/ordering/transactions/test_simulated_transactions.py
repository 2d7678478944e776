"""Transactions through simulated trouble: what is committed is read once and in order, and nothing else is read."""

from collections import Counter
from collections.abc import Iterator

import pytest

from kordon.proxy.ordering.streams import is_physical
from kordon.proxy.ordering.transactions.events import Marker, Witness
from kordon.testing.transactions.__main__ import main
from kordon.testing.transactions.rules import PLACES
from kordon.testing.transactions.run import Run, run

pytestmark = pytest.mark.slow

SEEDS = range(50)
DEEP_SEEDS = range(50, 20_000)
AT_ONCE = 900
"""Seeds of one deep test."""
REGRESSIONS = (1959, 3738, 3799, 4260, 5032, 9693)
"""Leases that ended and began again while a fence stood. Readers that were given what lies in a gap between two
segments. A producer that hung, by an unclean election, whose next witness was lost. A reader that came while a fence
stood, and saw behind its cut. Partitions that were added round Kordon, behind a late copy of AddPartitionsToTxn."""


def complaint(lived: Run) -> str:
    return "\n".join([f"seed {lived.seed}", *lived.world.story[-40:], *lived.wrong])


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_hold_through_trouble(seed: int) -> None:
    """Elections, sleeping workers, changes, zombies, forgers, retention: all readers agree on what was committed."""
    lived = run(seed)
    assert not lived.wrong, complaint(lived)


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_a_history_that_broke_a_promise_once_breaks_none_now(seed: int) -> None:
    """In the simulation, or in the product."""
    lived = run(seed)
    assert not lived.wrong, complaint(lived)


@pytest.mark.deep
@pytest.mark.parametrize("first", DEEP_SEEDS[::AT_ONCE])
def test_transactions_hold_through_much_trouble(first: int) -> None:
    """The same, for a night."""
    for seed in range(first, min(first + AT_ONCE, DEEP_SEEDS.stop)):
        lived = run(seed)
        assert not lived.wrong, complaint(lived)


def happenings(lived: Run) -> Iterator[str]:
    """What came about in a run."""
    cluster = lived.cluster
    for record in cluster.records:
        yield "forged" if record.is_forged else "acknowledged" if record.is_acked else "refused or given up"
        yield "lost" if record.was_lost else "kept"
        yield "to a physical partition" if is_physical(record.stream) else "to a virtual partition"
        if record.txn.outcome is not None:
            yield f"{'committed' if record.txn.outcome else 'aborted'} on {record.txn.protocol.value}"
        if record.may_show:
            yield "late, into the next transaction"
    for log in cluster.logs.values():
        for entry in log.entries:
            if isinstance(entry.what, Marker) and not entry.txns:
                yield "repeated marker"
            if isinstance(entry.what, Witness):
                yield "witness"
        if log.log_start:
            yield "retention"
    yield from ["moved"] * cluster.layout.epoch
    yield from ["another controller" for each in lived.world.story if each.endswith(" begins")][1:]
    yield from (("shown" if each.is_shown else "hidden") for reader in lived.readers for each in reader.reads)


def test_all_of_it_happens() -> None:
    """Promises that hold because nothing happens show nothing."""
    seen = Counter(each for seed in range(30) for each in happenings(run(seed)))
    assert {each for each in seen if seen[each] > 2} == {
        "acknowledged",
        "aborted on v1",
        "another controller",
        "aborted on v2",
        "committed on v1",
        "committed on v2",
        "forged",
        "hidden",
        "kept",
        "late, into the next transaction",
        "lost",
        "moved",
        "refused or given up",
        "repeated marker",
        "retention",
        "shown",
        "to a physical partition",
        "to a virtual partition",
        "witness",
    }
    assert seen["shown"] > 500


def test_a_seed_replays() -> None:
    """A failing one can be looked at again: it decides all that happens."""
    first, again = run(3), run(3)
    assert first.world.story == again.world.story
    assert [len(each.reads) for each in first.readers] == [len(each.reads) for each in again.readers]


def test_a_run_has_nothing_of_those_before_it() -> None:
    """A rule that one of them went without is kept by the next."""
    assert run(0, "STABLE-END").wrong
    assert not run(0).wrong


def test_a_seed_that_breaks_a_promise_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With its story."""
    assert main(["0"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["0-1", "--without", "STABLE-END"]) == 1
    assert capsys.readouterr().out.startswith("seed 0\n")


NOTICED_IN: dict[str, tuple[int, ...]] = {
    "OUTCOME-BEHIND: of its own epoch": (49,),
    "OUTCOME-BEHIND: a witness ends what stands before it": (2, 68),
    "OUTCOME-BEHIND: repetitions are passed over": (4, 8, 12),
    "PROVEN-ABSENCE": (0, 1, 2),
    "PROVEN-ABSENCE: or it waits for ever": (0, 1, 6),
    "PROVEN-ABSENCE: asked when the batch stood there": (3, 8, 11),
    "PROVEN-ABSENCE: read to an end of afterwards": (5, 7, 8),
    "STABLE-END": (0, 1, 2),
    "STABLE-END: the log is read first": (0, 1, 2),
    "TXN-WITNESS": (0, 1, 3),
    "TXN-WITNESS: one leader": (20, 41, 42),
    "TXN-WITNESS: dropped at the end": (0, 19, 27),
    "TXN-WITNESS: one layout, if a fence has not waited": (9, 13, 27),
    "OWN-TRANSACTION": (0, 1, 3),
    "OWN-TRANSACTION: of one principal": (0, 1, 3),
    "ASKED-LEADER: of the leader": (2, 5, 6),
    "ASKED-LEADER: the sequence that follows": (0, 2, 5),
    "DOUBLE-ADD": (2, 5, 9),
    "DOUBLE-ADD: announced before the fence": (5, 7, 10),
    "DOUBLE-ADD: when all know it": (94,),
    "OLDER-FIRST": (13, 27, 29),
    "OLDER-FIRST: until their coordinator says so": (1, 5, 6),
    "OLDER-FIRST: nobody who began later": (0, 1, 2),
    "FROZEN-READS": (0, 2, 3),
    "FROZEN-READS: nothing for who comes late": (145, 315, 5084),
    "COUNT-FENCE": (1, 5, 6),
}
"""By rule, the first seeds that break a promise without it (`python -m kordon.testing.transactions 0-999 --rules`)."""
PLAYED: tuple[str, ...] = (
    "PROVEN-ABSENCE: under one leader",
    "TXN-WITNESS: answers from before the end",
    "ASKED-LEADER: each time",
    "ASKED-LEADER: replicated",
    "DOUBLE-ADD: under one plan",
    "DOUBLE-ADD: under one plan, told by more than its number",
    "DOUBLE-ADD: under a lease",
    "COUNT-FENCE: the count alone does not say it",
    "OUTCOME-FIRST",
)
"""Rules that seeds notice seldom, or not at all. There are plays of them in `test_histories_of_transactions.py`."""
LOSES: dict[str, str] = {
    "OWN-TRANSACTION": "shown though not committed",
    "COUNT-FENCE": "stands where its key did not live",
    "OLDER-FIRST: nobody who began later": "which began later",
}
"""By rule, the promise that has to be among the broken ones."""


def test_each_rule_is_noticed_somewhere() -> None:
    """In some seeds, or in a play."""
    assert {*NOTICED_IN, *PLAYED} == {*PLACES}
    assert all(NOTICED_IN.values())


@pytest.mark.parametrize("rule", NOTICED_IN)
def test_without_one_of_its_rules_transactions_break_promises(rule: str) -> None:
    """The simulation sees what rules are for: with all of them the same seeds keep every promise, here or above."""
    for seed in NOTICED_IN[rule]:
        broken = run(seed, rule).wrong
        assert any(LOSES.get(rule, "") in each for each in broken), f"{seed} does not notice that {rule} is missing"
        assert seed in SEEDS or not run(seed).wrong
