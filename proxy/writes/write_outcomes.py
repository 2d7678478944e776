"""What clients are told of their writes to managed topics (SEQ-IMAGE, LENT-IDENTITY, LATE-ANSWER, OFFSET-CHAIN)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import structlog

from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.produce import WriteOutcome, build_outcomes
from kordon.proxy.core.errors import SilentWriteFailed
from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.images import WhyNotWritten
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import Stream, is_physical, shown_partition
from kordon.proxy.ordering.write_result import Result
from kordon.proxy.ordering.write_sequencer import NO_PRODUCER, Binding, Write
from kordon.proxy.ordering.writers import WhyUnfit

log = structlog.get_logger(__name__)

_RESULTS: Final[Mapping[int, Result]] = {
    Code.NONE: Result.WRITTEN,
    Code.DUPLICATE_SEQUENCE_NUMBER: Result.WRITTEN,
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER: Result.SEQUENCE,
    Code.INVALID_PRODUCER_EPOCH: Result.SEQUENCE,
    Code.UNKNOWN_PRODUCER_ID: Result.SEQUENCE,
    Code.CORRUPT_MESSAGE: Result.REJECTED,
    Code.MESSAGE_TOO_LARGE: Result.REJECTED,
    Code.RECORD_LIST_TOO_LARGE: Result.REJECTED,
    Code.INVALID_TIMESTAMP: Result.REJECTED,
    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: Result.REJECTED,
    Code.UNSUPPORTED_COMPRESSION_TYPE: Result.REJECTED,
    Code.INVALID_RECORD: Result.REJECTED,
}
"""The result by the broker's error code; all other codes refuse the batch. Brokers look at a batch before they give it
an offset (UnifiedLog.append, LogValidator in Kafka 4.3), and have appended nothing of one that they reject."""
LEADER_ERRORS: Final[frozenset[int]] = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REPLICA_NOT_AVAILABLE,
        Code.KAFKA_STORAGE_ERROR,
    }
)
"""Error codes after which the leaders are looked up again."""
_REFUSALS: Final = {
    WhyNotWritten.DUPLICATE: Code.NONE,
    WhyNotWritten.FENCED: Code.INVALID_PRODUCER_EPOCH,
    WhyUnfit.GAP: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    WhyUnfit.UNKNOWN: Code.UNKNOWN_PRODUCER_ID,
    WhyUnfit.OUTDATED: Code.INVALID_PARTITION_METADATA,
}


@dataclass(slots=True)
class ProduceCounts:
    """Counts of what a worker has written to managed topics; they only rise."""

    batches: int = 0
    """Batches that are written, as the broker said."""
    bytes: int = 0
    duplicates: int = 0
    """Batches that were found in an image (SEQ-IMAGE)."""
    refused: int = 0
    """Batches with another verdict on their identity."""
    outdated: int = 0
    """Batches of dialect clients that named another number of partitions than there are (COUNT-FENCE)."""
    held: int = 0
    """Virtual partitions that had to wait for a fence or a lease."""
    given_up: int = 0
    """Writes that waited for too long."""
    lost: int = 0
    """Writes without an answer."""
    strays: int = 0
    """Batches that were written behind a cut, and not acknowledged."""
    kept: int = 0
    """Answers that came after the lease had ended (LATE-ANSWER)."""
    shortened: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """Partitions, by topic, whose log ends below the start of their segment, by an unclean election (BEYOND-LOSS)."""

    def by_outcome(self) -> dict[str, int]:
        """Returns how many writes came to each end, by its name in the metric."""
        return {
            "written": self.batches,
            "duplicate": self.duplicates,
            "refused": self.refused,
            "given_up": self.given_up,
            "lost": self.lost,
            "stray": self.strays,
            "outdated": self.outdated,
        }


def answer_of(version: int, acks: int, rows: list[tuple[str, UUID | None, list[WriteOutcome]]]) -> bytes:
    """Makes the answer to a Produce request.

    Args:
        rows: By topic, its name, its id in versions that have ids, and the outcome of each entry.

    Raises:
        SilentWriteFailed: As for `end_if_failed`.
    """
    if not acks:
        end_if_failed(outcome.error_code for _, _, outcomes in rows for outcome in outcomes)
    return build_outcomes(version, rows)


def end_if_failed(codes: Iterable[int]) -> None:
    """Ends the connection of a client that waits for no answer (acks=0) if one of its entries failed.

    Brokers do the same (KafkaApis.handleProduceRequest), so that clients ask for leaders and rights again.

    Raises:
        SilentWriteFailed: An entry failed.
    """
    if errors := {name_of(code) for code in codes if code}:
        raise SilentWriteFailed(f"a write with acks=0 to a managed topic failed: {', '.join(sorted(errors))}")


def result_of(outcome: WriteOutcome | None) -> Result:
    """Returns what a broker's answer means for the stream's sequences; None: there is none."""
    return Result.LOST if outcome is None else _RESULTS.get(outcome.error_code, Result.REFUSED)


def refused(layout: Layout, stream: Stream, why: WhyNotWritten | WhyUnfit, counts: ProduceCounts) -> WriteOutcome:
    """Makes the answer to a write that does not go into the log.

    Args:
        counts: The counts that are raised.
    """
    if why is WhyNotWritten.DUPLICATE:
        counts.duplicates += 1
    elif why is WhyUnfit.OUTDATED:
        counts.outdated += 1
    else:
        counts.refused += 1
    # with a log start, or else Java repeats an unknown producer id forever (TransactionManager.canRetry)
    return WriteOutcome(shown_partition(stream), _REFUSALS[why], log_start_offset=layout.chain(stream).start)


def told(
    layout: Layout, stream: Stream, write: Write, outcome: WriteOutcome | None, counts: ProduceCounts
) -> WriteOutcome:
    """Turns a broker's answer into the client's.

    Args:
        layout: The layout in force now; what does not stand in it is no success (LATE-ANSWER).
        write: The write, as it was sent.
        outcome: The broker's answer. None: there is none.
        counts: The counts that are raised.
    """
    partition = shown_partition(stream)
    if outcome is None:
        counts.lost += 1
        return WriteOutcome(partition, Code.REQUEST_TIMED_OUT)
    result = result_of(outcome)
    if result is Result.WRITTEN:
        return _written(layout, stream, write, outcome, counts)
    if write.producer_id == NO_PRODUCER and result is Result.SEQUENCE:
        return WriteOutcome(partition, Code.NOT_LEADER_OR_FOLLOWER)  # LENT-IDENTITY: its client knows of no sequences
    return outcome._replace(partition=partition, base_offset=-1, log_start_offset=layout.chain(stream).start)


def _written(
    layout: Layout, stream: Stream, write: Write, outcome: WriteOutcome, counts: ProduceCounts
) -> WriteOutcome:
    bound, chain, partition = write.bound, layout.chain(stream), shown_partition(stream)
    assert bound is not None, "it was sent"
    stay, is_held = _stay_of(chain, bound, outcome.base_offset)
    if stay is None or not (is_held or outcome.base_offset < 0):
        counts.strays += 1
        if stay is not None and outcome.base_offset < stay.start:
            _tell_shortened(layout.topic, stay, outcome, counts)
        return WriteOutcome(partition, Code.NOT_LEADER_OR_FOLLOWER)
    counts.batches += 1
    counts.bytes += write.size
    is_whole_log = len(chain.stays) == 1 or is_physical(stream)
    start = outcome.log_start_offset + stay.delta if is_whole_log else chain.start
    floor = layout.floors.get(stream, 0) if layout.floors else 0
    base_offset = outcome.base_offset + stay.delta if outcome.base_offset >= 0 else -1
    return WriteOutcome(partition, Code.NONE, base_offset, outcome.log_append_time_ms, max(start, floor))


def _stay_of(chain: Chain, bound: Binding, offset: int) -> tuple[Stay | None, bool]:
    """Returns where a write landed, and whether its offset lies there.

    That is the stay it was bound to; of several parts of one, that which holds the offset.
    """
    last: Stay | None = None
    for stay in reversed(chain.stays):
        if stay.partition == bound.partition and stay.move == bound.move:
            if stay.holds(offset):
                return stay, True
            last = last or stay
    return last, False


def _tell_shortened(topic: str, stay: Stay, outcome: WriteOutcome, counts: ProduceCounts) -> None:
    """Says once that a log has lost records which its segment stands on; readers would never find this write."""
    place = (topic, stay.partition)
    if place not in counts.shortened:
        counts.shortened.add(place)
        log.error("log_shortened", topic=topic, partition=stay.partition, wrote=outcome.base_offset, cut=stay.start)
