"""The commands of the project's pages: what a reader types, and what the page shows below it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ON_A_NETWORK: Final = "run with brokers"
"""The mark of a block that needs brokers: its page is followed on a network of its own (`followed_pages.py`)."""
FIRST: Final = "first: "
"""The mark of commands that a page takes as done. They stand in a comment, and a reader sees none of them."""
_BLOCK: Final = re.compile(
    r"<!-- first: (?P<first>.*?) -->|(?:<!-- (?P<mark>[^>]*?) -->\n *)?```(?P<language>\w*)\n(?P<text>.*?)```",
    re.DOTALL,
)
_COMMAND: Final = re.compile(r"(?:.*\\\n)*.*\n?")
_EXIT_CODE: Final = "echo $?"
_ANSWER: Final = re.compile(r"(\[y/N\]: )(\w+)\n")
_VARIES: Final = re.compile(
    r"^(?P<lines>…\n)|(?P<rest>…)|(?P<seconds>\d[\d.,]*(?= s\b))|(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ)",
    re.MULTILINE,
)
_STATE: Final = r"\w+ \d+(?: -> \d+| of \d+)?: |\w+ is under way: |being |coming |waits for an answer"
_PROGRESS: Final = re.compile(rf"(?:^|(?<=\[y/N\]: ))\S+: (?:{_STATE}).*\n", re.MULTILINE)
"""What `kordon topics` says of a change that lasts longer than the page's did."""
_ANYTHING: Final = {"lines": r"(?:.*\n)*?", "rest": r".*", "seconds": r"[\d.,]+", "time": r"[\d-]+ [\d:]+Z"}


class Block(NamedTuple):
    """A fenced block of a page, or commands that it takes as done."""

    mark: str
    """`run`, `run with brokers`, `first: `, `file: NAME`, `not run: REASON`, or empty if the comment is missing."""
    language: str
    text: str


class Step(NamedTuple):
    """A command as it stands in a page, and the output shown below it."""

    command: str
    shown: str
    may_fail: bool = False
    """The next command prints its exit code (`echo $?`)."""

    @property
    def answers(self) -> str:
        """What a reader types when the command asks."""
        return "".join(f"{typed}\n" for _, typed in _ANSWER.findall(self.shown))


def blocks(page: str) -> list[Block]:
    """Returns the blocks of a page, in order."""
    found = []
    for each in _BLOCK.finditer(page):
        if each["first"]:
            found.append(Block(FIRST, "console", "".join(f"$ {line}\n" for line in each["first"].splitlines())))
        else:
            found.append(Block(each["mark"] or "", each["language"], each["text"]))
    return found


def steps(text: str) -> Iterator[Step]:
    """Yields the commands of a block. A command goes on in the next line after a backslash."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        end = _COMMAND.match(part)
        command = end[0] if end else ""
        shown = part[len(command) :]
        yield Step(command.rstrip("\n"), shown, may_fail=following.startswith(_EXIT_CODE))


def is_shown(shown: str, output: str) -> bool:
    """Says whether a command said what its page shows.

    Seconds and times may differ, and a slow machine may show progress. `…` stands for the rest of a line, or for any
    lines if it stands alone.
    """
    wanted, end = "", 0
    shown = _ANSWER.sub(r"\1", shown.rstrip("\n") + "\n")
    for each in _VARIES.finditer(shown):
        wanted += re.escape(shown[end : each.start()]) + _ANYTHING[each.lastgroup or ""]
        end = each.end()
    wanted += re.escape(shown[end:])
    said = output.rstrip("\n") + "\n"
    return any(re.fullmatch(wanted, each) is not None for each in (said, _PROGRESS.sub("", said)))
