"""Background work: what others rely on is begun again when it fails, and nothing fails unheard."""

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kordon.proxy.runtime import tasks as module
from kordon.proxy.runtime.tasks import PASSING, Failures, Tasks

PROXY = Path(__file__).parents[2] / "proxy"

KEPT = {
    "accept clients",
    "ask who has written",
    "belong to the proxies' group",
    "end runs of decisions",
    "find leaders to write to",
    "first look at managed topics",
    "look for lost layouts",
    "follow ACLs",
    "follow a topic's changes",
    "follow an own topic",
    "follow the cluster",
    "get a producer id",
    "hold layouts to their topics",
    "hold logs to their layouts",
    "join the proxies' group",
    "keep a worker",
    "keep managed topics",
    "lead",
    "look at own topics",
    "look at the lag of groups",
    "look at the quotas of clients",
    "look for faults of all proxies",
    "look for last values",
    "look through a compacted log",
    "look through compacted topics",
    "look whether transactions are verified",
    "read an own topic to its end",
    "read the layouts again",
    "read the layouts to their end",
    "read what is managed",
    "renew the lease",
    "sweep connections",
    "sweep the layouts",
    "visit groups of sources",
    "take configurations",
    "tidy lent epochs",
    "upkeep",
    "watch files",
    "watch the lease",
    "write decisions",
    "write to an own topic",
    "close idle logs of groups",
}
"""Without one of these something stands still that nobody else would set in motion again."""

STARTED = {
    "_know_sources": "requests pass after a while, whatever comes of it",
    "_write_again": "the log says what to do",
    "_bring": "whoever reads waits no longer than it wants to",
    "_connect": "a lane dials; the next write dials again",
    "_dial": "whoever waits for the connection is told",
    "_open": "the connection ends",
    "_work_on": "tells whoever wished",
    "_mend": "it is tried again by whoever follows the log",
    "lift": "a failure ends the controller's role",
    "_renew": "the broker ends the connection, and another log-in follows",
    "_learn": "whoever reads waits no longer than it wants to",
    "_learn_again": "however it ends, requests pass",
    "_announce_again": "a failure ends the controller's role",
    "_ask": "the next request asks again",
    "learning": "the request it is for is answered without",
    "work": "of one read, or of a connection, which ends with it",
    "_get_ready": "dials ahead of time",
    "_append": "the fence is cancelled in time",
    "_hold": "the fence is cancelled in time",
    "expect": "dials ahead of time",
    "renewal": "the hold that waits for it ends with it",
    "_perform": "a failure ends the controller's role",
    "begin_transaction": "the commit begins it",
    "_ask_all": "whoever waits asks again",
    "_take": "begun again with the next tick",
    "_give_back": "what a member had is given again when its lock has expired",
    "ahead": "whoever waits for records has a limit",
    "_take_out": "what it leaves counts for nothing, and is taken out later",
    "write": "it goes on until the log is opened or read anew",
    "prepare": "each partition of the log is opened when somebody asks for it",
    "_refuse_second": "the wish is found again",
    "_find": "a failure ends the controller's role",
    "_tell_when_read": "whoever waits has a limit",
    "refresh": "followed by `follow the cluster`",
    "reload": "the old configuration stays",
    "wait": "cannot fail",
    "_kept": "what `keep` is made of",
}
"""What may fail by itself, by the function that is begun, and why nobody misses it for long."""


def _calls(method: str) -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted(PROXY.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
                yield path, node


def _name_given(call: ast.Call) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == "name"), None)


def test_every_work_that_is_kept_has_a_name_of_its_own() -> None:
    """It is a label of a metric, so it is a constant."""
    found = {
        ast.literal_eval(name) for _, call in _calls("keep") if isinstance(name := _name_given(call), ast.Constant)
    }
    assert found | {"read the layouts again", "read the layouts to their end"} == KEPT


def test_whatever_is_only_started_may_fail() -> None:
    """Whoever starts more has to say here why nobody waits for it, or has it kept."""
    found: dict[str, str] = {}
    for path, call in _calls("start"):
        if _name_given(call) is None:
            continue  # no task is started here
        work = call.args[0]
        begun = work.func if isinstance(work, ast.Call) else work
        name = begun.attr if isinstance(begun, ast.Attribute) else begun.id if isinstance(begun, ast.Name) else "?"
        found[name] = f"{path}:{call.lineno}"
    assert {name: place for name, place in found.items() if name not in STARTED} == {}
    assert STARTED.keys() - found.keys() == set()


async def test_kept_work_is_begun_again_later_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its failures are counted and told; when it returns, it is done."""
    waits: list[float] = []
    lives = iter([ValueError("first"), RecursionError("second"), None])

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def work() -> None:
        if (failure := next(lives)) is not None:
            raise failure

    monkeypatch.setattr(asyncio, "sleep", sleep)
    failures = Failures()
    await Tasks(failures).keep(work, name="it", of="orders")
    assert waits == [module.FIRST_RETRY_SECONDS, 2 * module.FIRST_RETRY_SECONDS]
    assert failures.counts == {"it": 2, PASSING: 0}
    assert failures.recent() == ["it failed and is begun again: RecursionError: second"]


async def test_stopped_work_is_not_begun_again() -> None:
    """Not even while it waits for its next life."""
    lives = 0

    async def work() -> None:
        nonlocal lives
        lives += 1
        raise ValueError

    tasks = Tasks(Failures())
    kept = tasks.keep(work, name="it")
    await asyncio.sleep(0.01)
    await tasks.stop()
    assert kept.cancelled()
    assert lives == 1


async def test_kept_work_outlives_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else ends what it waits for; without another begin the work would be missed, and nobody told."""
    monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 0.0)
    failures, begun = Failures(), asyncio.Event()
    waited_for = asyncio.get_running_loop().create_future()

    async def work() -> None:
        if waited_for.done():
            begun.set()
        await waited_for if not waited_for.done() else await asyncio.Event().wait()

    tasks = Tasks(failures)
    kept = tasks.keep(work, name="wait")
    await asyncio.sleep(0)
    waited_for.cancel()
    async with asyncio.timeout(10):
        await begun.wait()
    assert failures.counts["wait"] == 1
    await tasks.stop()
    assert kept.cancelled()


async def test_other_work_that_fails_is_counted_too() -> None:
    """All of it under one name, for there is no end of names."""
    failures = Failures()
    tasks = Tasks(failures)

    async def work() -> None:
        raise ValueError

    await asyncio.wait({tasks.start(work(), name="read at 7")})
    await asyncio.sleep(0)
    assert failures.counts == {PASSING: 1}


def test_a_failure_is_told_for_a_minute() -> None:
    """Then the work has lived long enough to be whole."""
    now = 0.0
    failures = Failures(lambda: now)
    failures.note("it", ValueError("x" * 1000))
    (said,) = failures.recent()
    assert len(said) < 400
    now = 61.0
    assert failures.recent() == []
