"""Callbacks around a key's move: whoever had the key has flushed its state before the next one loads it."""

import json
from pathlib import Path

import pytest

from kordon.testing.order.checker import check, check_folder
from kordon.testing.order.findings import Anomaly, Verdict
from kordon.testing.order.history import (
    Acknowledged,
    Assigned,
    Ended,
    KeyAssigned,
    KeyMaybeRevoked,
    Processed,
    Read,
    Revoked,
)

# The key has sequences 0 and 1 in partition 0, which splits at offset 2, and goes on in partition 3.
FIRST, SECOND, THIRD = (Processed(0, p, o, "k", s) for s, (p, o) in enumerate([(0, 0), (0, 1), (3, 0)]))
OWNED = [("a", Assigned(1, (0,))), ("b", Assigned(2, (3,)))]


def told(*events: tuple[str, Read]) -> Verdict:
    """Checks a group whose member a has partition 0 and b has partition 3; time is an event's place."""
    sent = [Acknowledged(n, n, "k", n, n, each.partition, each.offset) for n, each in enumerate((FIRST, SECOND, THIRD))]
    in_order = [*OWNED, *events]
    read = [(member, event._replace(time_us=time_us)) for time_us, (member, event) in enumerate(in_order, 1)]
    return check([*(("one", each) for each in sent), ("one", Ended(9))], {"red": read})


def found(verdict: Verdict) -> set[Anomaly]:
    """Returns what is wrong with callbacks; each of these histories delivers all records in order."""
    assert verdict.findings.found() <= {Anomaly.UNFLUSHED, Anomaly.UNLOADED}
    return verdict.findings.found()


def flushed(offset: int) -> tuple[str, Read]:
    """Member a has returned from maybe_revoked of partition 0."""
    return "a", KeyMaybeRevoked(0, ((0, offset),))


LOADED = ("b", KeyAssigned(0, (3,)))
GOT = [("a", FIRST), ("a", SECOND)]


def test_state_that_is_flushed_and_then_loaded_is_handed_over() -> None:
    """maybe_revoked(A) has returned, assigned(B) is called, B gets the record."""
    verdict = told(*GOT, flushed(2), LOADED, ("b", THIRD))
    assert found(verdict) == set()
    account = verdict.accounts["red"]
    assert (account.flushes, account.loads, account.moved) == (1, 1, 1)


def test_record_that_comes_before_the_former_member_has_flushed_is_unflushed() -> None:
    """maybe_revoked is on its way, or was never called."""
    assert found(told(*GOT, LOADED, ("b", THIRD), flushed(2))) == {Anomaly.UNFLUSHED}


def test_flush_of_less_than_was_delivered_is_unflushed() -> None:
    """The callback was for the position before the key's last record."""
    assert found(told(("a", FIRST), flushed(1), ("a", SECOND), LOADED, ("b", THIRD))) == {Anomaly.UNFLUSHED}


def test_state_loaded_before_it_was_flushed_is_unloaded() -> None:
    """assigned(B) was called while maybe_revoked(A) was still at work, so B has an old state."""
    assert found(told(*GOT, LOADED, flushed(2), ("b", THIRD))) == {Anomaly.UNLOADED}


def test_record_without_a_load_is_unloaded() -> None:
    """B was not told that keys come to it."""
    assert found(told(*GOT, flushed(2), ("b", THIRD))) == {Anomaly.UNLOADED}


def test_partition_that_was_given_up_needs_no_flush_of_keys() -> None:
    """Its owner was asked to give it up (on_partitions_revoked), and flushed all then."""
    given_up = ("a", Revoked(0, (0,), lost=False))
    assert found(told(*GOT, flushed(1), given_up, LOADED, ("b", THIRD))) == set()


def test_partition_that_another_member_has_got_needs_no_flush_of_keys() -> None:
    """Its owner was killed: what it did not flush is gone, and is delivered again from the last commit on."""
    assert found(told(*GOT, flushed(1), ("c", Assigned(0, (0,))), LOADED, ("b", THIRD))) == set()


def test_load_before_the_partition_changed_hands_is_unloaded() -> None:
    """B loaded, and only then did A give up what it had of the key."""
    given_up = ("a", Revoked(0, (0,), lost=False))
    assert found(told(*GOT, LOADED, given_up, ("b", THIRD))) == {Anomaly.UNLOADED}


def test_delivery_again_after_a_rewind_is_not_judged() -> None:
    """A goes back after the handover: the state that its records meet then is not what B has."""
    verdict = told(*GOT, flushed(2), LOADED, ("b", THIRD), ("c", Assigned(0, (0,))), ("c", SECOND))
    assert found(verdict) == set()
    assert verdict.accounts["red"].moved == 1


def test_member_that_has_both_partitions_hands_nothing_over() -> None:
    """The state stays where it is."""
    verdict = told(*GOT, ("a", Assigned(0, (3,))), ("a", KeyAssigned(0, (3,))), ("a", THIRD))
    assert found(verdict) == set()
    assert verdict.accounts["red"].moved == 0


def test_groups_without_such_callbacks_are_not_judged() -> None:
    """Stock clients know nothing of keys that move."""
    assert found(told(*GOT, ("b", THIRD))) == set()


@pytest.mark.parametrize("order", ["flush first", "load first"])
def test_callbacks_are_read_from_files(tmp_path: Path, order: str) -> None:
    """Each member writes its own, and times put them in order."""
    times = (5, 6) if order == "flush first" else (6, 5)
    write(tmp_path, "one", {"producer": "one"}, [
        {"e": "acked", "t": n, "n": n, "k": "k", "s": n, "sent": n, "p": p, "o": o}
        for n, (p, o) in enumerate([(0, 0), (0, 1), (3, 0)])
    ])  # fmt: skip
    write(tmp_path, "a", {"group": "red", "member": "a"}, [
        {"e": "assigned", "t": 1, "p": [0]},
        {"e": "processed", "t": 3, "p": 0, "o": 0, "k": "k", "s": 0},
        {"e": "processed", "t": 4, "p": 0, "o": 1, "k": "k", "s": 1},
        {"e": "key_maybe_revoked", "t": times[0], "at": [[0, 2]]},
    ])  # fmt: skip
    write(tmp_path, "b", {"group": "red", "member": "b"}, [
        {"e": "assigned", "t": 2, "p": [3]},
        {"e": "key_assigned", "t": times[1], "p": [3]},
        {"e": "processed", "t": 7, "p": 3, "o": 0, "k": "k", "s": 2},
    ])  # fmt: skip
    assert found(check_folder(tmp_path)) == (set() if order == "flush first" else {Anomaly.UNLOADED})


def write(folder: Path, name: str, whose: dict[str, str], events: list[dict[str, object]]) -> None:
    lines = [whose, *events, {"e": "ended", "t": 99}]
    (folder / f"{name}.history").write_text("".join(json.dumps(line) + "\n" for line in lines))
