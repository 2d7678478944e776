"""What a file of policies may say, and what is said of one that cannot be used."""

from datetime import time
from pathlib import Path

import pytest

from kordon.proxy.commands.autoscale_policy import Policies
from kordon.proxy.commands.model_file import MOST_FILE_BYTES, FileUnusable, load_model

SOUND = """\
interval: 15s
topics:
  orders:
    minimum: 3
    maximum: 24
    bytes_per_second: 5MiB/s
    lag: 100000
    shrink_after: 15m
    hours: ["06:00-09:30", "22:00-02:00"]
"""


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{at}: &a{at} [*a{at - 1}, *a{at - 1}]\n" for at in range(1, 60))
"""A billion laughs, and a billion times as many."""


def load(folder: Path, text: str) -> Policies:
    file = folder / "policies.yaml"
    file.write_text(text)
    return load_model(file, Policies)


def test_units_and_hours_are_read(tmp_path: Path) -> None:
    """Times as 15m, sizes as 5MiB, hours over midnight."""
    policies = load(tmp_path, SOUND)
    orders = policies.topics["orders"]
    assert (policies.interval, orders.shrink_after, orders.grow_after, orders.cool_down) == (15, 900, 60, 300)
    assert orders.bytes_per_second == 5 * 2**20
    morning, night = orders.hours
    assert [morning.holds(time(6)), morning.holds(time(9, 30))] == [True, False]
    assert [night.holds(time(23)), night.holds(time(1, 59)), night.holds(time(12))] == [True, True, False]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("maximum: 24", "maximum: 2", "topics.orders: maximum (2) is below minimum (3)"),
        ("minimum: 3", "minimum: 0", "topics.orders.minimum: Input should be greater than or equal to 1"),
        ("lag: 100000", "lags: 1", "topics.orders.lags: there is no such option"),
        ("5MiB/s", "5 parrots", "topics.orders.bytes_per_second: Input should be a valid number"),
        ("22:00-02:00", "22-2", "topics.orders.hours.1: hours are written as 22:00-06:00 (UTC)"),
        ("22:00-02:00", "25:00-02:00", "topics.orders.hours.1: hours are written as 22:00-06:00 (UTC)"),
        ("shrink_after: 15m", "shrink_after: -1", "topics.orders.shrink_after: Input should be greater than"),
        ("interval: 15s", "interval: .nan", "interval: Input should be"),
        (SOUND, "topics: {}", "topics: Dictionary should have at least 1 item"),
        (SOUND, "", "options are expected here"),
        (SOUND, "topics: 5", "topics: names are expected here"),
        (SOUND, "a: [", "policies.yaml:1:5: "),
        (SOUND, "a: 2026-13-45", "not readable as YAML"),
        (SOUND, f"{SOUND}  orders:\n", "policies.yaml:10:3: orders is given twice"),
        ("minimum: 3", "minimum: 3\n    minimum: 4", "policies.yaml:5:5: minimum is given twice"),
        (SOUND, BOMB, "policies.yaml:2:10: aliases are not allowed"),
        (SOUND, "topics: &all\n  orders: *all\n", "policies.yaml:2:11: aliases are not allowed"),
        (SOUND, "[" * 100_000, "not readable as YAML"),
        (SOUND, "x" * (MOST_FILE_BYTES + 1), "it has more than 1048576 bytes"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    """With the file and the place in it."""
    with pytest.raises(FileUnusable) as raised:
        load(tmp_path, SOUND.replace(before, after))
    assert str(raised.value).startswith(f"{tmp_path / 'policies.yaml'}:")
    assert said in str(raised.value)


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """As any other mistake."""
    with pytest.raises(FileUnusable, match=r"none\.yaml: no such file or directory"):
        load_model(tmp_path / "none.yaml", Policies)
