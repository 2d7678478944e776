"""KIP-253's leader epochs around a partition's creation and deletion, by what a layout says.

Towards clients of the dialect a physical partition's leader epoch is the layout epoch of its segment, then the broker's
own leader epoch (`epochs`). A change of the layout so is what the proposal has the controller do: all partitions whose
keys change go on with a higher leader epoch, and what was written before is of lower ones. The proposal's znodes hold
the last leader epoch before the change by partition; here it is the same number for all that had the keys:

    partition 3 was added by layout epoch 5:      leader_epoch_after_creation  = (5 << 15) - 1
    and taken away again by layout epoch 8:       leader_epoch_before_deletion = (8 << 15) - 1

OffsetForLeaderEpoch of another partition for that number gives the cut: where its part of those keys ended.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kordon.proxy.ordering.epochs import virtual_epoch
from kordon.proxy.ordering.layout import Layout

NO_EPOCH: Final = -1


class LeaderEpochs(NamedTuple):
    """The leader epochs of one physical partition."""

    after_creation: int = NO_EPOCH
    """The last leader epoch before it came; -1: it was there from the start, or is not there."""
    before_deletion: int = NO_EPOCH
    """The last leader epoch before it was retired; -1: it is not."""


def leader_epochs(layout: Layout, partition: int) -> LeaderEpochs:
    """Returns the leader epochs of a physical partition's present life; one that was added again has begun another."""
    created = deleted = NO_EPOCH
    exists = partition < layout.epochs[0].u
    for number, u in layout.counts[1:]:
        if exists == (partition < u):
            continue
        exists = not exists
        if exists:
            created, deleted = number, NO_EPOCH
        else:
            deleted = number
    return LeaderEpochs(_last_before(created), _last_before(deleted))


def _last_before(layout_epoch: int) -> int:
    return NO_EPOCH if layout_epoch == NO_EPOCH else virtual_epoch(layout_epoch, 0) - 1
