"""Documents with commands: these are run, configurations are checked, tables are complete.

A code block says in the comment before it what is done with it here: `file: NAME` writes it, `run` runs its commands
and compares their output where some is shown, `not run: REASON` leaves it to the reader. A page with `run with brokers`
is followed by `test_followed_pages.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kordon.proxy.config.config import Limits
from kordon.proxy.core.causes import LIMIT_OF_CAUSE
from kordon.testing.jars import DEFAULT, NEWEST, VERSIONS
from kordon.testing.pages.followed_pages import is_on_a_network
from kordon.testing.pages.page_commands import FIRST, Block, Step, blocks, is_shown, steps

if TYPE_CHECKING:
    import trustme

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
DOCS = (
    "../README.md",
    "README.md",
    "audit.md",
    "autoscale.md",
    "cli.md",
    "compacted-topics.md",
    "concepts.md",
    "configuration.md",
    "cooperative.md",
    "decisions.md",
    "deployment.md",
    "failures.md",
    "how-to.md",
    "kafka-versions.md",
    "limitations.md",
    "limits.md",
    "managing.md",
    "quickstart.md",
    "rights.md",
    "rules.md",
    "runbook.md",
    "sdk.md",
    "security.md",
    "sources.md",
    "taking-over.md",
    "transactions.md",
    "tutorial.md",
)


def page_blocks(name: str) -> list[Block]:
    """The fenced blocks of a document, in order."""
    return blocks(text_of(name))


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a document is followed: a folder with the project's `deploy` and a wildcard certificate in it."""
    import trustme  # noqa: PLC0415

    authority = trustme.CA()
    certificate: trustme.LeafCert = authority.issue_cert("*.kafka.example.com", "kafka.example.com")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "wildcard.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "wildcard.key"))
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    return tmp_path


def run(step: Step, folder: Path, last: int = 0) -> int:
    """Runs a command as a reader would; it must say what is shown, and succeed unless the page shows its exit code.

    Args:
        last: The exit code of the command before it.

    Returns:
        Its exit code.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KORDON_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["BROWSER"] = "true"  # is told what to show, and shows nothing
    program = next(word for word in step.command.split() if "=" not in word)
    if program in {"openssl", "promtool"} and shutil.which(program, path=environment["PATH"]) is None:
        pytest.skip(f"{program} is not here (Debian: promtool is in prometheus, openssl in openssl)")
    done = subprocess.run(
        ["bash", "-c", f"(exit {last})\n{step.command}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,  # for what hangs; others may have the processors meanwhile
        check=False,
    )
    assert step.may_fail or done.returncode == 0, f"$ {step.command}\n{done.stdout}{done.stderr}"
    said = done.stderr if step.may_fail else done.stdout
    assert not step.shown or is_shown(step.shown, said), f"$ {step.command}\n{said}"
    return done.returncode


@pytest.mark.parametrize("name", DOCS)
def test_commands_do_what_the_document_shows(name: str, folder: Path) -> None:
    """Who follows the document from top to bottom gets the files, exit codes and output that stand there."""
    if is_on_a_network(text_of(name)):
        return  # test_followed_pages.py follows it
    for block in page_blocks(name):
        if block.mark.startswith("file: "):
            (folder / block.mark.removeprefix("file: ")).write_text(block.text)
        elif block.mark in {"run", FIRST}:
            followed, code = folder, 0
            for step in steps(block.text):
                if step.command.startswith("cd "):
                    followed = folder / step.command.removeprefix("cd ")
                else:
                    code = run(step, followed, code)


def test_every_page_with_blocks_is_among_these() -> None:
    """Nobody adds a page whose commands are not run."""
    pages = {page.name for page in (ROOT / "docs").glob("*.md") if blocks(page.read_text())}
    assert pages <= set(DOCS)


@pytest.mark.parametrize("name", DOCS)
def test_every_block_is_run_or_says_why_not(name: str) -> None:
    """No command stands in the documents that nobody runs, unless the reason stands beside it."""
    for block in page_blocks(name):
        assert re.fullmatch(r"run|run with brokers|first: |file: [\w.-]+|not run: .{10,}", block.mark), block.text


def test_the_page_on_versions_has_those_that_tests_run() -> None:
    """With the name by which they are asked for, what the tables have first and the default second."""
    text = (ROOT / "docs" / "kafka-versions.md").read_text()
    rows = re.findall(r"^\| [\w ]+ \| ([\d.]+)[^|]* \| `([\d.]+)` \|", text, flags=re.MULTILINE)
    assert [full for full, _ in rows][:2] == [NEWEST, DEFAULT]
    assert {name: full for full, name in rows} == VERSIONS


def test_every_limit_is_explained_with_its_default_and_cause() -> None:
    """docs/limits.md has a row and a section for each limit there is, and for no other."""
    text = (ROOT / "docs" / "limits.md").read_text()
    rows = {
        row[1]: (int(row[2]), row[3])
        for row in re.finditer(r"^\| \[`(\w+)`\]\(#\w+\) \| (\d+).*?\| (?:`(\w+)`|-) \|$", text, flags=re.MULTILINE)
    }
    causes = {limit: cause.value for cause, limit in LIMIT_OF_CAUSE.items()}
    assert rows == {name: (field.default, causes.get(name)) for name, field in Limits.model_fields.items()}
    assert set(re.findall(r"^## (\w+)$", text, flags=re.MULTILINE)) == Limits.model_fields.keys()
