"""Findings that stand: of each topic one of each kind, whoever has found them."""

from __future__ import annotations

from kordon.proxy.ordering.records import FindingRecord, Unreadable, dump, load
from kordon.proxy.ordering.standing_findings import StandingFindings

COMPACTED = FindingRecord("compacted_without_janitor", "orders", "compacted", 5)
UNVERIFIED = FindingRecord("transactions_unverified", "orders", "unverified", 6)
LOST = FindingRecord("records_lost", "orders", "lost", 7)
MANAGED = frozenset({"orders", "plain"})


def standing(records: dict[str, FindingRecord | None]) -> StandingFindings:
    """What stands when these records were read."""
    found = StandingFindings()
    for key, value in records.items():
        found.take(key, value)
    return found


def write(found: StandingFindings, records: dict[str, FindingRecord | None]) -> dict[str, FindingRecord | None]:
    """Takes in what is written; returns it."""
    for key, value in records.items():
        found.take(key, value)
    return records


def test_findings_of_several_kinds_stand_side_by_side() -> None:
    """Each has its own key; the end of one leaves the others."""
    found = StandingFindings()
    for each in (UNVERIFIED, COMPACTED, LOST):
        write(found, found.told(each))
    assert list(found) == [COMPACTED, UNVERIFIED, LOST]
    over = write(found, found.changes("transactions_unverified", {"orders": None}, MANAGED))
    assert over == {"finding/orders/transactions_unverified": None}
    assert list(found) == [COMPACTED, LOST]


def test_what_stands_is_told_once_and_what_is_well_is_taken_back_once() -> None:
    found = StandingFindings()
    key, kind = "finding/orders/compacted_without_janitor", COMPACTED.kind
    assert write(found, found.changes(kind, {"orders": COMPACTED}, MANAGED)) == {key: COMPACTED}
    later = FindingRecord(COMPACTED.kind, "orders", COMPACTED.text, 99)
    assert found.changes(kind, {"orders": later, "plain": None}, MANAGED) == {}
    assert write(found, found.changes(kind, {"orders": None}, MANAGED)) == {key: None}
    assert found.changes(kind, {"orders": None}, MANAGED) == {}


def test_another_text_is_told() -> None:
    """One more broker does not verify: who reads the finding has to know of it."""
    found = standing({"finding/orders/transactions_unverified": UNVERIFIED})
    more = FindingRecord(UNVERIFIED.kind, "orders", "unverified by two", 8)
    assert list(found.changes(UNVERIFIED.kind, {"orders": more}, MANAGED).values()) == [more]


def test_of_a_topic_that_was_not_looked_at_nothing_changes() -> None:
    found = standing({"finding/orders/compacted_without_janitor": COMPACTED})
    assert found.changes(COMPACTED.kind, {"plain": None}, MANAGED) == {}


def test_a_topic_that_is_not_managed_any_more_has_nothing_of_this_kind() -> None:
    """It was let go by a controller of a former version, which leaves it."""
    found = standing({"finding/orders/compacted_without_janitor": COMPACTED, "finding/orders/records_lost": LOST})
    assert found.changes(COMPACTED.kind, {}, {"plain"}) == {"finding/orders/compacted_without_janitor": None}


def test_what_a_former_version_has_found_is_known_and_taken_back() -> None:
    """It has one key for all kinds of a topic."""
    found = standing({"finding/orders": COMPACTED})
    assert found.changes(COMPACTED.kind, {"orders": COMPACTED}, MANAGED) == {}
    assert found.changes(UNVERIFIED.kind, {"orders": None}, MANAGED) == {}
    assert found.changes(COMPACTED.kind, {"orders": None}, MANAGED) == {"finding/orders": None}
    again = FindingRecord(COMPACTED.kind, "orders", "in other words", 9)
    assert write(found, found.told(again)) == {
        "finding/orders": None,
        "finding/orders/compacted_without_janitor": again,
    }
    assert list(found) == [again]


def test_a_finding_is_about_what_its_key_says() -> None:
    """Nobody puts words about one topic into another one's place, nor one kind into another one's."""
    for key in ("finding/orders", "finding/orders/records_lost"):
        assert load(key, dump(LOST)) == LOST
    for rest in ("plain", "plain/records_lost", "orders/not_mended", "orders/records_lost/x", "orders/"):
        assert isinstance(load(f"finding/{rest}", dump(LOST)), Unreadable), rest
