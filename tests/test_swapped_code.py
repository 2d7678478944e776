"""A line of a module that is imported is changed in place, for all who hold its functions."""

import importlib.util
from collections.abc import Callable
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


@pytest.mark.parametrize(
    ("old", "new", "says", "said"),
    [
        ("count * 2", "count * 3", lambda made: made.Counted(4).doubled, 12),
        ("each > self.count", "each >= self.count", lambda made: made.Counted(4).over([3, 4]), [4]),
        ("return 5", "return 6", lambda made: made.cached(), 6),
        ("value + more", "value - more", lambda made: made.adder(10)(1), -9),
        ("self.count = count", "self.count = 7", lambda made: made.Counted().count, 7),
    ],
)
def test_a_function_does_what_the_other_text_says(
    module: ModuleType, old: str, new: str, says: Callable[[ModuleType], object], said: object
) -> None:
    """Of a class, behind a decorator, and within another one; whoever holds one has no other."""
    held = module.adder
    assert swap(module, TEXT, TEXT.replace(old, new))
    assert says(module) == said
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
