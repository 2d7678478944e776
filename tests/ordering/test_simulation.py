"""Clusters in virtual time: whatever is killed, paused, cut off or late, nothing acknowledged is lost or doubled."""

from itertools import islice

import pytest

from kordon.testing.simulation.cluster import run
from kordon.testing.simulation.kept_seeds import PLAIN, kept
from kordon.testing.simulation.noticing import noticing
from kordon.testing.simulation.rules import PLACES

pytestmark = pytest.mark.slow

SEEDS = (*range(38), 45, 61, 62, 64)
"""Of the clusters that live here; in `make deep` a hundred thousand do. The first ones are not enough to notice each
rule that is missing (STILL-CUT, PARENT-FIRST), so others that do are here as well."""
SETTLED_SECONDS = 95.0
"""By which they all settle, of virtual time; a cluster that never does costs until then."""
ENOUGH = 3
"""As many of them notice that a rule is missing, at least: so it does not hang on the chance of one."""


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
    first, again = run(3), run(3)
    assert first.world.story == again.world.story
    assert first.delivered == again.delivered


def test_a_cluster_has_nothing_of_those_before_it() -> None:
    """A rule that one of them went without is kept by the next, and the other way round."""
    without = run(3, without="PAST-STAYS").failures
    assert not run(3).wrong
    assert run(3, without="PAST-STAYS").failures == without != []


def test_a_cluster_ends_where_a_promise_is_broken() -> None:
    """What would follow shows no more: `NOTICED_IN` costs as much time as it takes until something breaks."""
    cluster = run(19, without="FROZEN-READS")
    assert [each.partition(": ")[0] for each in cluster.failures] == [f"{cluster.world.now:.3f}"]


NOTICED_IN: dict[str, tuple[int, ...]] = {
    "SEQ-IMAGE": (2, 7, 29),  # the image goes along with a move
    # who is silent through a move may come back with what it had sent before
    "SEQ-IMAGE: until brokers forget": (24, 37, 17),
    "OPENER-ALONE": (16, 28, 26),  # the opener of a segment goes alone
    "LENT-IDENTITY": (0, 9, 11),  # after a failure, batches without producer id go on under another epoch
    "NO-OVERTAKING": (5, 28, 30),  # what is under way on one connection comes before what goes by another
    "STRAY-HIDDEN": (24, 64, 26),  # what landed behind its cut is given to nobody
    "HOLE-PASSED": (1, 14, 30),  # what retention took from the middle of a chain is passed over
    "NO-FALSE-END": (5, 12, 11),  # what seems out of range may stand in a layout that has not been read yet
    "LIVE-LEASE": (6, 12, 17),  # nobody serves without a lease
    "MISSING-WAITED": (6, 16, 22),  # whoever is missing is waited for
    "READ-BEFORE-SERVE": (16, 6, 17),  # a lease alone does not let a proxy serve: it reads the layouts first
    "SHORT-FENCE": (7, 28, 5),  # a fence that takes too long is cancelled
    "FROZEN-READS": (16, 6, 36),  # nothing is delivered from behind a fence
    "STILL-CUT": (34, 36, 62),  # a cut is read again if somebody wrote meanwhile
    # a fence asks who has written after that
    "STILL-CUT: what was written since images were written ahead": (25, 35, 23),
    # till then homes go on by what they have
    "STILL-CUT: what is written ahead counts with its layout": (5, 7, 9),
    # whoever takes over reads what the former controller has written, once that one is fenced
    "ONE-CONTROLLER": (15, 21, 31),
    "LATE-ANSWER": (6, 16, 24),  # a success that comes late is held against the layouts
    "LATE-ANSWER: kept for the lease": (3, 26, 36),  # what comes behind it waits until they are read
    "PAST-STAYS": (3, 1, 4),  # v < N inherits the log of its partition
    # whoever has been shown V partitions is not shown N again
    "TAKEOVER-WAITS: never back to the old view": (3, 31, 45),
    "TAKEOVER-WAITS: wait for groups": (21, 8, 45),  # v >= N is not delivered before every group has passed the cut
    "TAKEOVER-WAITS: wait for the old view": (21, 8, 4),  # no cut before all clients see V partitions
    "FENCE-BARRIER": (3, 18, 21),  # writes are held while a cut is read
    "KEY-ORDER": (3, 1, 2),  # former homes are read first
    "PARENT-FIRST: through empty segments": (0, 10, 61),  # an empty segment passes on what it waits for itself
    # a dialect group waits for all that had a key before, wherever it stands: not KIP-253's rule
    "PARENT-FIRST": (16, 24, 30),
    "PARENT-FIRST: an answer ends with its segment": (24, 30, 62),  # what follows a cut is judged anew
    "PARENT-FIRST: positions of one generation": (16, 24, 12),  # who is next may begin at an earlier offset
    "FLUSH-BEFORE-LOAD: flush before it is told": (0, 5, 9),  # others load what this member has flushed
    "FLUSH-BEFORE-LOAD: load before it is read": (2, 0, 5),  # what others have flushed is not known here
}
"""By rule, clusters that break a promise without it (`python -m kordon.testing.simulation.noticing` finds them). Other
numbers only cost time: more are looked through. Best are those that break early: one that never settles costs five
times as much."""


@pytest.mark.parametrize("rule", PLACES)
def test_without_one_of_its_rules_clusters_break_promises(rule: str) -> None:
    """The simulation sees what rules are for: with all of them the same clusters keep every promise (above)."""
    assert len([*islice(noticing(rule, SEEDS, NOTICED_IN[rule], SETTLED_SECONDS), ENOUGH)]) == ENOUGH
