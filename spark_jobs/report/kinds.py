"""What each kind of finding means and what is to be done: a sentence each; docs/audit.md has a paragraph each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class FindingKind:
    """One kind of finding."""

    word: str
    title: str
    do: str
    """The first thing to do about it."""


KINDS: Final = {
    kind.word: kind
    for kind in (
        FindingKind(
            "gap",
            "The record of a worker's decisions has a gap",
            "The audit cannot judge these decisions. Give the log more room (decisions.queue_bytes) or faster brokers.",
        ),
        FindingKind(
            "bypass",
            "A client wrote to the brokers without Kordon",
            "Find the writer by its producer id and the time, and deny it access to the brokers (ACLs, network).",
        ),
        FindingKind(
            "stale-count",
            "A producer placed records by a layout that was not in force",
            "Keep the log of the worker that the finding names, and report it: Kordon must refuse such records.",
        ),
        FindingKind(
            "acknowledged-stray",
            "Kordon acknowledged a write that lies after the cut",
            "Readers do not see these records. Ask the producer's owner to write them again, and report the finding.",
        ),
        FindingKind(
            "unacknowledged",
            "A layout changed without the agreement of a worker",
            "Look at that worker's log around the fence, above all at its lease, and report the finding.",
        ),
        FindingKind(
            "cut-too-early",
            "The controller read the end of a partition before all workers had stopped writing to it",
            "Look for records after the cut that the finding names, and report the finding.",
        ),
        FindingKind(
            "cut-out-of-order",
            "The controller sealed a partition and did not read its end",
            "Keep the decisions of the worker that was the controller, and report the finding.",
        ),
        FindingKind(
            "early-admit",
            "A worker wrote by a new layout before it was in force",
            "Look at that worker's log around the fence, and report the finding.",
        ),
        FindingKind(
            "behind-cut",
            "An acknowledged write lies after the end that readers know",
            "Readers do not see these records. Ask the producer's owner to write them again, and report the finding.",
        ),
        FindingKind(
            "write-after-fence",
            "A worker wrote by the old layout after it had acknowledged the fence",
            "Look at that worker's log around the fence, above all at its lease, and report the finding.",
        ),
        FindingKind(
            "early-child",
            "A reader got newer records of a key before the group had read the older ones",
            "If processing depends on order, reset the group to the segment's start. Report the finding.",
        ),
        FindingKind(
            "went-back",
            "A reader got older records after newer ones without a request for them",
            "Look for repeats in what the group has processed of these offsets, and report the finding.",
        ),
        FindingKind(
            "skipped-range",
            "A reader did not get the records between two deliveries",
            "Let the group read these offsets again (reset its offsets), and report the finding.",
        ),
        FindingKind(
            "doubled-range",
            "A reader got more records than the topic has",
            "Look for repeats in what the group has processed of these offsets, and report the finding.",
        ),
        FindingKind(
            "uncommitted-range",
            "A read_committed reader got records that nobody has committed",
            "Undo what the group has made of the aborted transactions' records, and report the finding.",
        ),
        FindingKind(
            "told-ahead",
            "A group was sent on behind records that it had not read",
            "Reset the group to the offset that the finding says it had committed, and report the finding.",
        ),
        FindingKind(
            "told-behind",
            "A group was sent back to before what it had committed",
            "Look for repeats in what the group has processed of these offsets, and report the finding.",
        ),
        FindingKind(
            "doubled-sequence",
            "The topic has an acknowledged write of an idempotent producer twice",
            "Let consumers drop one of the two by producer and sequence, and report the finding.",
        ),
        FindingKind(
            "sequence-gap",
            "The topic lacks some sequences of a producer",
            "Look at the answers that the producer got for them. Acknowledged ones are lost. Report the finding.",
        ),
        FindingKind(
            "lost-write",
            "The topic lacks an acknowledged write",
            "First look at acks, min.insync.replicas and unclean elections of that partition. Then report the finding.",
        ),
        FindingKind(
            "misplaced-key",
            "Keys are in another virtual partition than their producer's partitioner has them",
            "If it is unknown, ask the producer's owner whether it gives partitions itself. Else report the finding.",
        ),
        FindingKind(
            "unwitnessed",
            "A transaction committed records that were written without its witness",
            "Compare what the producer was acknowledged in this transaction with what readers got. Report the finding.",
        ),
        FindingKind(
            "hidden-write",
            "A transaction committed records that no reader gets",
            "Ask the producer's owner to write them again. Look at that partition's elections. Report the finding.",
        ),
        FindingKind(
            "pushed-ahead",
            "The coordinator of a group got an offset with something undone before it",
            "Reset the group to the offset before which the finding says that all was done, and report the finding.",
        ),
        FindingKind(
            "pushed-back",
            "The coordinator of a group got an older stable offset than it had",
            "Look for repeats in what the group has processed of these offsets, and report the finding.",
        ),
        FindingKind(
            "claimed-after-end",
            "A commit counts in an incarnation that had ended",
            "Look whether the group has done what its reset asked for, reset it again if not, and report the finding.",
        ),
        FindingKind(
            "two-owners",
            "A source partition was given to two members of a group at once",
            "See how the client that leads the group shares partitions out, and compare what both have written.",
        ),
        FindingKind(
            "point-fell",
            "A restart point took the place of a newer one",
            "Compare it with what topics have of the source, set it (kordon sources alter), and report the finding.",
        ),
        FindingKind(
            "former-owner",
            "A member committed a restart point of a source partition that another one had taken over",
            "Look for repeats in what both members have written since, and report the finding.",
        ),
        FindingKind(
            "epoch-fell",
            "A transactional producer got an older epoch than an earlier one",
            "Stop one of the two instances with this transactional.id, and report the finding.",
        ),
        FindingKind(
            "not-bumped",
            "Two producers got the same epoch",
            "Stop one of the two instances with this transactional.id, and report the finding.",
        ),
        FindingKind(
            "doubled-epoch",
            "Two workers gave the same epoch",
            "Stop one of the two instances with this transactional.id, and report the finding.",
        ),
        FindingKind(
            "repeat-changed",
            "A repeated request got another answer than the first",
            "Restart the producer with this transactional.id, and report the finding.",
        ),
        FindingKind(
            "not-fenced",
            "A fenced producer raised the epoch",
            "Stop the former instance with this transactional.id, and report the finding.",
        ),
        FindingKind(
            "half-given",
            "A producer raised the epoch with half an identity",
            "Find the client library that sends such requests, and report the finding.",
        ),
    )
}
"""By their words, as findings carry them."""


def kind_of(word: str) -> FindingKind:
    """Returns what is known of a kind; of one that a later audit writes, its word."""
    return KINDS.get(word) or FindingKind(word, word.replace("-", " ").capitalize(), "See docs/audit.md.")
