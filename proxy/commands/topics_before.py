"""What a change of a topic asks before it is asked for: whether it makes sense for the topic as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kordon.codecs.counted import counted

if TYPE_CHECKING:
    from kordon.proxy.commands.topics_client import PartitionCounts, TopicsClient
    from kordon.proxy.commands.topics_meaning import ManageAsked


class CannotBe(ValueError):  # noqa: N818 - says what is
    """Raised when what is asked for makes no sense for the topic as it is; the message says what would."""


async def to_resize(client: TopicsClient, topic: str, count: int, *, grows: bool | None) -> PartitionCounts:
    """Asks how many partitions a topic has that is to get another number of them.

    Args:
        count: U, the partitions that it is to have.
        grows: Whether the user says that there are more partitions than now. None: the user says neither.

    Raises:
        CannotBe: The topic is not managed, or the number changes the other way.
        RequestRefused: There is no such topic that may be seen.
        UpstreamUnavailable: There is no answer.
    """
    counts = await to_change(client, topic)
    if grows is not None and counts.physical != count and grows != (counts.physical < count):
        cure = f"kordon topics {'shrink' if grows else 'grow'} {topic} {count}"
        raise CannotBe(f"{topic} has {counted(counts.physical, 'partition')}, so the command is: {cure}")
    return counts


async def to_change(client: TopicsClient, topic: str) -> PartitionCounts:
    """Asks how many partitions a managed topic has.

    Raises:
        CannotBe: The topic is not managed.
        RequestRefused: There is no such topic that may be seen.
        UpstreamUnavailable: There is no answer.
    """
    counts = await client.counts(topic)
    if counts is None:
        raise CannotBe(unmanaged(topic))
    return counts


async def to_manage(client: TopicsClient, asked: ManageAsked) -> int | None:
    """Asks how many partitions a topic has that is to be managed; None: it is managed so already.

    Raises:
        CannotBe: The topic is managed with another number of virtual partitions.
        RequestRefused: There is no such topic that may be seen.
        UpstreamUnavailable: There is no answer.
    """
    counts = await client.counts(asked.topic)
    if counts is not None and counts.virtual != asked.virtual:
        raise CannotBe(
            f"{asked.topic} has {counted(counts.virtual, 'virtual partition')}, and that number never changes: "
            "grow and shrink the topic within it"
        )
    return await client.partitions(asked.topic) if counts is None else None


def unmanaged(topic: str) -> str:
    """Says that a topic is not managed."""
    return f"{topic} is not managed, or the other side is not a Kordon: see kordon topics manage --help"


def managed_already(asked: ManageAsked) -> str:
    """Says that a topic is managed as it is to be."""
    return f"{asked.topic} is managed already, with {counted(asked.virtual, 'virtual partition')}"
