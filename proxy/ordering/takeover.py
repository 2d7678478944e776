"""How a topic with data comes under management while its clients continue (TAKEOVER-WAITS).

    epoch            what is so                                                     ends when
    0  unmanaged     v < N is partition v; nobody else is there                     all proxies hold its writes
    1  own           v < N still on partition v; v >= N is written, not delivered   no client has the old view any more
    1' shared        v on partition v mod N, and delivered as virtual partition     the same, and every group is near
                     v mod N (TAKEOVER-SHARES)
    2  linear        each on its own home; v >= N is still not delivered            every group has passed the cuts
                     all are delivered

A key that was hashed to partition p before comes in a v with v mod N = p from now on, if its producer takes the hash
modulo the number of partitions, whatever the hash. So v must not be read by whoever has not read partition p up to
where the last producer with the old view has written: the cut. A quiesced topic leaves the second line out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement

NEAR_RECORDS: Final = 10_000
"""That a group may be behind on a partition when a topic whose records do not wait is cut: some seconds' work."""
MOST_SHARED: Final = 1_024
"""Virtual partitions of a topic that is taken over so: each of them has a past of its own from then on."""
TRANSITION_MS: Final = 420_000
"""metadata.max.age.ms (5 min) and delivery.timeout.ms (2 min) as clients have them by default."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member of a KIP-848 group whose coordinator knows the topic by the name that it had before (FACE-NAMES).

    Such members say what they subscribe to once. So its subscription is said again for it, with one of its heartbeats.
    """

    group: str
    member: str
    names: tuple[str, ...]
    """All that it subscribes to."""
    regex: str | None
    """Or what it subscribes by."""


@dataclass(frozen=True)
class Takeover:
    """What is left to do of a takeover; a topic that has none is delivered entirely.

    Attributes:
        until_ms: Wall clock, from when on no client has the old view any more; None: V is not shown yet, or only since
            a moment, and the time of the old view does not run yet.
        cuts: The offset that a group must have committed, by v < N. Empty before the last cut.
        left_out: Groups that are not waited for.
        waits_for: Groups that had not passed the cuts when they were looked at last.
        subscribers: Members that had not come to the new name then.
        transition_ms: How long clients may keep the old view once V is shown.
    """

    until_ms: int | None
    cuts: Mapping[int, int] = field(default_factory=dict[int, int])
    left_out: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    transition_ms: int = TRANSITION_MS


class TakeoverStep(Enum):
    """What is next in a takeover, or what it waits for."""

    SHOWN = "showing all virtual partitions"
    WAIT = "waiting for clients with the old view"
    CUT = "moving all to their homes"
    LOOK = "waiting for groups"


def next_step(layout: Layout, takeover: Takeover, now_ms: int) -> TakeoverStep:
    """Returns what is next at a time of the wall clock."""
    if layout.epochs[-1].placement is Placement.LINEAR:
        return TakeoverStep.LOOK
    if takeover.until_ms is None:
        return TakeoverStep.SHOWN
    return TakeoverStep.CUT if now_ms >= takeover.until_ms else TakeoverStep.WAIT


def shown(takeover: Takeover, now_ms: int) -> Takeover:
    """Returns what is left to do from when on clients are shown V, at a time of the wall clock.

    Whoever asked for Metadata just before keeps the old view for the whole transition from then on, however long it
    took from the wish to here.
    """
    return replace(takeover, until_ms=now_ms + takeover.transition_ms)


def first_placement(layout: Layout, *, quiesced: bool, delivers: bool) -> Placement:
    """Returns how virtual partitions lie when a topic has just been taken over.

    Args:
        quiesced: Nobody writes to it.
        delivers: Nothing that is written during the takeover waits (TAKEOVER-SHARES).
    """
    if quiesced or layout.v_count == layout.n:  # nobody sees more partitions than before: there is but one view
        return Placement.LINEAR
    return Placement.SHARED if delivers else Placement.OWN


def is_shared(layout: Layout) -> bool:
    """Whether what is written to v >= N is delivered as v mod N now (TAKEOVER-SHARES)."""
    return layout.epochs[-1].placement is Placement.SHARED


def is_near(committed: Mapping[int, int], log_starts: Mapping[int, int], log_ends: Mapping[int, int]) -> bool:
    """Whether a group will soon have read what stands before a cut that is made now (TAKEOVER-SHARES).

    Args:
        committed: Committed offsets by v < N, as in `has_passed`.
        log_starts: The start of the log, by partition p < N.
        log_ends: The offset after the last record, as groups commit it, by v < N.
    """
    behind = (end - max(committed.get(v, 0), log_starts.get(v, 0)) for v, end in log_ends.items())
    return not committed or max(behind, default=0) <= NEAR_RECORDS


def may_be_shown(layout: Layout) -> bool:
    """Whether clients may be told how many partitions a topic has.

    Not by a proxy that holds the topic until it is taken over: others may show V already. A client that came back from
    V to N would put a key's next records before those that it has in v >= N.
    """
    return layout.is_managed


def outdates_views(before: Layout, after: Layout) -> bool:
    """Whether clients have no time left to see V by themselves: those that wait idly have to be told."""
    is_at_home = after.epochs[-1].placement is Placement.LINEAR
    return not before.is_managed and is_at_home and after.v_count > after.n


def left_to_read(takeover: Takeover, committed: Mapping[int, int], log_starts: Mapping[int, int]) -> int:
    """Returns how many offsets before the cuts a group has not committed, as far as they are still there.

    Args:
        committed: The group's last committed offset, by v < N. Without a commit for v, the group counts as at the
            beginning. A group without any commit does not read the topic.
        log_starts: The start of the log, by partition p < N.
    """
    if not committed:
        return 0
    reached = {p: max(committed.get(p, 0), log_starts.get(p, 0)) for p in takeover.cuts}
    return sum(max(cut - reached[p], 0) for p, cut in takeover.cuts.items())


def looked_at(takeover: Takeover, behind: Iterable[str], subscribers: Iterable[Subscriber] = ()) -> Takeover | None:
    """Returns what is left to do after a look at the groups; None: nothing.

    Groups that have not passed the cuts are `behind`; `subscribers` are members that have not come to the new name.
    """
    waits_for = tuple(sorted(set(behind) - set(takeover.left_out)))
    left = sorted((each for each in subscribers if each.group not in takeover.left_out), key=lambda each: each.member)
    is_done = bool(takeover.cuts) and not waits_for and not left
    return None if is_done else replace(takeover, waits_for=waits_for, subscribers=tuple(left))
