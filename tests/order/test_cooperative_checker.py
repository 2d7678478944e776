"""What the checker of groups that finish records one by one sees in their histories."""

import json
from pathlib import Path
from typing import Any

import pytest

from kordon.testing.order.cooperative import Judged, judge

AT = {"p": 3, "o": 17, "k": "a", "s": 0}
COVERED = {"at": [[3, 12, [[14, 18]]]]}


def judged(folder: Path, *events: tuple[str, str, dict[str, Any]]) -> Judged:
    """Judges histories of members, of one event each millisecond."""
    for time_us, (member, event, told) in enumerate(events):
        with (folder / f"{member}.cooperative").open("a") as file:
            file.write(json.dumps({"e": event, "t": 1_000 * time_us, **told}) + "\n")
    return judge(folder)


def test_a_record_that_nobody_was_told_to_be_done_may_come_again(tmp_path: Path) -> None:
    """Its member was killed before its acknowledgement was answered: it counts as a repeat."""
    found = judged(
        tmp_path, ("one", "started", AT), ("one", "finished", AT), ("two", "started", AT), ("two", "finished", AT)
    )
    assert (dict(found.counts), found.finished, found.repeats, found.accepted) == ({}, 1, 1, 0)


@pytest.mark.parametrize("told", [("accepted", {"p": 3, "o": 17}), ("committed", COVERED)], ids=lambda told: told[0])
def test_what_was_accepted_or_committed_is_not_begun_again(tmp_path: Path, told: tuple[str, dict[str, Any]]) -> None:
    """A member was told that it is done."""
    found = judged(tmp_path, ("one", "started", AT), ("one", "finished", AT), ("one", *told), ("two", "started", AT))
    assert dict(found.counts) == {"again": 1}


def test_a_key_is_in_one_hand_and_in_order(tmp_path: Path) -> None:
    """The next record of a key is begun while the one before is not finished: both are said of it."""
    later = AT | {"o": 18, "s": 1}
    found = judged(
        tmp_path, ("one", "started", AT), ("two", "started", later), ("two", "finished", later), ("one", "finished", AT)
    )
    assert dict(found.counts) == {"inversion": 1, "overlap": 1}
