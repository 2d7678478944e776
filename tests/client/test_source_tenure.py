"""What a member may do with source partitions from one assignment to the next (docs/rules.md, Sources)."""

import pytest

from kordon.client.sources.tenure import NotOwned, Tenure, TenureStage
from kordon.codecs.source_points import Point

ME = "a" * 32
OTHER = "b" * 32
THIRD = "c" * 32


def begun(*settled: Point) -> Tenure:
    """One whose id is on record."""
    tenure = Tenure(ME, range(len(settled)))
    tenure.begin(dict(enumerate(settled)))
    tenure.claimed()
    return tenure


def test_ids_on_record_of_its_partitions_are_fenced() -> None:
    """Each once, and neither its own nor those of other partitions (DEAD-FENCED)."""
    tenure = Tenure(ME, [0, 1, 2, 3])
    records = {
        0: Point(1, "x", OTHER),
        1: Point(1, "x", OTHER),
        2: Point(1, "x", ME),
        3: Point(owner=THIRD),
        4: Point(1, "x", "d" * 32),
    }
    assert tenure.to_fence(records) == {OTHER, THIRD}
    assert tenure.to_fence({0: Point(1, "x")}) == set()


def test_its_id_is_on_record_before_it_writes() -> None:
    """Of each partition, with the point that stands there (OWNER-ON-RECORD)."""
    tenure = Tenure(ME, [0, 1])
    claims = tenure.begin({0: Point(7, "x", OTHER, 5)})
    assert claims == {0: Point(7, "x", ME, 5), 1: Point(owner=ME)}
    with pytest.raises(NotOwned):
        tenure.next_points({0: "y"}, 9)
    tenure.claimed()
    assert tenure.points == {0: "x", 1: None}
    assert tenure.next_points({0: "y"}, 9) == {0: Point(8, "y", ME, 9)}


def test_numbers_rise_by_one_with_each_commit() -> None:
    """And not with what is aborted (POINT-NUMBER)."""
    tenure = begun(Point(7, "x"), Point())
    for number, committed in ((8, False), (8, True), (9, True)):
        assert tenure.next_points({0: "y"}, 0)[0].number == number
        tenure.ended(committed=committed)
    assert tenure.next_points({1: "z"}, 0) == {1: Point(1, "z", ME)}
    assert tenure.points == {0: "y", 1: None}


def test_others_partitions_are_refused() -> None:
    """By their number."""
    with pytest.raises(NotOwned) as error:
        begun(Point()).next_points({0: "x", 5: "y"}, 0)
    assert error.value.args == (5,)


def test_it_takes_its_id_off_the_record() -> None:
    """With the last committed points, and may use the id again then (ID-ONCE)."""
    tenure = begun(Point(7, "x"), Point())
    tenure.next_points({0: "y"}, 3)
    tenure.ended(committed=True)
    assert tenure.release() == {0: Point(8, "y", "", 3), 1: Point()}
    assert tenure.keeps_id
    assert tenure.stage is TenureStage.OVER
    with pytest.raises(NotOwned):
        tenure.next_points({0: "z"}, 0)


def test_whoever_does_not_know_what_is_committed_releases_nothing() -> None:
    """What it knows may be older than what is on record, and its id may be fenced (ID-ONCE)."""
    pending = begun(Point(7, "x"))
    pending.next_points({0: "y"}, 3)
    lost = begun(Point(7, "x"))
    lost.lose_track()
    claiming = Tenure(ME, [0])
    claiming.begin({})
    for tenure in (pending, lost, claiming):
        assert tenure.release() == {}
        assert not tenure.keeps_id


def test_an_id_that_was_never_on_record_is_kept() -> None:
    """A standby's, and that of a member whose partitions went on before it had read of them."""
    reading = Tenure(ME, [0])
    standby = begun()
    for tenure in (reading, standby):
        assert tenure.release() == {}
        assert tenure.keeps_id


def test_without_transactions_nobody_is_on_record() -> None:
    """There is nothing to fence, and nothing to take off."""
    tenure = Tenure("", [0, 1])
    assert tenure.begin({0: Point(7, "x")}) == {}
    tenure.claimed()
    assert tenure.next_points({0: "y"}, 1) == {0: Point(8, "y", "", 1)}
    tenure.ended(committed=True)
    assert tenure.release() == {}
    assert tenure.keeps_id
