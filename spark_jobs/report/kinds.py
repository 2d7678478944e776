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
            "Decisions of a worker are not on record",
            "What they decided cannot be judged. Give the log more room (decisions.queue_bytes) or faster brokers.",
        ),
        FindingKind(
            "bypass",
            "Somebody wrote round Kordon",
            "Find the writer by its producer id and the time, and close its way to the brokers (ACLs, network).",
        ),
        FindingKind(
            "stale-count",
            "Records were placed by a layout that was not in force",
            "Keep the log of the worker that the finding names, and report it: Kordon must refuse this.",
        ),
        FindingKind(
            "acknowledged-stray",
            "A write behind the cut was acknowledged",
            "Readers do not see these records: have the producer's owner write them again, and report it.",
        ),
        FindingKind(
            "unacknowledged",
            "A layout was changed without a worker that should have agreed",
            "Look at that worker's log around the fence, its lease above all; report it.",
        ),
        FindingKind(
            "cut-too-early",
            "The end of a partition was read before all workers had stopped writing to it",
            "Look for records behind the cut that the finding names; report it.",
        ),
        FindingKind(
            "cut-out-of-order",
            "A partition was sealed, and nobody read where it ends",
            "Keep the decisions of the worker that was the controller; report it.",
        ),
        FindingKind(
            "early-admit",
            "A worker wrote by a new layout before it was in force",
            "Look at that worker's log around the fence; report it.",
        ),
        FindingKind(
            "behind-cut",
            "An acknowledged write lies behind the end that its readers know",
            "Readers do not see these records: have the producer's owner write them again, and report it.",
        ),
        FindingKind(
            "write-after-fence",
            "A worker wrote by the old layout after it had acknowledged the fence",
            "Look at that worker's log around the fence, its lease above all; report it.",
        ),
        FindingKind(
            "early-child",
            "A reader was given a key's newer records before its older ones were done",
            "If processing depends on order, take the group back to the segment's start; report it.",
        ),
        FindingKind(
            "went-back",
            "A reader was given older records after newer ones without having asked for it",
            "Look for repeats in what the group has processed of these offsets; report it.",
        ),
        FindingKind(
            "skipped-range",
            "A reader was not given what lies between two deliveries",
            "Have the group read these offsets again (reset its offsets); report it.",
        ),
        FindingKind(
            "doubled-range",
            "A reader was given more than there is",
            "Look for repeats in what the group has processed of these offsets; report it.",
        ),
        FindingKind(
            "doubled-sequence",
            "An acknowledged write of an idempotent producer stands twice",
            "Have consumers drop one of the two, by producer and sequence; report it.",
        ),
        FindingKind(
            "sequence-gap",
            "In a producer's sequences some are missing",
            "Look at what the producer was told of them; the writes that were acknowledged are lost. Report it.",
        ),
        FindingKind(
            "lost-write",
            "An acknowledged write is not in the topic",
            "Look at acks, min.insync.replicas and unclean elections of that partition first; then report it.",
        ),
        FindingKind(
            "epoch-fell",
            "A transactional producer was given an older epoch than there was",
            "Stop one of the two instances with this transactional.id; report it.",
        ),
        FindingKind(
            "not-bumped",
            "Two producers were given the same epoch",
            "Stop one of the two instances with this transactional.id; report it.",
        ),
        FindingKind(
            "doubled-epoch",
            "Two workers gave the same epoch",
            "Stop one of the two instances with this transactional.id; report it.",
        ),
        FindingKind(
            "repeat-changed",
            "A repeated request got another answer than the first",
            "Restart the producer with this transactional.id; report it.",
        ),
        FindingKind(
            "not-fenced",
            "A producer that was fenced raised the epoch",
            "Stop the former instance with this transactional.id; report it.",
        ),
        FindingKind(
            "half-given",
            "An epoch was raised by half an identity",
            "Find the client library that sends such a request; report it.",
        ),
    )
}
"""By their words, as findings carry them."""


def kind_of(word: str) -> FindingKind:
    """Returns what is known of a kind; of one that a later audit writes, its word."""
    return KINDS.get(word) or FindingKind(word, word.replace("-", " ").capitalize(), "See docs/audit.md.")
