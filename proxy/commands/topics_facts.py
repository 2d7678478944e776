"""What `kordon topics` asks of a topic before it changes it: where it lies, what it holds, who has still to read it.

All of it is asked through Kordon with the log-in of whoever asks. What they may not know, or nobody tells, is named.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kordon.proxy.commands.brokers_asked import with_brokers
from kordon.proxy.commands.log_sizes import LogSizes
from kordon.proxy.controller.takeovers import NotQuiesced, prove_quiesced
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.topics_admin import TopicsAdmin, TopicsRefused
from kordon.proxy.ordering.takeover import Takeover, left_to_read
from kordon.proxy.runtime.tls import explain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kordon.proxy.config.config import Upstream
    from kordon.proxy.config.host_port import HostPort
    from kordon.proxy.kafka.transaction_coordinators import OpenTransaction

Result = TypeVar("Result")

_SECONDS: Final = 20.0
"""For one question; it goes to all brokers."""


@dataclass(frozen=True, slots=True)
class Logs:
    """The beginnings and ends of logs, by partition."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]

    @property
    def records(self) -> int:
        """How many offsets there are; some may be of no record, as after a transaction or compaction."""
        return sum(end - self.starts[q] for q, end in self.ends.items())


class TopicFacts:
    """Asks about one topic.

    Args:
        address: The address of a Kordon.
        upstream: How to connect to it.

    Attributes:
        unknown: The figures that were asked for and are not known, with the reason.
    """

    def __init__(self, topic: str, address: HostPort, upstream: Upstream) -> None:
        self.unknown: dict[str, str] = {}
        self._topic = topic
        self._address = address
        self._upstream = upstream

    async def sizes(self, partitions: int) -> dict[int, int] | None:
        """Asks for the bytes of the brokers' partitions, as far as there are so many; None: nobody tells."""
        found = await self._try("bytes", self._sizes(partitions))
        return found or None

    async def logs(self, partitions: int) -> Logs | None:
        """Asks where partitions begin and end; None: nobody tells."""
        return await self._try("records", self._admin(lambda admin: self._logs(admin, partitions)))

    async def groups(self, logs: Logs) -> dict[str, int] | None:
        """Asks how many records each group with commits on the topic has to go; None: nobody tells."""
        return await self._try("groups", self._admin(lambda admin: self._groups(admin, logs)))

    async def transactions(self) -> list[OpenTransaction] | None:
        """Asks which open transactions name the topic.

        None: nobody tells. Brokers before Kafka 3.0 never do; managed topics have no transactions in front of them.
        """
        try:
            async with asyncio.timeout(_SECONDS):
                found = await self._admin(lambda admin: admin.transactions.open())
        except (TimeoutError, UpstreamUnavailable, OSError):
            return None
        return [each for each in found if each.partitions.get(self._topic)]

    async def why_not_quiesced(self, logs: Logs) -> str:
        """Says who writes to a topic of which somebody says that nobody does; empty: nobody has, for some seconds."""
        try:
            await self._try("whether somebody writes", self._admin(lambda admin: self._prove(admin, logs)))
        except NotQuiesced as refusal:
            return str(refusal)
        return ""

    async def _sizes(self, partitions: int) -> dict[int, int]:
        return (await LogSizes(self._address, self._upstream).of({self._topic: partitions}))[self._topic]

    async def _logs(self, admin: TopicsAdmin, partitions: int) -> Logs:
        starts = await admin.ends.log_starts(self._topic, range(partitions))
        ends = await admin.ends.ends_of(self._topic, range(partitions))
        return Logs(starts, {q: each.high_watermark for q, each in ends.items()})

    async def _groups(self, admin: TopicsAdmin, logs: Logs) -> dict[str, int]:
        commits = await admin.groups.committed(await admin.groups.groups(), [self._topic], logs.ends.keys())
        cut_now = Takeover(None, logs.ends)
        return {group: left_to_read(cut_now, offsets, logs.starts) for group, offsets in sorted(commits.items())}

    async def _prove(self, admin: TopicsAdmin, logs: Logs) -> None:
        ends = await admin.ends.ends_of(self._topic, logs.ends)
        await prove_quiesced(admin.ends, self._topic, {q: each.log_end_offset for q, each in ends.items()})

    async def _admin(self, do: Callable[[TopicsAdmin], Awaitable[Result]]) -> Result:
        return await with_brokers(self._upstream, lambda brokers: do(TopicsAdmin(brokers)))

    async def _try(self, what: str, asking: Awaitable[Result]) -> Result | None:
        try:
            async with asyncio.timeout(_SECONDS):
                return await asking
        except TimeoutError:
            self.unknown[what] = f"no answer in {_SECONDS:g} s"
        except (UpstreamUnavailable, TopicsRefused, OSError) as error:
            self.unknown[what] = explain(error)
        return None
