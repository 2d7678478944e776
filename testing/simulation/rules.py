"""Each rule that concerns safety, and where the product keeps it: so that a simulation can go without it.

What is replaced is the product's own code, not a copy of it in the simulation. NO-FALSE-END alone is kept by the shell
of its readers, of which the simulation has a model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

from kordon.client.moves import KeyMoves
from kordon.client.owned import Owned
from kordon.codecs.produce import Outcome
from kordon.proxy.controller import managing, takeovers
from kordon.proxy.controller.leading import Leading
from kordon.proxy.kafka.ends import Snapshot
from kordon.proxy.ordering import controller, images, line, reading, takeover
from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.changes import Change
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.identity import untag
from kordon.proxy.ordering.images import Image, ImageParts, sequence_at_home
from kordon.proxy.ordering.layout import Epoch, Layout, Placement
from kordon.proxy.ordering.line import Line, Write
from kordon.proxy.ordering.member import Member
from kordon.proxy.ordering.next_images import NextImages
from kordon.proxy.ordering.positions import Positions
from kordon.proxy.ordering.presence import Presence
from kordon.proxy.ordering.segments import Segment
from kordon.proxy.ordering.streams import Stream, is_physical
from kordon.proxy.ordering.under_way import Fate, KeptAnswers
from kordon.proxy.ordering.writers import Verdict, WhyUnfit, Writers
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic
from kordon.proxy.writes import write_outcomes
from kordon.testing.simulation import gating
from kordon.testing.simulation.reading import Reading


@dataclass(frozen=True)
class _Place:
    """Where a rule is kept."""

    owner: Any
    name: str
    instead: Any
    """What stands there without the rule."""


def _no_image(layout: Layout, change: Change, *_: object) -> dict[int, ImageParts]:
    return {v: ImageParts() for v in layout.movers(change.fence.following)} if change.fence is not None else {}


def _as_it_was_ahead(ahead: NextImages, written: object, cut_ms: int) -> dict[Stream, ImageParts]:
    del written
    return _AT_CUT(ahead, {}, cut_ms)


def _whatever_its_layout(image: ImageParts, epoch: int) -> ImageParts:
    del epoch
    return image


def _no_gate(self: object, image: Image, client_id: int, *batch: int, asked: bool, is_outdated: bool) -> Verdict:
    del self, asked, is_outdated
    return sequence_at_home(image.get(client_id), *batch)


def _count_before_image(
    self: Any, image: Image, client_id: int, *batch: int, asked: bool, is_outdated: bool = False
) -> Verdict:
    if is_outdated:
        return WhyUnfit.OUTDATED
    verdict: Verdict = _JUDGE(self, image, client_id, *batch, asked=asked)
    return verdict


def _no_physical_image(*change: Any) -> dict[Stream, ImageParts]:
    return {stream: image for stream, image in _IMAGES_AFTER(*change).items() if not is_physical(stream)}


def _any_count(write: Write, home: Stay, count: int | None) -> bool:
    del count
    return write.undeleted_partition_count is not None and home.end is not None


def _told_as_it_is(line: Any, *_: object) -> bool:
    line._own.in_flight -= 1
    return True


def _any_lease(member: Any, now: float) -> bool:
    del now
    return bool(member._caught_up)


def _nothing_is_old(member: Any) -> int:
    return int(member._reading)


def _success(layout: object, v: int, write: object, outcome: Outcome, counts: object) -> Outcome:
    del layout, write, counts
    return outcome._replace(partition=v)


def _no_hole(stay: Stay, position: int, log_start: int, log_end: int) -> int | None:
    return None if position < log_start else _BEYOND(stay, position, log_start, log_end)


def _nothing_is_stray(
    tenancy: reading.Tenancy, producer_id: int, base_offset: int, *, is_control: bool
) -> reading.Resident | reading.Hidden:
    owner, identity = _OWNER(tenancy, producer_id, base_offset, is_control=is_control), untag(producer_id)
    if owner is not reading.Hidden.STRAY or identity is None or identity.is_physical:
        return owner
    stay = next(iter(tenancy.at(base_offset).values()), None)
    return reading.Resident(identity.v, stay) if stay is not None else owner


def _home_at_once(chain: Chain, offset: int) -> Stay | None:
    home = chain.home
    return home if home is None or offset < home.virtual_start else _STAY_OF(chain, offset)


def _hashed_all_along(layout: Layout, epoch: Epoch, partition: int) -> tuple[range, ...]:
    return _RESIDENTS(layout, replace(epoch, placement=Placement.LINEAR) if _is_of_before(epoch) else epoch, partition)


def _is_of_before(epoch: Epoch) -> bool:
    return epoch.placement is Placement.UNMANAGED


def _asks_of_the_proposal(gate: Gate, partition: int, offset: int, evidence: Evidence) -> tuple[int, ...]:
    """KIP-253's rule as it was written, but that logs end at sealed cuts all the same.

    Only direct predecessors count; of a partition that was added, only for who stands at its earliest offset (8.4).
    """
    segment = gate.segment_at(partition, offset)
    others = [each for each in segment.predecessors if each.partition != partition] if segment is not None else []
    is_added = segment is not None and len(others) == len(segment.predecessors)
    if is_added and offset > evidence.log_starts.get(partition, 0):
        return ()
    ends = {each.id: each.end or 0 for line in vars(gate)["_lines"].values() for each in line}
    waits = any(evidence.positions.get(each.partition, -1) < ends[each] for each in others)
    return tuple(each.partition for each in others) if waits else ()


def _nothing_to_flush(owned: Any) -> bool:
    owned.safe = owned.handled
    return False


def _over_its_end(chain: Chain, offset: int, floor: int) -> reading.ReadingPlace | None:
    """Finds a place in a physical partition that is read on behind the end of its segment."""
    place = _PLACE_OF(chain, offset, floor)
    return None if place is None else replace(place, stay=replace(place.stay, end=chain.stays[-1].end))


def _needs_of_its_parents(gate: Any, predecessors: Sequence[Segment]) -> Mapping[int, int]:
    del gate
    return {each.id.partition: each.end or 0 for each in predecessors}


def _of_any_generation(positions: Any, group_id: str, generation_id: int, topic: str) -> Mapping[int, int]:
    del generation_id
    group = positions._groups.get(group_id)
    told = [each.positions for (_, name), each in group.topics.items() if name == topic] if group is not None else []
    return {q: max(each.get(q, -1) for each in told) for q in {q for each in told for q in each}}


async def _read_before_fenced(leading: Any, read_to_end: Callable[[], Awaitable[object]]) -> None:
    await read_to_end()
    await leading._writer.open()


def _constant(value: object) -> Callable[..., Any]:
    def answer(*_: object, **__: object) -> object:
        return value

    return answer


_JUDGE: Final = Writers.judge
_IMAGES_AFTER: Final = vars(controller)["_images_after"]
_STAY_OF: Final = Chain.stay_of
_RESIDENTS: Final[Callable[[Layout, Epoch, int], tuple[range, ...]]] = vars(Layout)["_residents"]
_OWNER: Final = reading.Tenancy.owner
_BEYOND: Final = reading.position_beyond
_PLACE_OF: Final = reading.reading_place
_AT_CUT: Final = NextImages.at_cut

PLACES: Final[Mapping[str, _Place | tuple[_Place, ...]]] = {
    "SEQ-IMAGE": _Place(controller, "_images_after", _no_image),
    "SEQ-IMAGE: until brokers forget": _Place(images, "is_forgotten", _constant(True)),
    "OPENER-ALONE": _Place(Writers, "judge", _no_gate),
    "LENT-IDENTITY": _Place(Line, "_own_answered", _told_as_it_is),
    "STRAY-HIDDEN": _Place(reading.Tenancy, "owner", _nothing_is_stray),
    "HOLE-PASSED": _Place(reading, "position_beyond", _no_hole),
    "NO-FALSE-END": _Place(Reading, "settle_layouts", _constant(True)),
    "LIVE-LEASE": _Place(Member, "may_serve", _any_lease),
    "ONE-CONTROLLER": _Place(Leading, "_take_over", _read_before_fenced),
    "MISSING-WAITED": _Place(Presence, "alone_from", property(_constant(0.0))),
    "READ-BEFORE-SERVE": _Place(Member, "on_joined", _nothing_is_old),
    "SHORT-FENCE": _Place(Controller, "_cancel", _constant([])),
    "FROZEN-READS": _Place(Fence, "limit", _constant(None)),
    "STILL-CUT": _Place(Snapshot, "is_cut", property(_constant(True))),
    "STILL-CUT: what was written since images were written ahead": _Place(NextImages, "at_cut", _as_it_was_ahead),
    "STILL-CUT: what is written ahead counts with its layout": _Place(ImageParts, "in_force", _whatever_its_layout),
    "LATE-ANSWER": _Place(write_outcomes, "_written", _success),
    "LATE-ANSWER: kept for the lease": _Place(KeptAnswers, "take", _constant(Fate.TELL)),
    "PAST-STAYS": _Place(Layout, "_residents", _hashed_all_along),
    "TAKEOVER-WAITS: never back to the old view": _Place(takeover, "may_be_shown", _constant(True)),
    "TAKEOVER-WAITS: wait for groups": _Place(takeovers, "has_passed", _constant(True)),
    "TAKEOVER-WAITS: wait for the old view": _Place(managing, "first_placement", _constant(Placement.LINEAR)),
    "FENCE-BARRIER": _Place(ManagedTopic, "is_sealed", _constant(False)),
    "PARENT-FIRST": _Place(Gate, "asks", _asks_of_the_proposal),
    "PARENT-FIRST: through empty segments": _Place(Gate, "_needs_of", _needs_of_its_parents),
    "PARENT-FIRST: an answer ends with its segment": _Place(gating, "reading_place", _over_its_end),
    "PARENT-FIRST: positions of one generation": (
        _Place(Positions, "of", _of_any_generation),
        _Place(KeyMoves, "admits", _constant(True)),  # the SDK knows better, and asks for nothing too early
    ),
    "FLUSH-BEFORE-LOAD: flush before it is told": _Place(Owned, "begin_flush", _nothing_to_flush),
    "FLUSH-BEFORE-LOAD: load before it is read": _Place(Owned, "_is_entered_freely", _constant(True)),
    "KEY-ORDER": _Place(Chain, "stay_of", _home_at_once),
}
"""By rule of docs/rules.md, or a part of one, what keeps it."""

OF_WRITERS: Final[Mapping[str, _Place]] = {
    "COUNT-FENCE: the image before the count": _Place(Writers, "judge", _count_before_image),
    "COUNT-FENCE: images of physical partitions": _Place(controller, "_images_after", _no_physical_image),
    "COUNT-FENCE: the count": _Place(line, "_is_outdated", _any_count),
}
"""The same, of rules that only clients of the dialect need which write."""


@contextmanager
def without(rule: str) -> Iterator[None]:
    """Takes a rule out for a while.

    Args:
        rule: One of `PLACES` or `OF_WRITERS`; empty: none.
    """
    if not rule:
        yield
        return
    kept = PLACES.get(rule) or OF_WRITERS[rule]
    with ExitStack() as stack:
        for place in kept if isinstance(kept, tuple) else (kept,):
            stack.enter_context(patch.object(place.owner, place.name, place.instead))
        yield
