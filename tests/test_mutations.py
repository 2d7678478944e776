"""The list of mutations that `make mutate` tries: it does not rot."""

from collections import Counter

import pytest

from kordon.testing.mutations import ROOT, Mutation, VanishedError, listed, main

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
