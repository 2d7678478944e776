"""Where `kordon decisions` reads: the topic, by a plain consumer of the brokers, or files."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAuthorizationFailedError

from kordon.codecs.decision import Entry
from kordon.proxy.config.config import Upstream, UpstreamSasl
from kordon.proxy.core.errors import KordonError, UpstreamUnavailable
from kordon.proxy.decisions.to_files import PATTERN
from kordon.proxy.decisions.to_topic import DECISIONS_TOPIC
from kordon.proxy.kafka.bearer_tokens import tokens_of
from kordon.proxy.kafka.log_in import OAUTHBEARER
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.runtime.tls import upstream_context

_LOOK_BACK: Final = 10_000
"""So far in front of the end of each partition the last ones that are wanted are looked for."""
_POLL_SECONDS: Final = 0.3
_POLL_MS: Final = 300


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Kordon's own tokens, as aiokafka asks for them."""

    def __init__(self, sasl: UpstreamSasl) -> None:
        self._sasl = sasl

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] - declared as None there
        """Returns a token; raises KafkaConnectionError, as aiokafka expects it of a connection."""
        try:
            return await tokens_of(self._sasl).get()
        except UpstreamUnavailable as error:
            raise KafkaConnectionError(str(error)) from error

    def extensions(self) -> dict[str, str]:
        """Returns what a log-in says besides its token."""
        return self._sasl.extensions


class LogUnreadable(KordonError):  # noqa: N818 - a state of the world, named as operators say it
    """Raised when there is no decision log where it was looked for; the message says what would help."""


async def from_topic(
    upstream: Upstream,
    last: int | None,
    shows: Callable[[Entry], bool],
    *,
    follow: bool,
    since_ms: int | None = None,
) -> AsyncIterator[Entry]:
    """Yields decisions of the topic, those of a worker in the order of their numbers.

    Args:
        upstream: The brokers: bootstrap, TLS and SASL are used.
        last: Begin with so many of those that are there, looked for among the newest; None: with all.
        since_ms: Leave out what was written before, in milliseconds since 1970.

    Raises:
        LogUnreadable: The brokers cannot be reached, or have no such topic.
    """
    async with reader(upstream) as consumer:
        look_back = None if last is None else max(last, _LOOK_BACK)
        spans = await spans_of(consumer, look_back, since_ms)
        for place, (start, _) in spans.items():
            consumer.seek(place, start)
        old: list[Entry] = []
        while not all([await consumer.position(place) >= end for place, (_, end) in spans.items()]):
            found = await _read(consumer, shows)
            if last is not None:
                old = _newest(old + found, last)
                continue
            for entry in found:
                yield entry
        for entry in old:
            yield entry
        while follow:
            for entry in await _read(consumer, shows):
                yield entry


@asynccontextmanager
async def reader(upstream: Upstream) -> AsyncGenerator[AIOKafkaConsumer]:
    """Connects to the brokers.

    Raises:
        LogUnreadable: They cannot be reached, refuse, or fail later on.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what it has to say is raised, too
    context = upstream_context(upstream.tls) if upstream.tls is not None else None
    consumer = _consumer(upstream, context)
    try:
        await consumer.start()
        yield consumer
    except TopicAuthorizationFailedError as error:
        who = (
            "nobody, as who comes without a log-in is," if upstream.sasl is None else upstream.sasl.username or "Kordon"
        )
        raise LogUnreadable(f"{who} may not read {DECISIONS_TOPIC}: that takes DESCRIBE and READ on it") from error
    except KafkaError as error:
        where = ", ".join(map(str, upstream.bootstrap))
        why = await _why_unreachable(upstream, context) or str(error)
        raise LogUnreadable(f"the brokers at {where} cannot be read from: {why}") from error
    finally:
        await consumer.stop()


async def _why_unreachable(upstream: Upstream, context: ssl.SSLContext | None) -> str | None:
    """Asks once more by Kordon's own client, which says what is wrong; None: nothing is."""
    for address in upstream.bootstrap:
        try:
            async with UpstreamClient(address, upstream, context) as client:
                return await _why_unanswered(client, upstream)
        except UpstreamUnavailable as error:
            return str(error)
    return None


async def _why_unanswered(client: UpstreamClient, upstream: Upstream) -> str | None:
    try:
        await client.nodes()
    except UpstreamUnavailable as error:
        return str(error) if upstream.sasl is not None else f"{error}: does it want a log-in (--username)?"
    return None


async def _read(consumer: AIOKafkaConsumer, shows: Callable[[Entry], bool]) -> list[Entry]:
    """Reads what there is; what is no decision is nobody's concern here."""
    entries: list[Entry] = []
    for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
        for record in records:
            with suppress(ValueError):
                entries.append(Entry.load(record.value or b""))
    return [entry for entry in entries if shows(entry)]


def _newest(entries: list[Entry], last: int) -> list[Entry]:
    """Returns the last so many, of several workers in the order in which they were taken."""
    ordered = sorted(entries, key=lambda entry: entry.at_ms)
    return ordered[max(0, len(ordered) - last) :]


def _consumer(upstream: Upstream, context: ssl.SSLContext | None) -> AIOKafkaConsumer:
    sasl = upstream.sasl
    transport = "SSL" if context is not None else "PLAINTEXT"
    return AIOKafkaConsumer(
        bootstrap_servers=",".join(map(str, upstream.bootstrap)),
        security_protocol=f"SASL_{transport}" if sasl is not None else transport,
        ssl_context=context,
        enable_auto_commit=False,
        client_id="kordon-decisions",
        sasl_mechanism=sasl.mechanism if sasl is not None else "PLAIN",
        sasl_plain_username=sasl.username if sasl is not None else None,
        sasl_plain_password=sasl.password.get_secret_value() if sasl is not None and sasl.password else None,
        sasl_oauth_token_provider=_Tokens(sasl) if sasl is not None and sasl.mechanism == OAUTHBEARER else None,
    )


async def _partitions(consumer: AIOKafkaConsumer) -> list[TopicPartition]:
    """Finds the partitions of the topic, without asking for it by name while it may be missing: that may create it."""
    if DECISIONS_TOPIC not in await consumer.topics():
        raise LogUnreadable(
            f"no topic {DECISIONS_TOPIC} there: decisions.to is not topic, this is Kordon's own port,"
            " or who logs in may not DESCRIBE it"
        )
    first = TopicPartition(DECISIONS_TOPIC, 0)
    consumer.assign([first])
    await consumer.end_offsets([first])
    numbers = consumer.partitions_for_topic(DECISIONS_TOPIC) or {0}
    return [TopicPartition(DECISIONS_TOPIC, number) for number in sorted(numbers)]


async def spans_of(
    consumer: AIOKafkaConsumer, last: int | None, since_ms: int | None
) -> dict[TopicPartition, tuple[int, int]]:
    """Assigns the partitions of the topic; returns where reading begins in each, and where it ends now."""
    places = await _partitions(consumer)
    consumer.assign(places)
    ends = await consumer.end_offsets(places)
    starts = dict(await consumer.beginning_offsets(places))
    if since_ms is not None:
        found = await consumer.offsets_for_times(dict.fromkeys(places, since_ms))
        starts = {place: ends[place] if found[place] is None else found[place].offset for place in places}
    least = {place: 0 if last is None else ends[place] - last for place in places}
    return {place: (max(starts[place], least[place]), ends[place]) for place in places}


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
