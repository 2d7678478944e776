"""Which batches may go to the present home of a virtual partition, identity by identity: SEQ-IMAGE and OPENER-ALONE.

A broker lets an identity that it does not know begin at any sequence. So the first batch of an identity in a new home
is the one behind the image (sequence 0 there), and goes alone: did it fail while a second one is under way, the second
would open the segment, and the next image would call the first one a duplicate.

    unknown ──(sequence 0 is sent)──> OPENING ──(written)──> OPEN
       ^ │                               │                    ^
       │ └──(another one: ask the broker, it is there)────────┘
       └────────(not written: FAILED)────┘
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final, TypeAlias

from kordon.proxy.ordering.images import Image, WhyNotWritten, sequence_at_home

MOST_REMEMBERED: Final = 10_000
"""Identities of one virtual partition; those that are forgotten are asked for again."""


class Pause(Enum):
    """Why a batch waits."""

    OPENING = "opening"
    """The first batch of its identity is under way."""
    QUESTION = "question"
    """Only the broker knows whether its identity has begun (DescribeProducers)."""


class WhyUnfit(Enum):
    """Why a batch cannot follow what its identity has in the log."""

    GAP = "gap"
    """Batches before it are missing: OUT_OF_ORDER_SEQUENCE_NUMBER, after which clients send them first."""
    UNKNOWN = "unknown"
    """Nobody remembers its identity: UNKNOWN_PRODUCER_ID, after which clients begin another epoch."""
    OUTDATED = "outdated"
    """Its partition was chosen by another number of partitions than there are, or is retired: it is not in an image, so
    INVALID_PARTITION_METADATA, after which dialect clients ask for metadata (COUNT-FENCE)."""


Verdict: TypeAlias = int | WhyNotWritten | WhyUnfit | Pause
"""The base sequence under which a batch goes into the log, or why it does not or not yet."""


class _Standing(Enum):
    OPENING = "opening"
    OPEN = "open"
    FAILED = "failed"


class Writers:
    """The identities that have written to one virtual partition in its present home, as far as is known here."""

    def __init__(self) -> None:
        self._standings: dict[int, _Standing] = {}

    def judge(
        self,
        image: Image,
        writer: int,
        epoch: int,
        base_sequence: int,
        last_sequence: int,
        *,
        asked: bool,
        is_outdated: bool = False,
    ) -> Verdict:
        """Judges a batch that is next.

        Args:
            image: The image of the virtual partition.
            writer: The writer whose sequences it continues (`identity.writer_id`).
            base_sequence: The sequence of the first record, as the client counts.
            last_sequence: The sequence of the last record.
            asked: Whether the broker was asked since the batch came, and does not know its identity.
            is_outdated: Whether it is not to be written under the present layout; if it stands in an earlier segment,
                that is what its client has to know (COUNT-FENCE).
        """
        written = image.get(writer)
        sequence = sequence_at_home(written, epoch, base_sequence, last_sequence)
        if isinstance(sequence, WhyNotWritten):
            return sequence
        if is_outdated:
            return WhyUnfit.OUTDATED
        standing = self._standings.get(writer)
        if standing is _Standing.OPEN:
            return sequence
        if standing is _Standing.OPENING:
            return Pause.OPENING
        if sequence == 0:
            return sequence
        if not asked:
            return Pause.QUESTION
        return WhyUnfit.UNKNOWN if written is None and standing is None else WhyUnfit.GAP

    def sent(self, writer: int) -> bool:
        """A batch goes to the broker; returns whether it is the first of its identity."""
        if self._standings.get(writer) is _Standing.OPEN:
            return False
        self._remember(writer, _Standing.OPENING)
        return True

    def opened(self, writer: int) -> None:
        """The broker knows the identity."""
        self._remember(writer, _Standing.OPEN)

    def failed(self, writer: int) -> None:
        """The first batch of an identity was not written, as far as is known."""
        self._remember(writer, _Standing.FAILED)

    def learn(self, begun: Collection[int]) -> None:
        """The broker was asked, and knows these identities."""
        for writer in begun:
            if self._standings.get(writer) is not _Standing.OPENING:
                self._remember(writer, _Standing.OPEN)

    def move(self) -> None:
        """Another home: nobody has begun there; whose first batch did not come through still has it to send."""
        self._standings = {
            writer: _Standing.FAILED for writer, standing in self._standings.items() if standing is not _Standing.OPEN
        }

    def _remember(self, writer: int, standing: _Standing) -> None:
        self._standings[writer] = standing
        if len(self._standings) > MOST_REMEMBERED:
            closed = (key for key, value in self._standings.items() if value is not _Standing.OPENING)
            self._standings.pop(next(closed, writer))
