"""The list of mutations that `make mutate` tries: it does not rot."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kordon.testing import mutations
from kordon.testing.forked_pytest import Replaced, Run
from kordon.testing.mutations import ROOT, Mutation, VanishedError, listed, main
from kordon.testing.noticed_before import KEPT

LISTED = listed()
TEXT = """\
class Lines:
    def first(self):
        return 1

    def second(self):
        return 1
"""


@pytest.mark.parametrize("mutation", LISTED, ids=lambda each: f"{each.area}: {each.breaks}")
def test_the_line_stands_where_the_list_says_once_and_its_test_is_there(mutation: Mutation) -> None:
    """Whoever changes the line changes its row, and looks whether the test still notices."""
    before = (ROOT / mutation.file).read_text()
    after = mutation.applied(before)
    assert after != before
    compile(after, mutation.file, "exec")
    file, _, name = mutation.test.partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


def test_no_mutation_is_listed_twice() -> None:
    """Each is another line, or another change of one."""
    assert Counter((each.file, each.within, each.old, each.new) for each in LISTED).most_common(1)[0][1] == 1
    assert Counter(each.breaks for each in LISTED).most_common(1)[0][1] == 1


def test_a_line_is_changed_in_the_function_that_is_named() -> None:
    """Where the file has it more than once."""
    changed = Mutation("any", "any", "any.py", "return 1", "return 2", "any", "Lines.second").applied(TEXT)
    assert changed == TEXT.removesuffix("return 1\n") + "return 2\n"


@pytest.mark.parametrize(
    ("old", "within"), [("return 1", ""), ("return 3", ""), ("return 1", "Lines.third"), ("return", "Lines.first")]
)
def test_a_line_that_has_gone_or_is_not_the_only_one_is_an_error(old: str, within: str) -> None:
    """One that changes nothing would be taken for a survivor, and one elsewhere for one that is noticed."""
    with pytest.raises(VanishedError):
        Mutation("any", "any", "any.py", old, "return 2", "any", within).applied(TEXT)


def test_nothing_to_try_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """A pattern with a slip in it would pass otherwise."""
    with pytest.raises(SystemExit):
        main(["no such area"])
    assert "none is like that" in capsys.readouterr().err


ROW = """\
[[area]]
breaks = "it returns {}"
file = "lines.py"
within = "Lines.first"
old = "return 1"
new = "return {}"
test = "test_lines.py::test_first"
"""


class Tried:
    """A project of two mutations; what was run of it, and what each run ends with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: list[str] = []
        self.codes = {"as it is": 0, "return 2": 1, "return 3": 1}

    @contextmanager
    def processes(self, root: Path, count: int) -> Iterator[Run]:
        """Stands in for those that run pytest."""
        assert root == self.root
        assert count == 2
        yield self._run

    def _run(self, tests: Iterable[str], replaced: Replaced | None = None) -> tuple[int, str]:
        assert [*tests] == ["test_lines.py::test_first"]
        what = "as it is" if replaced is None else replaced.text.splitlines()[2].strip()
        self.runs.append(what)
        return self.codes[what], "words"

    def again(self, *arguments: str) -> tuple[int, list[str]]:
        """Runs the command anew; returns its exit code, and what was run."""
        self.runs.clear()
        return main(arguments), sorted(self.runs)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tried:
    project = Tried(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "mutations.toml").write_text(ROW.format(2, 2) + ROW.format(3, 3))
    (tmp_path / "lines.py").write_text(TEXT)
    (tmp_path / "test_lines.py").write_text("def test_first(): ...")
    monkeypatch.setattr(mutations, "ROOT", tmp_path)
    monkeypatch.setattr(mutations, "forked_pytests", project.processes)
    return project


def test_what_was_noticed_is_not_tried_again(two: Tried) -> None:
    """Whoever stops a run goes on where it was; what survived is tried again."""
    two.codes["return 3"] = 0
    assert two.again() == (1, ["as it is", "return 2", "return 3"])
    assert two.again() == (1, ["as it is", "return 3"])
    two.codes["return 3"] = 1
    assert two.again() == (0, ["as it is", "return 3"])
    assert two.again() == (0, [])
    assert two.again("--anew") == (0, ["as it is", "return 2", "return 3"])


@pytest.mark.parametrize("changed", ["lines.py", "test_lines.py"])
def test_what_rests_on_other_code_is_tried_again(two: Tried, changed: str) -> None:
    """A test that was changed may notice no more, and neither may one of a function whose callers were."""
    two.again()
    with (two.root / changed).open("a") as file:
        file.write("\n# changed\n")
    assert two.again() == (0, ["as it is", "return 2", "return 3"])


def test_nothing_is_shown_by_a_test_that_fails_as_it_is(two: Tried) -> None:
    """It notices everything, and so it is not kept that it has."""
    two.codes["as it is"] = 1
    assert two.again() == (1, ["as it is", "return 2", "return 3"])
    assert not (two.root / KEPT).exists()
    two.codes["as it is"] = 0
    assert two.again() == (0, ["as it is", "return 2", "return 3"])
