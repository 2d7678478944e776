"""What went wrong with a topic or cannot be, in words for the people who have to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, get_args
from uuid import UUID

from kordon.codecs.counted import counted
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import FindingKind, FindingRecord

KINDS: Final[tuple[FindingKind, ...]] = get_args(FindingKind)


def topic_gone(layout: Layout, successor: UUID | None, now_ms: int) -> FindingRecord:
    """Says that a topic was deleted without Kordon (SAME-TOPIC).

    Args:
        layout: The last layout.
        successor: The id of the topic that has its name now; None: there is none.
        now_ms: Milliseconds since 1970.
    """
    saw = counted(layout.v_count, "virtual partition")
    former = f"{layout.topic} ({layout.topic_id}, {saw}, layout epoch {layout.epoch})"
    ended = "its layout, its face and the commits of groups have gone with it"
    if successor is None:
        return FindingRecord("topic_deleted", layout.topic, f"{former} was deleted at the brokers: {ended}", now_ms)
    again = f"{former} was deleted at the brokers and made again ({successor}): {ended}; it is not managed any more"
    return FindingRecord("topic_replaced", layout.topic, again, now_ms)


def records_lost(layout: Layout, now_ms: int) -> FindingRecord:
    """Says which offsets were lost because logs got shorter (BEYOND-LOSS).

    Args:
        layout: The layout in which the topic continues after the loss. Its last epoch says where logs were truncated.
        now_ms: Milliseconds since 1970.
    """
    shortened = layout.epochs[-1].shortened or {}
    logs = "; ".join(_loss(layout, q, offset) for q, offset in sorted(shortened.items()))
    text = (
        f"{layout.topic}: {logs}. An unclean leader election does so, or a log that came back empty. Consumers are"
        f" moved past the missing records; writes continue behind them, under layout epoch {layout.epoch}"
    )
    return FindingRecord("records_lost", layout.topic, text, now_ms)


def not_mended(layout: Layout, shortened: Mapping[int, int], why: str, now_ms: int) -> FindingRecord:
    """Says that a topic does not continue behind what its logs have lost (BEYOND-LOSS).

    Args:
        shortened: The offset from which on all records were lost, by physical partition with a truncated log.
        why: The reason, as from `records.why_never`.
        now_ms: Milliseconds since 1970.
    """
    logs = "; ".join(
        f"the log of partition {q} got shorter than its layout, and lost what stood from offset {offset} up to"
        f" {layout.last_bounds[q].offset}"
        for q, offset in sorted(shortened.items())
    )
    text = (
        f"{layout.topic}: {logs}. It is not mended: {why}. Writes to these partitions are refused until their logs"
        " reach again where their layout begins; the rest of the topic continues. Move to another topic"
    )
    return FindingRecord("not_mended", layout.topic, text, now_ms)


def compacted_without_janitor(layout: Layout, now_ms: int) -> FindingRecord:
    """Says that brokers compact a topic whose janitor is off: its cleanup.policy was changed without Kordon.

    Args:
        now_ms: Milliseconds since 1970.
    """
    if layout.has_transactions:
        text = (
            f"{layout.topic} is compacted, and has transactions: compaction takes values that were committed because of"
            " later ones that were aborted, and what tells them apart. Set cleanup.policy=delete"
        )
        return FindingRecord("compacted_without_janitor", layout.topic, text, now_ms)
    text = (
        f"{layout.topic} is compacted without its janitor: keys that are deleted can come back, and the last value of a"
        " key can be lost where a late write stands behind it. Set kordon.janitor=true, or cleanup.policy=delete"
    )
    return FindingRecord("compacted_without_janitor", layout.topic, text, now_ms)


def transactions_unverified(topic: str, brokers: Iterable[int], now_ms: int) -> FindingRecord:
    """Says that brokers do not verify the transactions of a topic: their config was changed after it had got some.

    Args:
        topic: The topic's name.
        brokers: The brokers that do not.
        now_ms: Milliseconds since 1970.
    """
    text = (
        f"{topic} has transactions, and brokers {', '.join(map(str, brokers))} do not verify them: a write that comes"
        " late can open a transaction there that nobody ends. It would hold up read_committed consumers of the brokers"
        " and each change of the topic. Set transaction.partition.verification.enable=true"
    )
    return FindingRecord("transactions_unverified", topic, text, now_ms)


def layout_unreadable(topic: str, why: str, now_ms: int) -> FindingRecord:
    """Says that a topic is not served because of its records; each proxy that cannot read them says so.

    Args:
        topic: The topic's name.
        why: The reason, as from `Unread.why_unserved`.
        now_ms: Milliseconds since 1970.
    """
    text = (
        f"{why}. Nothing of {topic} is written or read here, and its layout is not changed, until another record or a"
        " tombstone takes its key; if a later version of Kordon wrote it, upgrade this one"
    )
    return FindingRecord("layout_unreadable", topic, text, now_ms)


def layout_lost(topic: str, why: str, now_ms: int) -> FindingRecord:
    """Says that a topic is not served because its layout is lost; each proxy that cannot find it says so.

    Args:
        topic: The topic's name.
        why: The evidence that the topic was managed.
        now_ms: Milliseconds since 1970.
    """
    text = (
        f"{why}. Nothing of {topic} is written or read here, until its layout is restored (kordon layouts import)."
        " To make it an ordinary topic for good, delete its face: its keys then go to other partitions than before"
    )
    return FindingRecord("layout_lost", topic, text, now_ms)


def why_too_old(error: object) -> str:
    """Says what is needed by whoever wants of the brokers what they do not speak."""
    return f"{error}; managed topics and source topics need brokers of Kafka 3.0 or newer"


def why_no_second(topic: str, target: int) -> str:
    """Says why a topic cannot have another number of partitions while a change is under way (ONE-CHANGE).

    Args:
        target: The partitions that it is to have then.
    """
    return f"{topic} is on its way to {counted(target, 'partition')}; ask again when it has come there"


def why_withdrawn(topic: str, count: int) -> str:
    """Says why a change was given up that waited for older transactions.

    Args:
        count: The partitions that the topic has still.
    """
    return f"somebody wants {topic} to stay at {counted(count, 'partition')}, and the change had not begun to move it"


def _loss(layout: Layout, partition: int, offset: int) -> str:
    ends = [segment.end or 0 for segment in layout.segments if segment.id.partition == partition]
    losers = sorted(
        v
        for v, chain in enumerate(layout.chains)
        if any(stay.partition == partition and stay.lost_from is not None for stay in chain.stays)
    )
    return (
        f"the log of partition {partition} got shorter than its layout, and lost what stood from offset {offset} up to"
        f" {max(ends)} (virtual partitions {', '.join(map(str, losers))})"
    )


def why_not_let_go(layout: Layout, filled: Iterable[int]) -> str:
    """Says why a topic cannot be an ordinary one as it is, and what would work.

    Args:
        layout: The layout in force, which is not plain or has transactions.
        filled: The physical partitions that hold records.
    """
    if layout.has_transactions:
        return (
            f"{layout.topic} has transactions, which ordinary consumers would read before they are committed. It can be"
            " let go once it is empty: stop its producers, have its groups read to the end, delete its records"
            " (kafka-delete-records.sh through Kordon, or retention), and ask again."
            f" Records are on the brokers' partitions {', '.join(map(str, filled))}"
        )
    return (
        f"{layout.topic} has {layout.v_count} virtual partitions that have lain on others than those of their numbers:"
        " as an ordinary topic its keys go to other partitions than those where their records are, out of order."
        " It can be let go once it is empty: stop its producers, have its groups read to the end, delete its records"
        " (kafka-delete-records.sh through Kordon, or retention), and ask again."
        f" Records are on the brokers' partitions {', '.join(map(str, filled))}"
    )
