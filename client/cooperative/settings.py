"""What a CooperativeConsumer is told, beyond what AIOKafkaConsumer knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from aiokafka.structs import ConsumerRecord

from kordon.client.cooperative.in_hand import HandLimits, Order
from kordon.client.options import ConsumerOptions

if TYPE_CHECKING:
    Record: TypeAlias = ConsumerRecord[Any, Any]
else:
    Record: TypeAlias = ConsumerRecord


class AcknowledgeType(IntEnum):
    """What became of a record; names and numbers are those of KIP-932."""

    ACCEPT = 1
    """The record is finished."""
    RELEASE = 2
    """The record is to be delivered again, before any later record of its key."""
    REJECT = 3
    """The record is given to the dead-letter hook, if there is one, and is finished then."""


Handle: TypeAlias = Callable[[Record], Awaitable[object] | None]
DeadLetter: TypeAlias = Callable[[Record, BaseException | None], Awaitable[object] | None]
OnError: TypeAlias = Callable[[Record, Exception, int], AcknowledgeType]
Deserializer: TypeAlias = Callable[[bytes], Any]


View: TypeAlias = Literal["virtual", "physical"]
"""Which partitions of a managed topic are read."""


class CooperativeOptions(ConsumerOptions, total=False):
    """The options of a CooperativeConsumer, with those of AIOKafkaConsumer."""

    order: Order
    """The records that are handled in order: those of a `"key"` (the default), of a `"partition"`, or None."""
    view: View
    """Which partitions of managed topics it reads: the `"virtual"` ones that all clients see (the default), or the
    `"physical"` ones, as an OrderedConsumer. Members of one group take the same."""
    concurrency: int
    """How many records are worked on at a time; by default 100."""
    max_attempts: int | None
    """After so many failures a record goes to `dead_letter`; by default, and with None, it is tried forever."""
    redelivery_backoff_ms: int
    """The wait after the first failure; it doubles with each one. By default 100."""
    redelivery_backoff_max_ms: int
    """The longest such wait; by default 10,000."""
    handler_timeout_ms: int | None
    """A handler that takes longer is cancelled, and has failed; by default none is."""
    dead_letter: DeadLetter | None
    """Is given what failed `max_attempts` times, or was rejected; when it has returned, the record is finished."""
    on_error: OnError | None
    """Is asked after a failure, with record, error and attempt number; by default `max_attempts` counts."""
    drain_timeout_ms: int
    """How long handlers are waited for before partitions are given up, and at `stop`; by default 10,000."""
    commit_interval_ms: int
    """How often finished work is committed; by default 1,000."""
    max_records_in_hand: int
    """How many records are held at most; by default 20,000."""
    max_bytes_in_hand: int
    """How many bytes they have at most; by default 64 MiB."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that AIOKafkaConsumer does not have, each checked.

    Raises:
        ValueError: One is out of its range, or two do not fit each other.
    """

    order: Order = "key"
    view: View = "virtual"
    concurrency: int = 100
    max_attempts: int | None = None
    redelivery_backoff_ms: int = 100
    redelivery_backoff_max_ms: int = 10_000
    handler_timeout_ms: int | None = None
    dead_letter: DeadLetter | None = None
    on_error: OnError | None = None
    drain_timeout_ms: int = 10_000
    commit_interval_ms: int = 1_000
    max_records_in_hand: int = 20_000
    max_bytes_in_hand: int = 64 << 20

    def __post_init__(self) -> None:
        if self.order not in ("key", "partition", None):
            raise ValueError(f'`order` should be "key", "partition" or None, not {self.order!r}')
        if self.view not in ("virtual", "physical"):
            raise ValueError(f'`view` should be "virtual" or "physical", not {self.view!r}')
        for name in ("max_attempts", "handler_timeout_ms"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        for name in (
            "concurrency",
            "redelivery_backoff_ms",
            "redelivery_backoff_max_ms",
            "drain_timeout_ms",
            "commit_interval_ms",
            "max_records_in_hand",
            "max_bytes_in_hand",
        ):
            _check_positive(name, getattr(self, name))
        if self.max_attempts is not None and self.dead_letter is None:
            raise ValueError(
                "`max_attempts` needs a `dead_letter` hook, which is given what has failed so often: without it the "
                "record would be lost. A hook that does nothing drops it"
            )

    @property
    def limits(self) -> HandLimits:
        """How much is in hand."""
        return HandLimits(self.max_records_in_hand, self.max_bytes_in_hand, self.concurrency)

    def backoff_seconds(self, attempt: int) -> float:
        """Returns how long a record waits after a failed attempt, numbered from 1."""
        doubled = self.redelivery_backoff_ms << min(attempt - 1, 32)
        return min(doubled, self.redelivery_backoff_max_ms) / 1000

    def verdict(self, record: Record, error: Exception, attempt: int) -> AcknowledgeType:
        """Returns what to do with a record whose handler has failed."""
        if self.on_error is not None:
            return AcknowledgeType(self.on_error(record, error, attempt))
        is_last = self.max_attempts is not None and attempt >= self.max_attempts
        return AcknowledgeType.REJECT if is_last else AcknowledgeType.RELEASE


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"`{name}` should be a positive integer, not {value!r}")
