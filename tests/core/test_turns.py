"""Long work takes turns: whatever it reads, changes or writes, others are served meanwhile."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.errors import WireError
from kordon.codecs.messages import response
from kordon.codecs.turns import ROWS_A_TURN, rows_done
from kordon.proxy.core import verdicts
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.rewrite import EDITS, Translated
from kordon.proxy.core.tally import Tally
from kordon.proxy.own_topics.own_things import OwnThings
from kordon.proxy.runtime.turns import Turns
from kordon.testing.step_times import in_short_steps

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("collector_at_rest")]

OWN = "kordon-proxies"
ADVERTISED = Advertised(host="p", base_port=1)


def offsets_of_one_group_asked_for_again_and_again() -> dict[str, Any]:
    """What 9 KB of OffsetFetch get."""
    partitions = [{"partition_index": at, "committed_offset": at} for at in range(100)]
    group = {"group_id": f"{OWN}-not", "topics": [{"name": "orders", "partitions": partitions}]}
    return {"groups": [group] * 800}


def a_large_cluster() -> dict[str, Any]:
    ids = {"leader_id": 1, "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}
    partitions = [{"partition_index": at, **ids} for at in range(10)]
    topics = [{"name": f"topic-{at}", "partitions": partitions} for at in range(2_000)]
    brokers = [{"node_id": 1, "host": "b", "port": 9092}]
    return {"brokers": brokers, "topics": [*topics, {"name": "__kordon.layouts", "partitions": partitions}]}


ANSWERS: list[tuple[int, int, Callable[[], dict[str, Any]]]] = [
    (apis.OFFSET_FETCH, 8, offsets_of_one_group_asked_for_again_and_again),
    (apis.METADATA, 12, a_large_cluster),
    (
        apis.FIND_COORDINATOR,
        4,
        lambda: {"coordinators": [{"key": f"g{at}", "node_id": 1, "host": "b", "port": 9} for at in range(40_000)]},
    ),
    (apis.LIST_GROUPS, 4, lambda: {"groups": [{"group_id": f"g{at}"} for at in range(40_000)] + [{"group_id": OWN}]}),
    (
        apis.DESCRIBE_GROUPS,
        5,
        lambda: {"groups": [{"group_id": "g", "members": [{"member_id": f"m{at}"} for at in range(40_000)]}]},
    ),
]


@pytest.mark.parametrize(("key", "version", "says"), ANSWERS, ids=[verdicts.api_name(each[0]) for each in ANSWERS])
async def test_no_step_of_a_large_answer_is_long(key: int, version: int, says: Callable[[], dict[str, Any]]) -> None:
    """It is read, changed, written anew and freed; what goes to the client is the same as if done at once."""
    route = next(each for each in verdicts.ROUTES if (each.api.key, each.version) == (key, version))
    body = response(key).build(version, says())
    own = OwnThings(OWN)
    edit = Translated(route, EDITS.get((key, version)), lambda answer: own.show(key, answer))
    tally = Tally()
    turns = Turns(tally)
    told = await in_short_steps(lambda: turns.do(lambda: edit.apply(version, body, ADVERTISED)))
    assert tally.turns > 100
    assert told == edit.apply(version, body, ADVERTISED)


def rows(count: int, done: list[int] | None = None) -> None:
    for row in range(count):
        rows_done(1)
        if done is not None:
            done.append(row)


async def test_short_work_is_done_at_once() -> None:
    """It costs no turn, and raises what it raises."""
    tally = Tally()
    turns = Turns(tally)
    await turns.do(lambda: rows(ROWS_A_TURN))
    with pytest.raises(WireError):
        await turns.do(lambda: response(apis.METADATA).parse(12, b"junk"))
    assert tally.turns == 0


async def test_others_have_their_turn_and_long_work_comes_one_by_one() -> None:
    """Of two large messages one is begun only when the other is done with."""
    tally = Tally()
    turns = Turns(tally)
    first: list[int] = []
    second: list[int] = []
    doing = [asyncio.ensure_future(turns.do(partial(rows, 5000, seen))) for seen in (first, second)]
    counts: list[tuple[int, int]] = []
    while not all(each.done() for each in doing):
        await asyncio.sleep(0)
        counts.append((len(first), len(second)))
    assert len(counts) > 2 * 5000 // ROWS_A_TURN
    assert all(two <= ROWS_A_TURN for one, two in counts if one < 5000)
    assert len(first) == len(second) == 5000


async def test_work_that_nobody_waits_for_any_more_ends() -> None:
    """A connection that closes leaves nothing behind: neither rows nor a lock, nor a collector at rest."""
    tally = Tally()
    turns = Turns(tally)
    ended: list[str] = []

    def work() -> None:
        try:
            rows(10**6)
        finally:
            ended.append("ended")

    doing = asyncio.ensure_future(turns.do(work))
    waits = asyncio.ensure_future(turns.do(work))
    await asyncio.sleep(0.005)
    assert not gc.isenabled()
    for each in (waits, doing):
        each.cancel()
        with suppress(asyncio.CancelledError):
            await each
    assert ended == ["ended", "ended"]
    assert gc.isenabled()
    await turns.do(lambda: rows(5000))


async def test_error_in_the_midst_is_raised() -> None:
    """After any number of turns."""

    def work() -> None:
        rows(5000)
        raise WireError("the last row is junk")

    with pytest.raises(WireError, match="junk"):
        await Turns(Tally()).do(work)
    assert gc.isenabled()
