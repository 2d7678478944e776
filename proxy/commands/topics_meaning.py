"""What managing a topic and letting it go means for its users, as it is said before either is done."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kordon.codecs.counted import counted
from kordon.proxy.ordering.takeover import TRANSITION_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

_MANAGING: Final = """\
Managing {topic} with {virtual_partitions} means:
  - Clients see {partitions} from now on, and that number never changes. On the brokers the topic can have
    from its present number of partitions up to {virtual}. The order of each key is kept.
  - All clients of the topic must connect through Kordon. Clients that write to the brokers directly break the order.
  - Clients see another topic id and another number of partitions within metadata.max.age.ms, and groups rebalance.
{taking_over}
  - Kafka Streams: never manage repartition or changelog topics. Reset an application that reads {topic}: it keeps its
    state by partition number.
  - Flink and Spark keep offsets by partition in their checkpoints. Begin with new checkpoints, or switch the discovery
    of new partitions on.
  - MirrorMaker copies {partitions} to a topic with {partitions}, each in its order.
  - Kordon refuses transactional producers, share groups and streams groups.
"""
_TAKING_OVER: Final = """\
  - If the topic has records, its writes pause once for up to a second. {waits}
    Kordon does not wait for readers without a group."""
_QUIESCED: Final = """\
Then about {share} % of its new records wait until
    every group has read the present ones. All clients reconnect once."""
_IN_USE: Final = """\
Then about {share} % of its new records wait.
    They reach readers after {time} at the earliest (--transition), and after every group has read the old records.
    Until then the topic cannot grow or shrink; kordon topics describe says what it waits for.
    If nobody writes to the topic now, --quiesced avoids that time."""
_DELIVERING: Final = """\
Then no record waits (--deliver).
    For {time} (--transition), what is written to new partitions reaches readers in the old ones, 0 to {last}, in the
    order in which it was acknowledged. A producer that sends without waiting for acknowledgements may see some of its
    records change places once, when it learns of the new partitions.
    This needs producers that place keys by hash modulo the number of partitions, as Kafka's clients do.
    After that, new partitions are delivered as soon as every group has read what came before."""
_UNMANAGING: Final = """\
Kordon can let {topic} go if the topic was never resized and has as many virtual partitions as partitions (V = N),
or if it holds no records. Then:
  - {topic} is an ordinary topic with {partitions} or more. It cannot shrink, and growth breaks the order of
    keys.
  - Clients see another topic id. Restart idempotent producers: their sequences count by virtual partition.
  - The offsets that groups have committed while the topic was managed are lost. Note them now
    (kafka-consumer-groups.sh --describe), and set them again (--reset-offsets).
"""

Way: TypeAlias = Literal["online", "delivering", "quiesced"]


@dataclass(frozen=True, slots=True)
class ManageAsked:
    """How a topic is to be managed."""

    topic: str
    virtual: int
    """The number of virtual partitions, V."""
    way: Way = "online"
    """What becomes of records that are written while it is taken over; quiesced: there are none, which is checked."""
    transition: int | None = None
    """Seconds for which clients may keep the old view; None: Kordon's default."""
    janitor: bool = False

    @property
    def transition_ms(self) -> int | None:
        """What the request says of it."""
        return None if self.transition is None else self.transition * 1000

    @property
    def wait_seconds(self) -> int:
        """For how long clients may have the old view; 0: nobody writes."""
        if self.way == "quiesced":
            return 0
        return TRANSITION_MS // 1000 if self.transition is None else self.transition

    @property
    def command(self) -> str:
        """The command that does it."""
        return " ".join(["kordon topics manage", quote(self.topic), f"--virtual {self.virtual}", *self._options()])

    def _options(self) -> Iterator[str]:
        if self.way != "online":
            yield "--deliver" if self.way == "delivering" else "--quiesced"
        if self.transition is not None:
            yield f"--transition {self.transition}"
        if self.janitor:
            yield "--janitor"

    def share_of_new(self, physical: int) -> int:
        """Returns the percentage of a topic's records that go to virtual partitions which it did not have before."""
        return max(round(100 * (self.virtual - physical) / self.virtual), 0)


def managing(asked: ManageAsked, physical: int) -> str:
    """Says what it means to manage a topic.

    Args:
        physical: The partitions that it has.
    """
    taking_over = _TAKING_OVER.format(waits=_waits(asked, physical))
    return _MANAGING.format(
        topic=asked.topic,
        virtual=asked.virtual,
        partitions=counted(asked.virtual, "partition"),
        virtual_partitions=counted(asked.virtual, "virtual partition"),
        taking_over=taking_over,
    )


def unmanaging(topic: str, physical: int) -> str:
    """Says what it means to let a topic go.

    Args:
        physical: The partitions that it has then.
    """
    return _UNMANAGING.format(topic=topic, partitions=counted(physical, "partition"))


def _waits(asked: ManageAsked, physical: int) -> str:
    """Says what becomes of new records while a topic with records is taken over (TAKEOVER-WAITS, TAKEOVER-SHARES)."""
    share, seconds = asked.share_of_new(physical), asked.wait_seconds
    if not share:
        return "No record waits: the number of partitions stays."
    if not seconds:
        return _QUIESCED.format(share=share)
    time_ = f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"
    if asked.way == "delivering":
        return _DELIVERING.format(last=physical - 1, time=time_)
    return _IN_USE.format(share=share, time=time_)
