"""What a SourceProducer is told, beyond what an OrderedProducer knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, cast

from kordon.client.options import ConnectionOptions, ProducerOptions

SESSION_MS: Final = range(1_000, 1_800_001)
MOST_PARTITIONS: Final = 10_000
_HEARTBEATS: Final = 6
"""In a session, at least."""
_SLOWEST_HEARTBEAT_MS: Final = 1_000
"""A survivor learns by its heartbeat that somebody is gone, so this is part of the time that taking over needs."""
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class SourceOptions(ProducerOptions, total=False):
    """The options of a SourceProducer, with those of OrderedProducer."""

    source_topic: str | None
    """The topic whose partitions stand for those of the source; by default it is named like the group."""
    transactional: bool
    """Whether data and restart points are committed together: exactly once (the default). If not, at least once."""
    heartbeat_interval_ms: int | None
    """How often the group hears of this member, and so how soon it learns that others have come or gone; by default
    1,000, or a sixth of the session timeout if that is less."""
    drain_timeout_ms: int
    """How long an open transaction may continue when partitions are given up, and at `stop`; by default 10,000."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The options of the group, each checked.

    Raises:
        ValueError: One is out of its range, or two do not fit each other.
    """

    group_id: str
    source_partition_count: int | None
    session_timeout_ms: int = 30_000
    source_topic: str | None = None
    transactional: bool = True
    drain_timeout_ms: int = 10_000
    heartbeat_interval_ms: int | None = None

    def __post_init__(self) -> None:
        if not self.group_id:
            raise ValueError("`group_id` is needed: restart points are kept with the group's commits")
        if self.source_partition_count is not None:
            _check("source_partition_count", self.source_partition_count, range(1, MOST_PARTITIONS + 1))
        _check("session_timeout_ms", self.session_timeout_ms, SESSION_MS)
        if self.heartbeat_interval_ms is not None:
            _check("heartbeat_interval_ms", self.heartbeat_interval_ms, range(1, self.session_timeout_ms // 3 + 1))
        _check("drain_timeout_ms", self.drain_timeout_ms, range(self.rebalance_timeout_ms))
        if not _TOPIC_NAME.fullmatch(self.topic) or self.topic in {".", ".."}:
            raise ValueError(
                f"no topic can be named {self.topic!r}: give `source_topic`, up to 249 of the characters a-z, A-Z, "
                "0-9, '.', '_' and '-'"
            )

    @property
    def topic(self) -> str:
        """The source topic."""
        return self.group_id if self.source_topic is None else self.source_topic

    @property
    def heartbeat_ms(self) -> int:
        """How often the group hears of a member."""
        if self.heartbeat_interval_ms is not None:
            return self.heartbeat_interval_ms
        return min(_SLOWEST_HEARTBEAT_MS, self.session_timeout_ms // _HEARTBEATS)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the group waits for a member that has to give partitions up."""
        return max(30_000, self.session_timeout_ms)


def _check(name: str, value: object, allowed: range) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        raise ValueError(f"`{name}` should be an integer from {allowed.start} to {allowed.stop - 1:,}, not {value!r}")


def connection_options(options: ProducerOptions) -> ConnectionOptions:
    """Returns those that say how to connect."""
    names = ConnectionOptions.__annotations__
    return cast(ConnectionOptions, {name: value for name, value in options.items() if name in names})
