"""What a plan says of the transactions that a change would wait for."""

from kordon.proxy.commands.topics_plan import older_lines
from kordon.proxy.kafka.transaction_coordinators import OpenTransaction


def test_a_plan_names_the_open_transactions() -> None:
    """OLDER-FIRST: some of many, how long at most, and what ends one. Ids are text of others."""
    assert older_lines([], 0.0) == ((), [])
    names = ["f", "e", "d", "c", "b", "a\x1b[2K"]
    found = [OpenTransaction(name, n, "Ongoing", 1_000 * n, 60_000, {}) for n, name in enumerate(names)]
    (line,), rows = older_lines(found, 5.5)
    assert line.startswith("It waits for open transactions of a\\u001b[2K, b, c, d, e and 1 more")
    assert "at most 60 s." in line
    assert "Admin.fenceProducers" in line
    assert rows[0] == {"transactional_id": "a\x1b[2K", "state": "Ongoing", "seconds_left": 59.5}
    assert older_lines(found, 99.0).facts[0]["seconds_left"] == 0.0
