"""The comparison of groups that work on slow records counts what each way handles, and each way works."""

from __future__ import annotations

import pytest

from kordon.bench import results
from kordon.bench.peers import BLOCKED, COOPERATIVE, WAYS, Handled, measure_groups
from kordon.bench.plan import PROFILES, Groups
from kordon.bench.report import report
from kordon.bench.results import Measurement, Results
from kordon.bench.verdicts import verdicts
from kordon.testing.cluster import Cluster

QUICK = Groups(4_000, 100, 2, 2, 5, seconds=1, blocked_seconds=1, rounds=1)


def test_what_is_begun_after_a_later_one_of_its_key_is_an_inversion() -> None:
    """Others keep their own order, and those that may be blocked are told apart."""
    handled = Handled()
    for key, number in ((b"a", 1), (BLOCKED, 0), (b"a", 4), (b"a", 2), (b"a", 4), (BLOCKED, 3)):
        handled.begin(key, number)
    assert handled.told() == {"records": 6, "others": 4, "inversions": 1, "repeats": 1}
    assert not handled.holds(BLOCKED)
    handled.is_blocked = True
    assert handled.holds(BLOCKED)
    assert not handled.holds(b"a")


def results_of(case: str, **figures: float) -> Results:
    """Results of one way, and of acknowledgements."""
    made = Results("test", "2026-01-01", 1, "base", "latency", "idle", "idle over TLS", {}, cooperative=(case, "acks"))
    made.measurements.append(Measurement(case, COOPERATIVE, 1, figures))
    costs = {results.ACKNOWLEDGED_US: 2.1, results.COMMIT_BYTES: 20_002.0, results.RANGES: 10_000.0}
    made.measurements.append(Measurement("acks", results.SDK, 1, costs | {results.TAKEN_ON: 5.0}))
    return made


@pytest.mark.parametrize(("figure", "good", "bad"), [("records_per_s", 20_000.0, 19_999.0), ("inversions", 0.0, 1.0)])
def test_groups_are_judged(figure: str, good: float, bad: float) -> None:
    """By records a second where there are as many as the bar asks for, and by their order."""
    case = PROFILES["full"].cooperative[0].name
    for value, is_reached in ((good, True), (bad, False)):
        told = verdicts(results_of(case, **{figure: value}))
        assert [each.reached for each in told if each.what.startswith(COOPERATIVE)] == [is_reached]
    told = verdicts(results_of(QUICK.name, records_per_s=1.0))
    assert not [each for each in told if each.what.startswith(COOPERATIVE)]


def test_a_blocked_key_and_acknowledgements_are_judged_and_shown() -> None:
    """The others keep 95 %; an acknowledgement takes 2 µs, and a commit 24 KB."""
    case = PROFILES["full"].cooperative[1].name
    made = results_of(case, others_keep=0.94, records_per_s=4_900.0, inversions=0.0, repeats=3.0)
    told = {each.what: each.reached for each in verdicts(made)}
    assert told == {
        f"{COOPERATIVE}: records/s of other keys, {case}": False,
        f"{COOPERATIVE}: inversions, {case}": True,
        "CPU µs of each of acks": False,
        "bytes of a commit behind acks": True,
        "records started behind acks": True,
    }
    page = report(made, "picture.svg")
    assert f"| {COOPERATIVE} | 4900 (4900-4900) | 0 (0-0) | 3 (3-3) | 0.94 (0.94-0.94) |" in page
    assert "Connections and sizes" not in page
    assert "| SDK | 2.10 (2.10-2.10) | 10000 (10000-10000) | 20002 (20002-20002) | 5 (5-5) |" in page


@pytest.mark.parametrize(("rate", "inversions", "reached"), [(60.0, 0.0, (True, True)), (59.0, 1.0, (False, False))])
def test_an_ordered_share_group_is_judged_beside_one_of_brokers(
    rate: float, inversions: float, reached: tuple[bool, bool]
) -> None:
    """It keeps 0.6 of the records a second, and has no inversion."""
    made = results_of(QUICK.name)
    for contender, figure in ((results.SHARE_GROUP, 100.0), (results.ORDERED_SHARE_GROUP, rate)):
        figures = {results.RECORDS: figure, results.INVERSIONS: inversions}
        made.measurements.append(Measurement(QUICK.name, contender, 1, figures))
    told = [each.reached for each in verdicts(made) if each.what.startswith(results.ORDERED_SHARE_GROUP)]
    assert tuple(told) == reached


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.programs
def test_each_way_works_and_keeps_the_order_that_it_promises(open_cluster: Cluster) -> None:
    """Through a Kordon that keeps what is done offset by offset, and without it."""
    told = {each.contender: each.figures for each in measure_groups([QUICK], open_cluster.bootstrap(), lambda *_: None)}
    assert [*told] == [each.name for each in WAYS]
    for name, figures in told.items():
        assert figures[results.RECORDS] > 0, name
        assert figures[results.OTHERS_KEEP] > 0, name
        assert not figures[results.INVERSIONS] or name.startswith("share group"), name
