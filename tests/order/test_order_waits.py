"""How long records waited for a group is taken from what clients wrote down, by what was done meanwhile."""

from pathlib import Path

import pytest

from kordon.testing.order.history import Done, note_action, recorded
from kordon.testing.order.waits import BEFORE, longest_us, waits_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Histories of a record in each of three phases, and of one that nobody has got."""
    with recorded(tmp_path, "p", producer="p") as producer:
        for sequence, acknowledged in enumerate((10, 110, 250, 300)):
            producer.note("acked", acknowledged, n=sequence, k="p-0", s=sequence, sent=1, p=2, o=sequence)
        producer.note("failed", 301, n=4, k="p-0", s=4, sent=1, error="TIMED_OUT", refused=False)
    with recorded(tmp_path, "g-0.0", group="g", member="g-0.0") as member:
        for sequence, got in ((0, 90), (1, 105), (2, 290), (4, 300)):
            member.note("processed", got, p=2, o=sequence, k="p-0", s=sequence)
    with recorded(tmp_path, "g-1.0", group="g", member="g-1.0") as member:
        member.note("processed", 700, p=2, o=2, k="p-0", s=2)
    note_action(tmp_path, Done(100, 190, "grow"))
    note_action(tmp_path, Done(200, 210, "shrink"))
    return tmp_path


def test_a_record_waits_from_its_acknowledgement_until_any_member_has_got_it_first(folder: Path) -> None:
    """One that is delivered before its producer hears of it has not waited; one that was not acknowledged is none."""
    found = {name: each.all_us for name, each in waits_of(folder)["g"].items()}
    assert found == {BEFORE: [80], "grow": [0], "shrink": [40]}


def test_the_longest_wait_is_of_what_clients_do_once_they_are_at_work(folder: Path) -> None:
    """Until they have joined, records wait for that."""
    assert longest_us(waits_of(folder)) == 40
