"""The four cases of KIP-509, one after the other, with what each producer is told.

    python -m kordon.client.examples.source_cases --bootstrap kordon:9092 --group db1 --topic rows

The source is a database with three tables, of which nothing is needed here: a producer sends one record for each of its
tables. It needs no Kordon.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from kordon.client import SourceLeftError, SourceProducer, SourceRebalancedError

TABLES = ("A", "B", "C")
Options = argparse.Namespace


def producer(options: Options) -> SourceProducer:
    """Makes a producer."""
    return SourceProducer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        source_partition_count=len(TABLES),
        session_timeout_ms=options.session_timeout_ms,
    )


async def copy(member: SourceProducer, topic: str, time: str) -> None:
    """Sends what has changed in the tables of a producer up to a time, and commits this time with it."""
    while True:
        with suppress(SourceRebalancedError):
            async with member.transaction() as points:
                for partition in points:
                    await member.send(topic, f"{TABLES[partition]} up to {time}".encode())
                    member.restart_at({partition: time})
            return


async def be_killed(options: Options) -> None:
    """Is the producer of case 1."""
    member = producer(options)
    await member.start()
    _say(1, await member.subscribe())
    await copy(member, options.topic, "12:34:00")
    _print("  producer 1 commits 12:34:00")
    os.kill(os.getpid(), signal.SIGKILL)


async def cases(options: Options) -> None:
    """Shows all four cases."""
    _head(1, "a first producer is started for the first time")
    command = (sys.executable, "-m", "kordon.client.examples.source_cases", *sys.argv[1:], "--be-killed")
    await (await asyncio.create_subprocess_exec(*command)).wait()
    async with AsyncExitStack() as stack:
        _head(2, "it was killed, and is started again")
        members = [await stack.enter_async_context(producer(options))]
        _say(1, await members[0].subscribe())
        living = [asyncio.ensure_future(_live(members[0]))]
        for title, shares in (
            ("a second producer is started", [[0, 1], [2]]),
            ("a third one is started", [[0], [2], [1]]),
            ("a fourth one is started, which stands by", [[0], [2], [1], []]),
        ):
            _head(3, title)
            members.append(await stack.enter_async_context(producer(options)))
            await members[-1].subscribe()
            living.append(asyncio.ensure_future(_live(members[-1])))
            await _show(members, shares)
        await copy(members[0], options.topic, "12:35:00")
        _print("  producer 1 commits 12:35:00")
        _head(4, "producer 1 says nothing for a session")
        living[0].cancel()
        await _show(members, [[], [2], [1], [0]])
        try:
            await members[0].begin_transaction()
        except SourceLeftError:
            _print("  producer 1 gets SourceLeftError, and may subscribe again")
        for each in living:
            each.cancel()


async def _live(member: SourceProducer) -> None:
    while True:
        member.alive()
        await asyncio.sleep(0.1)


async def _show(members: Sequence[SourceProducer], shares: Sequence[Sequence[int]]) -> None:
    """Waits until everybody has a share, and prints what he was told."""
    for seen in iter(lambda: [sorted(each.points) for each in members], shares):
        del seen  # the group is not there yet
        await asyncio.sleep(0.05)
    for number, each in enumerate(members, 1):
        _say(number, each.points)


def _head(number: int, title: str) -> None:
    _print(f"Case {number}: {title}")


def _say(number: int, points: dict[int, str | None]) -> None:
    told = ", ".join(f"({partition}, {point})" for partition, point in points.items()) or "nothing"
    _print(f"  producer {number} is told {told}")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--session-timeout-ms", type=int, default=6_000)
    parser.add_argument("--be-killed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(be_killed(options) if options.be_killed else cases(options))


if __name__ == "__main__":
    main()
