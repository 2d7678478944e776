"""Where `kordon decisions` reads: the topic, by a plain consumer of the brokers, or files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from kordon.codecs.decision import Entry
from kordon.codecs.error_codes import Code
from kordon.proxy.commands.brokers_asked import brokers_at
from kordon.proxy.commands.topic_reader import TopicReader, TopicUnreadable
from kordon.proxy.config.config import Upstream
from kordon.proxy.core.errors import KordonError, UpstreamUnavailable
from kordon.proxy.decisions.to_files import PATTERN
from kordon.proxy.decisions.to_topic import DECISIONS_TOPIC
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import PartitionEnds, TopicsRefused
from kordon.proxy.runtime.logs import silence

_LOOK_BACK: Final = 10_000
"""So far in front of the end of each partition the last ones that are wanted are looked for."""
_POLL_SECONDS: Final = 0.3
_PATIENCE_SECONDS: Final = 30.0


class LogUnreadable(KordonError):  # noqa: N818 - a state of the world, named as operators say it
    """Raised when there is no decision log where it was looked for; the message says what would help."""


class PartitionSpan(NamedTuple):
    """What a partition has when reading begins."""

    start: int
    end: int


class DecisionsTopic:
    """The topic as a command reads it.

    Args:
        positions: The offset that is read next, by partition. The reader may move it.
    """

    def __init__(self, brokers: Brokers) -> None:
        self.positions: dict[int, int] = {}
        self._brokers = brokers
        self._reader = TopicReader(brokers, DECISIONS_TOPIC, "Start the command again.")

    async def spans(self, last: int | None, since_ms: int | None) -> dict[int, PartitionSpan]:
        """Returns where reading begins in each partition, and where it ends now.

        Args:
            last: So many records of each at most; None: all.
            since_ms: None of those that were written before, in milliseconds since 1970; None: all.

        Raises:
            LogUnreadable: There is no such topic.
            UpstreamUnavailable: A broker does not answer, or refuses.
        """
        partitions = range(len(await PartitionEnds(self._brokers).leaders(DECISIONS_TOPIC)))
        if not partitions:
            raise LogUnreadable(
                f"no topic {DECISIONS_TOPIC} there: decisions.to is not topic, this is Kordon's own port,"
                " or who logs in may not DESCRIBE it"
            )
        starts, ends = await self._reader.starts(partitions), await self._reader.ends(partitions)
        if since_ms is not None:
            found = await self._reader.at_time(partitions, since_ms)
            starts = {number: ends[number] if found[number] < 0 else found[number] for number in partitions}
        least = {number: 0 if last is None else ends[number] - last for number in partitions}
        return {number: PartitionSpan(max(starts[number], least[number]), ends[number]) for number in partitions}

    async def read(self, partitions: Iterable[int]) -> list[bytes]:
        """Reads on in some partitions; returns the records that come within a moment, of each in their order.

        Raises:
            LogUnreadable: No broker has answered for half a minute.
            TopicUnreadable: There is something that cannot be read.
            TopicsRefused: The user that logs in may not read the topic.
        """
        wanted = {number: self.positions[number] for number in partitions}
        until, why = time.monotonic() + _PATIENCE_SECONDS, ""
        while time.monotonic() <= until:
            try:
                if found := await self._reader.read(wanted, round(_POLL_SECONDS * 1000)):
                    self.positions |= {number: each.next_offset for number, each in found.items()}
                    return [record.copy.value or b"" for each in found.values() for record in each.records]
            except TopicsRefused:
                raise
            except UpstreamUnavailable as error:
                self._brokers.leaders.forget(DECISIONS_TOPIC)
                why = f" ({error})"
            await asyncio.sleep(_POLL_SECONDS)
        told = f"the brokers have sent nothing of {DECISIONS_TOPIC} for {_PATIENCE_SECONDS:.0f} s"
        raise LogUnreadable(f"{told}: are all of them up?{why}")


@asynccontextmanager
async def decisions_topic(upstream: Upstream) -> AsyncGenerator[DecisionsTopic, None]:
    """Connects to the brokers.

    Raises:
        LogUnreadable: The brokers cannot be reached, refuse, or fail later.
    """
    try:
        with silence():
            async with brokers_at(upstream) as brokers:
                yield DecisionsTopic(brokers)
    except TopicUnreadable as error:
        raise LogUnreadable(str(error)) from error
    except UpstreamUnavailable as error:
        if isinstance(error, TopicsRefused) and error.code == Code.TOPIC_AUTHORIZATION_FAILED:
            sasl = upstream.sasl
            who = "nobody, as who comes without a log-in is," if sasl is None else sasl.username or "Kordon"
            raise LogUnreadable(f"{who} may not read {DECISIONS_TOPIC}: that takes DESCRIBE and READ on it") from error
        where = ", ".join(map(str, upstream.bootstrap))
        raise LogUnreadable(f"the brokers at {where} cannot be read from: {error}") from error


async def from_topic(
    upstream: Upstream, last: int | None, shows: Callable[[Entry], bool], *, follow: bool, since_ms: int | None = None
) -> AsyncIterator[Entry]:
    """Yields decisions of the topic, those of a worker in the order of their numbers.

    Args:
        upstream: The brokers: bootstrap, brokers, TLS and SASL are used.
        last: Begin with so many of those that are there, looked for among the newest; None: with all.
        since_ms: Leave out what was written before, in milliseconds since 1970.

    Raises:
        LogUnreadable: The brokers cannot be reached, or have no such topic.
    """
    async with decisions_topic(upstream) as topic:
        spans = await topic.spans(None if last is None else max(last, _LOOK_BACK), since_ms)
        topic.positions = {number: span.start for number, span in spans.items()}
        old: list[Entry] = []
        while behind := [number for number, span in spans.items() if topic.positions[number] < span.end]:
            found = _entries(await topic.read(behind), shows)
            if last is not None:
                old = _newest(old + found, last)
                continue
            for entry in found:
                yield entry
        for entry in old:
            yield entry
        while follow:
            for entry in _entries(await topic.read(spans), shows):
                yield entry


def _entries(values: list[bytes], shows: Callable[[Entry], bool]) -> list[Entry]:
    """Reads records; what is no decision is nobody's concern here."""
    entries: list[Entry] = []
    for value in values:
        with suppress(ValueError):
            entries.append(Entry.load(value))
    return [entry for entry in entries if shows(entry)]


def _newest(entries: list[Entry], last: int) -> list[Entry]:
    """Returns the last so many, of several workers in the order in which they were taken."""
    ordered = sorted(entries, key=lambda entry: entry.at_ms)
    return ordered[max(0, len(ordered) - last) :]


async def from_files(
    folder: Path, last: int | None, shows: Callable[[Entry], bool], *, follow: bool
) -> AsyncIterator[Entry]:
    """Yields decisions of a folder's files.

    Args:
        last: Begin with so many of those that are there; None: with all.

    Raises:
        LogUnreadable: There is no such folder.
    """
    check_folder(folder)
    positions: dict[Path, int] = {}
    found = [entry for entry in _news(folder, positions) if shows(entry)]
    found = found if last is None else _newest(found, last)
    while True:
        for entry in found:
            yield entry
        if not follow:
            return
        await asyncio.sleep(_POLL_SECONDS)
        found = [entry for entry in _news(folder, positions) if shows(entry)]


def check_folder(folder: Path) -> None:
    """Raises LogUnreadable if there is no such folder."""
    if not folder.is_dir():
        raise LogUnreadable(f"{folder} is no folder")


def _news(folder: Path, positions: dict[Path, int]) -> list[Entry]:
    """Reads the whole lines that have come since; of several workers in the order in which they were taken."""
    entries: list[Entry] = []
    for path in sorted(folder.glob(PATTERN)):
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(positions.get(path, 0))
            whole, _, _ = file.read().rpartition(b"\n")
            positions[path] = positions.get(path, 0) + (len(whole) + 1 if whole else 0)
            for line in whole.splitlines():
                with suppress(ValueError):
                    entries.append(Entry.load(line))
    return sorted(entries, key=lambda entry: entry.at_ms)
