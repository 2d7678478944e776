"""`make try`, with its commands from a pipe."""

import re
import subprocess
import sys

import pytest

COMMANDS = ("grow 6", "look", "kill 3", "kill 2", "kill 1", "start 2", "sing", "", "shrink 3", "quit")


@pytest.mark.broker
@pytest.mark.deep
def test_what_is_typed_is_done_and_the_count_at_the_end_is_right() -> None:
    """Each command is answered, wrong ones with what is wrong; the clients keep every record and every order."""
    done = subprocess.run(
        [sys.executable, "-m", "kordon.testing.pages.try_it"],
        input="\n".join(COMMANDS),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = dict(re.findall(r"^try> (.*)\n((?:(?!try> ).*\n)*)", done.stdout, flags=re.MULTILINE))
    assert answers["grow 6"].startswith("orders has 6 partitions after")
    assert "The brokers have 6 partitions; clients see 12" in answers["look"]
    assert (
        "orders: serving 6 of 12, settled\n6 partitions (U), 3 at first (N), 12 virtual (V), layout epoch 1"
        in answers["look"]
    )
    assert answers["kill 3"] == "no proxy 3 is running\n"
    assert answers["kill 2"].startswith("proxy 2 is dead; clients go on through the other.")
    assert "is the last one" in answers["kill 1"]
    assert answers["start 2"].startswith("proxy 2 is back on")
    assert answers["sing"].startswith("'sing' is not a command.\n  grow N")
    assert " 0 out of order, 0 doubled, 0 failed sends" in answers[""]
    assert answers["shrink 3"].startswith("orders has 3 partitions after")
    kordon = re.search(r"through Kordon +[\d,]+ +(\d+) +(\d+) +(\d+)", done.stdout)
    assert kordon is not None
    assert kordon.groups() == ("0", "0", "0")
    assert re.search(r"([\d,]+) written, \1 read; 0 out of order, 0 doubled, 0 failed sends, 0 lost", done.stdout)
