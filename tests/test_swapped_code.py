"""A line of a module that is imported is changed in place, for all who hold its functions."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from kordon.testing.swapped_code import swap

TEXT = """
from functools import cache

LIMIT = 1

class Counted:
    least = 2

    def __init__(self, count=3):
        self.count = count

    @property
    def doubled(self):
        return self.count * 2

    def over(self, values):
        return [each for each in values if each > self.count]

@cache
def cached():
    return 5

def adder(more):
    def add(value):
        return value + more
    return add

ADD = adder(10)
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    """What the text makes."""
    file = tmp_path / "counted_for_a_test.py"
    file.write_text(TEXT)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def all_said(module: ModuleType) -> list[object]:
    """What each of its functions says."""
    counted = module.Counted(4)
    return [counted.doubled, counted.over([3, 4]), module.cached(), module.adder(10)(1), module.Counted().count]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("count * 2", "count * 3", [12, [], 5, 11, 3]),
        ("each > self.count", "each >= self.count", [8, [4], 5, 11, 3]),
        ("return 5", "return 6", [8, [], 6, 11, 3]),
        ("value + more", "value - more", [8, [], 5, -9, 3]),
        ("self.count = count", "self.count = count + 1", [10, [], 5, 11, 4]),
    ],
)
def test_a_function_does_what_the_other_text_says(module: ModuleType, old: str, new: str, said: list[object]) -> None:
    """Of a class, behind a decorator, and within another one; whoever holds one has no other."""
    held = module.adder
    assert swap(module, TEXT, TEXT.replace(old, new))
    assert all_said(module) == said
    assert module.adder is held


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 1", "LIMIT = 2"),
        ("least = 2", "least = 3"),
        ("count=3", "count=4"),
        ("ADD = adder(10)", "ADD = adder(11)"),
        ("@property\n", "\n"),
        ("return 5", "return 5  # the same"),
    ],
)
def test_what_was_done_when_it_was_imported_is_not_changed(module: ModuleType, old: str, new: str) -> None:
    """Whoever asks is told so, and imports it anew."""
    assert not swap(module, TEXT, TEXT.replace(old, new))
    assert (module.LIMIT, module.Counted.least, module.Counted().count, module.ADD(1)) == (1, 2, 3, 11)
