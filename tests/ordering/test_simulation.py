"""Clusters in virtual time: whatever is killed, paused, cut off or late, nothing acknowledged is lost or doubled."""

from __future__ import annotations

import pytest

from kordon.testing.simulation.cluster import run
from kordon.testing.simulation.kept_seeds import PLAIN, kept
from kordon.testing.simulation.rules import PLACES

QUICK_SEEDS = 14
"""How many clusters live here; in `make deep` a hundred thousand do."""


def promises_hold(seed: int) -> None:
    """Lets a cluster live, and shows its last minutes if a promise was broken."""
    cluster = run(seed)
    assert not cluster.failures, "\n".join([f"seed {seed}", *cluster.world.story[-40:], *cluster.failures])


@pytest.mark.parametrize("seed", [*range(QUICK_SEEDS), *kept(PLAIN)])
def test_promises_hold_through_trouble(seed: int) -> None:
    """Topics are taken over, grow and shrink; nothing acknowledged is lost, doubled or out of order."""
    promises_hold(seed)


def test_a_seed_replays() -> None:
    """A failing cluster can be looked at again: its seed decides all that happens in it."""
    first, again = run(1), run(1)
    assert first.world.story == again.world.story
    assert first.delivered == again.delivered


NOTICED_IN = {
    "SEQ-IMAGE": 5,  # the image goes along with a move
    "SEQ-IMAGE: until brokers forget": 0,  # who is silent through one move may come back with what it had sent before
    "OPENER-ALONE": 12,  # the opener of a segment goes alone
    "LENT-IDENTITY": 0,  # after a failure, batches without producer id go on under another epoch
    "STRAY-HIDDEN": 11,  # what landed behind its cut is given to nobody
    "HOLE-PASSED": 0,  # what retention took from the middle of a chain is passed over
    "NO-FALSE-END": 1,  # what seems out of range may stand in a layout that has not been read yet
    "LIVE-LEASE": 9,  # nobody serves without a lease
    "MISSING-WAITED": 16,  # whoever is missing is waited for
    "READ-BEFORE-SERVE": 10,  # a lease alone does not let a proxy serve: it reads the layouts first
    "SHORT-FENCE": 4,  # a fence that takes too long is cancelled
    "FROZEN-READS": 0,  # nothing is delivered from behind a fence
    "STILL-CUT": 24,  # a cut is read again if somebody wrote meanwhile
    "STILL-CUT: what was written since images were written ahead": 7,  # a fence asks who has written after that
    "STILL-CUT: what is written ahead counts with its layout": 7,  # till then homes go on by what they have
    "LATE-ANSWER": 116,  # a success that comes late is held against the layouts
    "LATE-ANSWER: kept for the lease": 11,  # what comes behind it waits until they are read
    "PAST-STAYS": 1,  # v < N inherits the log of its partition
    "TAKEOVER-WAITS: never back to the old view": 4,  # whoever has been shown V partitions is not shown N again
    "TAKEOVER-WAITS: wait for groups": 3,  # v >= N is not delivered before every group has passed the cut
    "TAKEOVER-WAITS: wait for the old view": 4,  # no cut before all clients see V partitions
    "FENCE-BARRIER": 0,  # writes are held while a cut is read
    "KEY-ORDER": 0,  # former homes are read first
    "PARENT-FIRST: through empty segments": 0,  # an empty segment passes on what it waits for itself
    "PARENT-FIRST": 2,  # a dialect group waits for all that had a key before, wherever it stands: not KIP-253's rule
    "PARENT-FIRST: an answer ends with its segment": 0,  # what follows a cut is judged anew
    "PARENT-FIRST: positions of one generation": 0,  # who owns a partition next may begin at an earlier offset
    "FLUSH-BEFORE-LOAD: flush before it is told": 0,  # others load what this member has flushed
    "FLUSH-BEFORE-LOAD: load before it is read": 0,  # what others have flushed is not known here
}
"""By rule, a cluster that breaks a promise without it. Another number only costs time: more are looked through."""


@pytest.mark.parametrize("rule", PLACES)
def test_without_one_of_its_rules_a_cluster_breaks_a_promise(rule: str) -> None:
    """The simulation sees what rules are for; with all of them the same clusters keep every promise (above)."""
    assert any(run(each, without=rule).failures for each in (NOTICED_IN[rule], *range(2 * QUICK_SEEDS)))
