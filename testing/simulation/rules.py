"""Each rule that concerns safety, and where the product keeps it: so that a simulation can go without it.

What is replaced is the product's own code, not a copy of it in the simulation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from kordon.client.moves import KeyMoves
from kordon.client.owned import Owned
from kordon.codecs.produce import WriteOutcome
from kordon.proxy.controller import managing, takeover_steps, takeovers
from kordon.proxy.controller.controller_role import ControllerRole
from kordon.proxy.kafka.ends import Snapshot
from kordon.proxy.ordering import images, known_topics, reading, takeover, write_sequencer
from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.changes import Change
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.identity import untag
from kordon.proxy.ordering.images import Image, ImageParts, sequence_at_home
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.lent_identity import LentIdentity
from kordon.proxy.ordering.member import Member
from kordon.proxy.ordering.next_images import NextImages
from kordon.proxy.ordering.placements import Epoch, Placement, Placements
from kordon.proxy.ordering.positions import Positions
from kordon.proxy.ordering.presence import Presence
from kordon.proxy.ordering.segments import Segment
from kordon.proxy.ordering.streams import Stream, is_physical
from kordon.proxy.ordering.under_way import Fate, KeptAnswers
from kordon.proxy.ordering.write_sequencer import Write
from kordon.proxy.ordering.writers import Verdict, WhyUnfit, Writers
from kordon.proxy.reads.worker_reads import ReadLimits
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic
from kordon.proxy.writes import write_outcomes
from kordon.proxy.writes.stream_queue import StreamQueue
from kordon.testing.taken_out import Place, Places, constant, taken_out


def _no_image(layout: Layout, change: Change, *_: object) -> dict[int, ImageParts]:
    movers = layout.change_to(change.fence.following).movers if change.fence is not None else ()
    return {v: ImageParts() for v in movers}


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


def _told_as_it_is(identity: Any, *_: object) -> bool:
    identity.in_flight -= 1
    return False


def _any_lease(member: Any, now: float) -> bool:
    del now
    return bool(member._caught_up)


def _nothing_is_old(member: Any) -> int:
    return int(member.reading)


def _success(layout: object, v: int, write: object, outcome: WriteOutcome, counts: object) -> WriteOutcome:
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


def _hashed_all_along(placements: Placements, epoch: Epoch, partition: int) -> tuple[range, ...]:
    return _RESIDENTS(
        placements, replace(epoch, placement=Placement.LINEAR) if _is_of_before(epoch) else epoch, partition
    )


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
    is_virtual = any(stay.delta for stay in chain.stays)
    return place if place is None or is_virtual else replace(place, stay=replace(place.stay, end=chain.stays[-1].end))


def _needs_of_its_parents(gate: Any, predecessors: Sequence[Segment]) -> Mapping[int, int]:
    del gate
    return {each.id.partition: each.end or 0 for each in predecessors}


def _of_any_generation(positions: Any, group_id: str, generation_id: int, topic: str) -> Mapping[int, int]:
    del generation_id
    group = positions._groups.get(group_id)
    told = [each.positions for (_, name), each in group.topics.items() if name == topic] if group is not None else []
    return {q: max(each.get(q, -1) for each in told) for q in {q for each in told for q in each}}


async def _settled(_: object) -> bool:
    return True


async def _read_before_fenced(leading: Any, read_to_end: Callable[[], Awaitable[object]]) -> None:
    await read_to_end()
    await leading._writer.open()


def _cut_at_once(layout: Layout, takeover_: Any, now_ms: int) -> Any:
    step = _NEXT_STEP(layout, takeover_, now_ms)
    return takeover.TakeoverStep.CUT if step is takeover.TakeoverStep.WAIT else step


_NEXT_STEP: Final = takeover.next_step
_JUDGE: Final = Writers.judge
_IMAGES_AFTER: Final = vars(known_topics)["_images_after"]
_STAY_OF: Final = Chain.stay_of
_RESIDENTS: Final = Placements.residents
_OWNER: Final = reading.Tenancy.owner
_BEYOND: Final = reading.position_beyond
_PLACE_OF: Final = reading.reading_place
_AT_CUT: Final = NextImages.at_cut

PLACES: Final[Places] = {
    "SEQ-IMAGE": Place(known_topics, "_images_after", _no_image),
    "SEQ-IMAGE: until brokers forget": Place(images, "is_forgotten", constant(True)),
    "OPENER-ALONE": Place(Writers, "judge", _no_gate),
    "LENT-IDENTITY": Place(LentIdentity, "answered", _told_as_it_is),
    "NO-OVERTAKING": Place(StreamQueue, "may_go_by", constant(True)),
    "STRAY-HIDDEN": Place(reading.Tenancy, "owner", _nothing_is_stray),
    "HOLE-PASSED": Place(reading, "position_beyond", _no_hole),
    "NO-FALSE-END": Place(ReadLimits, "settle_layouts", _settled),
    "LIVE-LEASE": Place(Member, "may_serve", _any_lease),
    "ONE-CONTROLLER": Place(ControllerRole, "_take_over", _read_before_fenced),
    "MISSING-WAITED": Place(Presence, "alone_from", property(constant(0.0))),
    "READ-BEFORE-SERVE": Place(Member, "on_joined", _nothing_is_old),
    "SHORT-FENCE": Place(Controller, "_cancel", constant([])),
    "FROZEN-READS": Place(Fence, "limit", constant(None)),
    "STILL-CUT": Place(Snapshot, "is_cut", property(constant(True))),
    "STILL-CUT: what was written since images were written ahead": Place(NextImages, "at_cut", _as_it_was_ahead),
    "STILL-CUT: what is written ahead counts with its layout": Place(ImageParts, "in_force", _whatever_its_layout),
    "LATE-ANSWER": Place(write_outcomes, "_written", _success),
    "LATE-ANSWER: kept for the lease": Place(KeptAnswers, "take", constant(Fate.TELL)),
    "PAST-STAYS": Place(Placements, "residents", _hashed_all_along),
    "TAKEOVER-WAITS: never back to the old view": Place(takeover, "may_be_shown", constant(True)),
    "TAKEOVER-WAITS: wait for groups": Place(takeovers, "left_to_read", constant(0)),
    "TAKEOVER-WAITS: wait for the old view": Place(managing, "first_placement", constant(Placement.LINEAR)),
    "FENCE-BARRIER": Place(ManagedTopic, "is_sealed", constant(False)),
    "PARENT-FIRST": Place(Gate, "asks", _asks_of_the_proposal),
    "PARENT-FIRST: through empty segments": Place(Gate, "_needs_of", _needs_of_its_parents),
    "PARENT-FIRST: an answer ends with its segment": Place(reading, "reading_place", _over_its_end),
    "PARENT-FIRST: positions of one generation": (
        Place(Positions, "of", _of_any_generation),
        Place(KeyMoves, "admits", constant(True)),  # the SDK knows better, and asks for nothing too early
    ),
    "FLUSH-BEFORE-LOAD: flush before it is told": Place(Owned, "begin_flush", _nothing_to_flush),
    "FLUSH-BEFORE-LOAD: load before it is read": Place(Owned, "_is_entered_freely", constant(True)),
    "KEY-ORDER": Place(Chain, "stay_of", _home_at_once),
}
"""By rule of docs/rules.md, or a part of one, what keeps it."""

OF_WRITERS: Final[Places] = {
    "COUNT-FENCE: the image before the count": Place(Writers, "judge", _count_before_image),
    "COUNT-FENCE: images of physical partitions": Place(known_topics, "_images_after", _no_physical_image),
    "COUNT-FENCE: the count": Place(write_sequencer, "_is_outdated", _any_count),
}
"""The same, of rules that only clients of the dialect need which write."""

OF_DELIVERING: Final[Places] = {
    "TAKEOVER-SHARES": Place(reading, "_shared", constant(())),
    "TAKEOVER-SHARES: the cut waits for the old view": Place(takeover_steps, "next_step", _cut_at_once),
    "TAKEOVER-SHARES: wait for groups behind the cut": Place(takeovers, "left_to_read", constant(0)),
}
"""The same, of takeovers in which no record waits."""


def without(rule: str) -> AbstractContextManager[None]:
    """Takes a rule out for a while.

    Args:
        rule: One of `PLACES`, `OF_WRITERS` or `OF_DELIVERING`; empty: none.
    """
    return taken_out(rule, {**PLACES, **OF_WRITERS, **OF_DELIVERING})
