"""`kordon topics copy`: what it refuses, makes, tells, and hands over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple

from kordon.codecs.counted import counted
from kordon.codecs.error_codes import Code
from kordon.proxy.commands.brokers_asked import brokers_at
from kordon.proxy.commands.copied_partition import CopyStopped
from kordon.proxy.commands.copy_handover import Handover, check_caught_up
from kordon.proxy.commands.topic_copy import CopyProgress, TopicCopy
from kordon.proxy.commands.topics_client import RequestRefused, TopicNow, TopicsClient
from kordon.proxy.commands.topics_progress import ProgressLines, is_under_way
from kordon.proxy.config.config import Upstream
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.handlers.own_configs import ORDERED_DELIVERY, OWN_CONFIGS
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.topics.managed_topics import face_of

FINISHING: Final = """\
Finishing hands the groups of {topic} over to {target}. Before that:
  - Stop all producers of {topic}. What one writes later is missing in {target}.
  - Stop the consumers of the groups that move.
"""
_QUIET_SECONDS: Final = 10.0
"""For so long nothing may come when a copy is finished, as `manage --quiesced` has it."""
_UNQUIET_SECONDS: Final = 20.0
"""For so long what was written before may still come."""
_SEEN_SECONDS: Final = 20.0
_TELL_SECONDS: Final = 2.0
_ANSWER_MS: Final = 30_000
"""Large batches of many partitions are on their way at once."""
_NOT_COPIED: Final = frozenset(
    {
        ORDERED_DELIVERY,
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
    }
)
"""Kordon's own, of some moment, or such as refuse the times of old records."""
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_CREATE_TIME: Final = "CreateTime"
_MOST_BYTES: Final = "max.message.bytes"
_CLEANUP: Final = "cleanup.policy"


class _Topics(NamedTuple):
    source: TopicNow
    target: TopicNow


class CopyRun:
    """One run of the command.

    Args:
        connect: Opens a connection to the Kordon.
        upstream: How to connect to it; its addresses for the brokers are found there.
        lines: Tells how far it is.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[TopicsClient]],
        upstream: Upstream,
        source: str,
        target: str,
        lines: ProgressLines,
    ) -> None:
        self._connect = connect
        self._upstream = upstream.model_copy(update={"connect_timeout_ms": _ANSWER_MS})
        self._source = source
        self._target = target
        self._lines = lines
        self._told = 0.0
        self._first: tuple[float, int] | None = None

    async def run(self, client: TopicsClient, groups: Collection[str] | None) -> str:
        """Copies until all is copied; returns what has come of it.

        Args:
            groups: Those that are handed over, none of them: all. None: the copy is not finished.

        Raises:
            CopyStopped: The copy is impossible, or cannot continue by itself.
            RequestRefused: Whoever asks may not.
            UpstreamUnavailable: Nobody has answered for a minute.
        """
        async with brokers_at(self._upstream) as brokers:
            topics = await self._prepare(client, brokers)
            most_bytes = int(topics.target.value(_MOST_BYTES) or 0)
            partitions = topics.source.partitions
            copy = TopicCopy(brokers, self._source, self._target, partitions, most_bytes=most_bytes, tell=self._tell)
            await copy.catch_up(self._on_progress)
            if groups is None:
                return self._caught_up(copy.progress)
            await self._check_quiet(copy)
            handover = Handover(brokers, self._source, self._target, partitions)
            places = await handover.places(await handover.groups(groups), copy.partitions)
            if "compact" in (topics.source.value(_CLEANUP) or ""):
                check_caught_up(places, copy.partitions)
            await copy.check_ends()
            await handover.move(places)
            return self._finished(copy, places)

    async def _prepare(self, client: TopicsClient, brokers: Brokers) -> _Topics:
        source = await client.look(self._source)
        if source is None:
            raise CopyStopped(f"there is no topic {self._source} that may be seen")
        if self._source == self._target:
            raise CopyStopped("a topic cannot be copied to itself: name another target")
        if source.counts is None and await client.look(face_of(self._source)) is not None:
            raise CopyStopped(f"{self._source} is managed, and this is a broker: name a Kordon, which knows its order")
        target = await client.look(self._target)
        if target is None:
            replicas = {len(each.replicas) for each in (await brokers.leaders.of(self._source)).values()}
            await self._create(client, source, max(replicas, default=0) or None)
            target = await self._seen(client)
        self._check(source, target)
        return _Topics(source, target)

    async def _create(self, client: TopicsClient, source: TopicNow, replicas: int | None) -> None:
        configs = {
            name: value
            for name, (value, is_own) in source.configs.items()
            if is_own and value is not None and not name.startswith(OWN_CONFIGS) and name not in _NOT_COPIED
        }
        configs[_TIMESTAMP_TYPE] = _CREATE_TIME
        try:
            await client.create(self._target, source.partitions, None, replicas=replicas, configs=configs)
        except RequestRefused as refused:
            if refused.code != Code.TOPIC_ALREADY_EXISTS:
                raise CopyStopped(f"{self._target} cannot be created: {refused}") from refused

    async def _seen(self, client: TopicsClient) -> TopicNow:
        """Waits until the brokers tell each other of a new target."""
        until = time.monotonic() + _SEEN_SECONDS
        while time.monotonic() < until:
            if (target := await client.look(self._target)) is not None:
                return target
            await asyncio.sleep(_SEEN_SECONDS / 100)
        raise UpstreamUnavailable(f"{self._target} was created, and cannot be seen yet: run this again")

    def _check(self, source: TopicNow, target: TopicNow) -> None:
        if target.counts is not None:
            raise CopyStopped(f"{self._target} is managed: the target is an ordinary topic, which needs no Kordon")
        if target.partitions != source.partitions:
            raise CopyStopped(
                f"{self._target} has {target.partitions} partitions, and clients see {source.partitions} of "
                f"{self._source}: keys would lie elsewhere. Name a topic that does not exist, and it is created."
            )
        if target.value(_TIMESTAMP_TYPE) not in (_CREATE_TIME, None):
            raise CopyStopped(
                f"{self._target} gives records new times: set {_TIMESTAMP_TYPE}={_CREATE_TIME} while it is a copy"
            )

    async def _check_quiet(self, copy: TopicCopy) -> None:
        """Looks on for a while, so that nothing is handed over while somebody writes."""
        client = await self._connect()
        try:
            state = (await client.states([self._source])).get(self._source)
        finally:
            client.close()
        if is_under_way(state):
            raise CopyStopped(
                f"{self._source} is {state}: run this again when that is over (kordon topics watch {self._source})"
            )
        self._tell("all is copied; checks whether a client still writes")
        copied, began = copy.progress.copied, time.monotonic()
        quiet_since = began
        while time.monotonic() - quiet_since < _QUIET_SECONDS:
            await copy.catch_up(lambda _: None)
            if copy.progress.copied == copied:
                continue
            copied, quiet_since = copy.progress.copied, time.monotonic()
            if quiet_since - began > _UNQUIET_SECONDS:
                raise CopyStopped(
                    f"somebody writes to {self._source}, and it is copied: stop its producers, and run this again"
                )

    def _on_progress(self, progress: CopyProgress) -> None:
        now = time.monotonic()
        began, copied = self._first = self._first or (now, progress.copied)
        if now - self._told < _TELL_SECONDS:
            return
        self._told = now
        rate = round((progress.copied - copied) / (now - began)) if now > began else 0
        text = f"{counted(progress.copied, 'record')} in {self._target}, {rate:,}/s, at most {progress.to_go:,} to go"
        self._lines.tell(self._source, text, {"target": self._target, **progress._asdict(), "per_second": rate})

    def _tell(self, text: str) -> None:
        self._lines.tell(self._source, text)

    def _caught_up(self, progress: CopyProgress) -> str:
        return (
            f"{self._target} has all {counted(progress.copied, 'record')} of {self._source}. Run this again for what "
            "comes; when its producers have stopped, with --finish"
        )

    def _finished(self, copy: TopicCopy, places: Mapping[str, Mapping[int, int]]) -> str:
        copied = counted(copy.progress.copied, "record")
        counts = ", ".join(f"{number}: {part.place.written:,}" for number, part in sorted(copy.partitions.items()))
        return (
            f"{self._target} has all {copied} of {self._source}, by partition {counts}\n"
            f"{counted(len(places), 'group')} moved to {self._target}: {', '.join(sorted(places)) or 'none'}\n"
            f"Now start producers and consumers with the topic {self._target}, at the brokers' own port. When nobody "
            f"reads {self._source} any more, delete it through Kordon.\n"
            f"To have the name {self._source} again, copy {self._target} to it after that."
        )
