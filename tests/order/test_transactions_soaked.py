"""What a soak of transactions counts; the run itself, shortened, is among the deep tests."""

from collections import Counter
from pathlib import Path

import pytest

from kordon.testing.order.history import recorded
from kordon.testing.order.soak import Result, Soak, Told, longest_waits, soak
from kordon.testing.order.transact import TRANSACTIONS_A_LIFE
from kordon.testing.order.transactional import CLIENTS, Outcome
from kordon.testing.order.transactions import check_transactions

SECOND = 1_000_000


def write_life(folder: Path, life: int, *times: tuple[int, int]) -> None:
    """Writes down transactions by the seconds in which they begin and are over; the last one may never be."""
    with recorded(folder, f"writer.{life}", producer="writer") as recorder:
        for place, (begun, over) in enumerate(times):
            number = life * TRANSACTIONS_A_LIFE + place
            recorder.note("begun", begun * SECOND, x=number, n=place, r=[["writer-0", place]])
            if over:
                recorder.note("over", over * SECOND, x=number, outcome="committed")


def test_longest_pause_is_that_of_one_life(tmp_path: Path) -> None:
    """What lies between a killed life and the next one is the kill's, and no pause."""
    write_life(tmp_path, 0, (10, 12), (12, 17), (17, 0))
    write_life(tmp_path, 1, (90, 93))
    assert longest_waits(tmp_path) == {"writer": 5.0}


def test_first_transaction_of_a_life_counts(tmp_path: Path) -> None:
    write_life(tmp_path, 0, (10, 30), (30, 31))
    assert longest_waits(tmp_path) == {"writer": 20.0}


def test_result_says_all_in_one_line() -> None:
    told = Told(Counter({"writers": 6, "changes": 3}), 1, [2.5, 9.0, 4.0])
    outcome = Outcome(check_transactions([], []), [], Path())
    outcome.checked.outcomes["java", "committed"] = 40
    outcome.checked.outcomes["java", "aborted"] = 7
    result = Result(Soak(clients=["java"], seconds=60), told, outcome, {"java": 3.25}, "0: pass")
    assert result.passed
    assert result.line() == (
        "Kafka 4.3.0, 1 broker(s), seed 1, 60 s: by client committed/aborted/unknown java 40/7/0 (pause 3.2 s);"
        " killed: 6 writers; 3 changes (1 asked for again), the longest 9.0 s; anomalies 0; audit: 0: pass"
    )


def test_change_that_fails_is_a_failure() -> None:
    told = Told(problems=["a change failed after 3 s"])
    assert not Result(Soak(), told, Outcome(check_transactions([], []), [], Path()), {}, "none").passed


@pytest.mark.deep
@pytest.mark.broker
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Soak(clients=CLIENTS, seconds=120), id="all-clients"),
        pytest.param(
            Soak(
                brokers=3,
                clients=["librdkafka", "java"],
                seconds=120,
                hurts_every=25,
                proxies_every=0,
                changes_every=60,
            ),
            id="brokers",
        ),
    ],
)
def test_transactions_keep_their_promises_while_all_around_them_is_killed(plan: Soak) -> None:
    result = soak(plan)
    assert result.told.problems == []
    assert result.outcome.told == "", result.outcome.folder
    assert result.told.counts["writers"] > 0
    assert result.told.change_seconds
    for client in plan.clients:
        assert result.outcome.checked.outcomes[client, "committed"] > 20
