"""Copies the lines of files into a topic, each of them once, and continues with the lines that are added.

    python -m kordon.client.examples.tail_files --bootstrap kordon:9092 --group tail --topic lines a.log b.log c.log

Each file is a source partition. Start it several times, with the same files in the same order: they share the files,
and when one is killed, the others continue where its last transaction has ended. It needs no Kordon.

A single file with {} in its name stands for as many as the source topic has partitions, 0.log for {}.log and so on; and
for more when partitions are added, which needs no restart (kordon sources create, kordon sources alter).
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kordon.client import SourceProducer, SourceRebalancedError

LINES = 500
"""Of one file in one transaction."""


async def tail_files(bootstrap: str, group: str, topic: str, files: Sequence[Path], session_timeout_ms: int) -> None:
    """Copies until it is stopped."""
    is_growing = "{}" in files[0].name
    async with SourceProducer(
        bootstrap_servers=bootstrap,
        group_id=group,
        source_partition_count=None if is_growing else len(files),
        session_timeout_ms=session_timeout_ms,
    ) as producer:
        await producer.subscribe()
        while True:
            copied = 0
            with suppress(SourceRebalancedError):  # others have files of this one now: begin again with what is left
                async with producer.transaction() as points:
                    for partition, point in points.items():
                        file = Path(str(files[0]).format(partition)) if is_growing else files[partition]
                        lines, end = read_lines(file, int(point or 0))
                        for line in lines:
                            await producer.send(topic, line, key=str(file).encode())
                        if lines:
                            producer.restart_at({partition: str(end)})
                        copied += len(lines)
            if not copied:
                await asyncio.sleep(0.1)  # beginning a transaction says that this program is alive


def read_lines(file: Path, begin: int) -> tuple[list[bytes], int]:
    """Reads whole lines from a position on; returns them, and the position behind them."""
    if not file.exists():
        return [], begin
    with file.open("rb") as opened:
        opened.seek(begin)
        lines = [line for line in opened.readlines(LINES * 100)[:LINES] if line.endswith(b"\n")]
    return [line[:-1] for line in lines], begin + sum(map(len, lines))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--session-timeout-ms", type=int, default=10_000)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(
            tail_files(options.bootstrap, options.group, options.topic, options.files, options.session_timeout_ms)
        )


if __name__ == "__main__":
    main()
