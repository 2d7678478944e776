"""Clusters in virtual time: whatever is killed, paused, cut off or late, nothing acknowledged is lost or doubled."""

from itertools import islice

import pytest

from kordon.testing.simulation.cluster import run
from kordon.testing.simulation.kept_seeds import PLAIN, kept
from kordon.testing.simulation.noticing import noticing
from kordon.testing.simulation.rules import PLACES

SEEDS = (*range(38), 71, 79)
"""Of the clusters that live here; in `make deep` a hundred thousand do. Of the first ones only one notices when what is
written ahead counts too early (STILL-CUT), so two others that do are here as well."""
SETTLED_SECONDS = 105.0
"""By which they all settle, of virtual time; a cluster that never does costs until then."""
ENOUGH = 3
"""As many of them notice that a rule is missing, at least."""


def promises_hold(seed: int) -> None:
    """Lets a cluster live, and shows its last minutes if a promise was broken."""
    cluster = run(seed, heal_seconds=SETTLED_SECONDS)
    assert not cluster.wrong, "\n".join([f"seed {seed}", *cluster.world.story[-40:], *cluster.wrong])


@pytest.mark.parametrize("seed", [*SEEDS, *kept(PLAIN)])
def test_promises_hold_through_trouble(seed: int) -> None:
    """Topics are taken over, grow and shrink; nothing acknowledged is lost, doubled or out of order."""
    promises_hold(seed)


def test_a_seed_replays() -> None:
    """A failing cluster can be looked at again: its seed decides all that happens in it."""
    first, again = run(1), run(1)
    assert first.world.story == again.world.story
    assert first.delivered == again.delivered


def test_a_cluster_ends_where_a_promise_is_broken() -> None:
    """What would follow shows no more: `NOTICED_IN` costs as much time as it takes until something breaks."""
    cluster = run(0, without="FROZEN-READS")
    assert [each.partition(": ")[0] for each in cluster.failures] == [f"{cluster.world.now:.3f}"]


NOTICED_IN: dict[str, tuple[int, ...]] = {
    "SEQ-IMAGE": (0, 2, 5),  # the image goes along with a move
    # who is silent through a move may come back with what it had sent before
    "SEQ-IMAGE: until brokers forget": (2, 12, 17),
    "OPENER-ALONE": (0, 5, 6),  # the opener of a segment goes alone
    "LENT-IDENTITY": (0, 5, 6),  # after a failure, batches without producer id go on under another epoch
    "STRAY-HIDDEN": (0, 20, 25),  # what landed behind its cut is given to nobody
    "HOLE-PASSED": (0, 2, 5),  # what retention took from the middle of a chain is passed over
    "NO-FALSE-END": (0, 5, 11),  # what seems out of range may stand in a layout that has not been read yet
    "LIVE-LEASE": (0, 5, 11),  # nobody serves without a lease
    "MISSING-WAITED": (0, 5, 15),  # whoever is missing is waited for
    "READ-BEFORE-SERVE": (0, 5, 11),  # a lease alone does not let a proxy serve: it reads the layouts first
    "SHORT-FENCE": (9, 10, 35),  # a fence that takes too long is cancelled
    "FROZEN-READS": (0, 5, 19),  # nothing is delivered from behind a fence
    "STILL-CUT": (5, 22, 25),  # a cut is read again if somebody wrote meanwhile
    # a fence asks who has written after that
    "STILL-CUT: what was written since images were written ahead": (7, 11, 15),
    # till then homes go on by what they have
    "STILL-CUT: what is written ahead counts with its layout": (35, 71, 79),
    # whoever takes over reads what the former controller has written, once that one is fenced
    "ONE-CONTROLLER": (1, 12, 13),
    "LATE-ANSWER": (0, 20, 25),  # a success that comes late is held against the layouts
    "LATE-ANSWER: kept for the lease": (0, 27, 29),  # what comes behind it waits until they are read
    "PAST-STAYS": (1, 3, 4),  # v < N inherits the log of its partition
    # whoever has been shown V partitions is not shown N again
    "TAKEOVER-WAITS: never back to the old view": (3, 18, 21),
    "TAKEOVER-WAITS: wait for groups": (1, 14, 31),  # v >= N is not delivered before every group has passed the cut
    "TAKEOVER-WAITS: wait for the old view": (1, 4, 8),  # no cut before all clients see V partitions
    "FENCE-BARRIER": (1, 3, 4),  # writes are held while a cut is read
    "KEY-ORDER": (0, 1, 2),  # former homes are read first
    "PARENT-FIRST: through empty segments": (0, 22, 23),  # an empty segment passes on what it waits for itself
    # a dialect group waits for all that had a key before, wherever it stands: not KIP-253's rule
    "PARENT-FIRST": (0, 2, 5),
    "PARENT-FIRST: an answer ends with its segment": (0, 2, 5),  # what follows a cut is judged anew
    "PARENT-FIRST: positions of one generation": (0, 2, 5),  # who owns a partition next may begin at an earlier offset
    "FLUSH-BEFORE-LOAD: flush before it is told": (0, 2, 5),  # others load what this member has flushed
    "FLUSH-BEFORE-LOAD: load before it is read": (0, 2, 5),  # what others have flushed is not known here
}
"""By rule, clusters that break a promise without it (`python -m kordon.testing.simulation.noticing` finds them). Other
numbers only cost time: more are looked through. Best are those that settle: the others cost five times as much."""


@pytest.mark.parametrize("rule", PLACES)
def test_without_one_of_its_rules_clusters_break_promises(rule: str) -> None:
    """The simulation sees what rules are for: with all of them the same clusters keep every promise (above)."""
    assert len([*islice(noticing(rule, SEEDS, NOTICED_IN[rule], SETTLED_SECONDS), ENOUGH)]) == ENOUGH
