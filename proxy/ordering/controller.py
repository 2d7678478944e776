"""The controller: changes layouts, one procedure per topic, each step durable before the next.

    PREPARING ──(partitions are there, no lease is missing)──> FENCING ──(all have acknowledged)──> CUTTING ──> done
        ^                                                        │                                    │
        └────────────────────(too long, or somebody went missing: cancelled by a record)─────────────┘

Where a topic has very many producers, their images are written down before the fence (WRITING_AHEAD, `next_images.py`).

It decides from what the layouts topic says and from the proxies' group, and does no I/O: events in, commands out. Any
later controller begins from the same log: a fence that it finds there is cancelled and its wish begun again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kordon.proxy.ordering.changes import (
    REMEMBERED_MS,
    Abandoned,
    Change,
    Command,
    Commit,
    ConfirmMembers,
    Finished,
    Prepare,
    Producers,
    ReadCuts,
    Stage,
    WriteAhead,
)
from kordon.proxy.ordering.images import ImageParts, ImageRecord, carried
from kordon.proxy.ordering.layout import Epoch, Layout, Placement
from kordon.proxy.ordering.next_images import Ahead, NextImages, homes_left, sorted_out, written_by
from kordon.proxy.ordering.records import FenceRecord, TopicRecord, Value, image_key, why_never
from kordon.proxy.ordering.streams import Stream

FENCE_SECONDS: Final = 2.0
"""How long proxies hold writes before a fence is cancelled: below the patience of every client."""
RETRY_SECONDS: Final = 1.0
"""Between a cancelled attempt and the next."""
MISSED_RETRY_SECONDS: Final = 12.0
"""The same where a member did not acknowledge and is still one: it may be dead, and every attempt holds writes for
nothing until the group gives it up (session timeout, 10 s)."""
MOST_FAILURES: Final = 3
"""Attempts in a row that fail for the same reason, which is not that somebody is away: the change is given up then."""


class Controller:
    """Changes layouts while this proxy leads the proxies' group.

    Args:
        members: Incarnations of the present generation.
        alone_from: From when on nobody serves but these, by `Presence` (MISSING-WAITED).
    """

    def __init__(self, members: frozenset[str], alone_from: float) -> None:
        self._members = members
        self._alone_from = alone_from
        self._topics: dict[str, TopicRecord] = {}
        self._images: dict[str, dict[Stream, ImageParts]] = {}
        self._changes: dict[str, Change] = {}

    @property
    def changes(self) -> Mapping[str, Change]:
        """What is under way, by topic."""
        return self._changes

    def know(self, topic: TopicRecord, images: Mapping[Stream, ImageParts]) -> None:
        """Takes in what the layouts topic says of a topic, before anything is asked of it."""
        self._topics[topic.layout.topic] = topic
        self._images[topic.layout.topic] = dict(images)

    def know_again(self, topic: TopicRecord) -> None:
        """Takes in a layout that differs in no epoch, while no change of the topic is under way."""
        self._topics[topic.layout.topic] = topic

    @property
    def alone_from(self) -> float:
        """From when on nobody serves but the members of the present generation (MISSING-WAITED)."""
        return self._alone_from

    def raised(self, fence: str) -> bool:
        """Whether a fence that stands, by its id, is one of this controller's: it need not read who acknowledges it."""
        return any(each.fence is not None and each.fence.id == fence for each in self._changes.values())

    def image_keys(self, topic: str) -> list[str]:
        """Returns the keys of all records of a topic's images."""
        images = self._images.get(topic, {})
        return [image_key(topic, stream, part) for stream, image in images.items() for part in image.parts]

    def forget(self, topic: str) -> None:
        """A topic is let go; a change of it that is between two attempts is given up."""
        self._changes.pop(topic, None)
        self._topics.pop(topic, None)
        self._images.pop(topic, None)

    def found_fence(self, fence: FenceRecord, now: float) -> list[Command]:
        """Takes over what a former controller left under way: cancels it, and begins anew.

        A topic that was not managed yet is begun anew by the wish of which it was a part.
        """
        if not fence.sealed:  # it asked who knows the layout, and changes nothing
            return [Commit(fence.topic, ((f"fence/{fence.topic}", None),))]
        has_no_wish = (
            fence.taking_over is not None or fence.following.renewed
        )  # a takeover, or the janitor, begins again
        problem = "another controller has begun" if has_no_wish else ""
        change = Change(fence.topic, fence.following.u, Stage.CANCELLING, now, fence, problem=problem)
        if fence.following.shortened:
            change.placement, change.shortened = fence.following.placement, dict(fence.following.shortened)
        self._changes[fence.topic] = change
        return [Commit(fence.topic, ((f"fence/{fence.topic}", None),))]

    def resize(self, topic: str, target: int, now: float) -> list[Command]:
        """Begins a change; the caller has checked the count, and that no other change of the topic is under way."""
        change = self._changes[topic] = Change(topic, target)
        return self._prepare(change, now)

    def mend(self, topic: str, shortened: Mapping[int, int], now: float) -> list[Command]:
        """Goes on behind what was lost, by a layout epoch of its own or by that of a change under way (BEYOND-LOSS).

        Args:
            topic: Known.
            shortened: By physical partition whose log has got shorter, the offset from which on all was lost.
            now: Seconds on the clock of leases.
        """
        change = self._changes.get(topic)
        if change is None:
            newest = self._topics[topic].layout.epochs[-1]
            change = self._changes[topic] = Change(topic, newest.u, placement=newest.placement)
            change.shortened.update(shortened)
            return self._prepare(change, now)
        change.shortened.update(shortened)  # the next attempt has it; one that stands now cannot find its cuts
        return self._cancel(change, now) if change.stage in (Stage.CONFIRMING, Stage.FENCING) else []

    def renew(self, topic: str, partitions: frozenset[int], now: float) -> list[Command]:
        """Begins another segment on partitions, so that the janitor can write first in it (KIP-253 9).

        Args:
            topic: Known, and no change of it is under way.
            partitions: Physical, that are written to.
            now: Seconds on the clock of leases.
        """
        newest = self._topics[topic].layout.epochs[-1]
        change = self._changes[topic] = Change(topic, newest.u, placement=newest.placement, renewed=partitions)
        return self._prepare(change, now)

    def take_over(
        self, record: TopicRecord, placement: Placement, now: float, *, expected: Mapping[int, int] | None = None
    ) -> list[Command]:
        """Begins to manage a topic that has data; the caller has seen to its face.

        Args:
            record: By `Layout.unmanaged`.
            placement: By `first_placement`.
            now: Seconds on the clock of leases.
            expected: By partition, where its log must end because nobody writes; None: it may end anywhere.
        """
        layout = record.layout
        self.know(record, {})
        change = self._changes[layout.topic] = Change(layout.topic, layout.n, placement=placement, expected=expected)
        return self._prepare(change, now)

    def on_members(self, members: frozenset[str], now: float, alone_from: float) -> list[Command]:
        """The group has another generation, or more is known of who is missing in it; arguments as at the beginning."""
        self._members, self._alone_from = members, alone_from
        confirm = [each.topic for each in self._changes.values() if each.stage is Stage.CONFIRMING]
        return [*(ConfirmMembers(topic) for topic in confirm), *self._look(now)]

    def on_prepared(
        self,
        topic: str,
        problem: str | None,
        now: float,
        remembered_ms: int = REMEMBERED_MS,
        *,
        has_many: bool = False,
    ) -> list[Command]:
        """The partitions are there, or could not be made.

        Args:
            topic: Whose.
            problem: Why not; None: they are there.
            now: Seconds on the clock of leases.
            remembered_ms: For how long brokers remember a producer that is silent.
            has_many: Whether it has too many producers for a fence to ask for all of them.
        """
        change = self._changes.get(topic)
        if change is None or change.stage is not Stage.PREPARING:
            return []
        change.remembered_ms, change.has_many = remembered_ms, has_many
        if problem is not None:
            return self._enter(change, Stage.PAUSING, now)
        return [*self._enter(change, Stage.WAITING, now), *self._look(now)]

    def on_written_ahead(self, topic: str, written: Iterable[Ahead]) -> None:
        """Parts of images to come are durable."""
        images = self._images.setdefault(topic, {})
        for stream, number, part in written:
            images[stream] = images.get(stream, _NO_IMAGE).with_part(number, part)

    def on_ahead(
        self, topic: str, images: NextImages, now: float, problem: str | None, reason: str = ""
    ) -> list[Command]:
        """Images are written ahead, or could not be.

        Args:
            topic: Whose.
            images: As they were asked for.
            now: Seconds on the clock of leases.
            problem: Why not; None: they are.
            reason: The same where another attempt would most likely fail for it as well; empty: it would not.
        """
        change = self._changes.get(topic)
        if change is None or change.stage is not Stage.WRITING_AHEAD or change.ahead is not images:
            return []
        if problem is None:
            change.is_ahead = True
            return self._enter(change, Stage.WAITING, now)
        change.ahead = None
        _blame(change, reason)
        return self._cancel(change, now) if change.problem else self._enter(change, Stage.PAUSING, now)

    def on_refused(self, topic: str, code: int, problem: str) -> list[Command]:
        """The cluster will never have the partitions that are missing: nothing has been held yet, nothing changes."""
        change = self._changes.get(topic)
        if change is None or change.stage is not Stage.PREPARING:
            return []
        del self._changes[topic]
        return [Abandoned(topic, problem, code)]

    def on_ack(self, fence: str, incarnation: str, now: float, told: Mapping[int, int] | None = None) -> list[Command]:
        """A proxy holds what a fence names; `told` as in `AckRecord`."""
        for change in self._changes.values():
            if change.fence is not None and change.fence.id == fence:
                change.acknowledged.add(incarnation)
                change.told.update({q: max(end, change.told.get(q, 0)) for q, end in (told or {}).items()})
        return self._look(now)

    def on_committed(self, topic: str, now: float) -> list[Command]:
        """What was to be written for a topic is durable."""
        change = self._changes.get(topic)
        if change is None:
            return []
        match change.stage:
            case Stage.OPENING:
                self._enter(change, Stage.CONFIRMING, now)
                return [ConfirmMembers(topic)]
            case Stage.COMMITTING:
                del self._changes[topic]
                return [Finished(topic)]
            case Stage.CANCELLING if change.problem:
                del self._changes[topic]
                return [Abandoned(topic, change.problem)]
            case Stage.CANCELLING:
                change.fence = None
                return self._enter(change, Stage.PAUSING, now)
            case _:
                return []

    def on_confirmed(self, topic: str, now: float) -> list[Command]:
        """The members that are known were all there are when the fence was durable."""
        change = self._changes.get(topic)
        if change is None or change.stage is not Stage.CONFIRMING:
            return []
        change.stage = Stage.FENCING  # its time runs since the fence is durable
        return self._look(now)

    def on_cuts(
        self, topic: str, fence: str, cuts: Mapping[int, Producers] | None, now: float, reason: str = ""
    ) -> list[Command]:
        """Ends and producers have been read, or (None) could not be.

        Args:
            topic: Whose.
            fence: Under which one.
            cuts: By physical partition.
            now: Seconds on the clock of leases.
            reason: Why not, where another attempt would most likely fail for it as well.
        """
        change = self._changes.get(topic)
        if change is None or change.stage is not Stage.CUTTING or change.fence is None or change.fence.id != fence:
            return []
        before = self._topics[topic]
        if cuts is None:
            change.ahead = None  # what it was made of may not stand any more
            _blame(change, reason)
            return self._cancel(change, now)
        if _is_short(before.layout, change.fence.following, cuts):
            return self._cancel(change, now)
        change.problem = _why_not_cut(change, before, cuts)
        if change.problem:
            return self._cancel(change, now)
        standing = self._images[topic]
        known = {stream: image.in_force(before.layout.epoch) for stream, image in standing.items()}
        following = change.fence.following
        images = {**known, **_images_after(before.layout, change, cuts, known)}
        self._topics[topic] = _record_after(before, following, cuts, change.told)
        # images first: whoever reads the layout has read what goes with it
        records: list[tuple[str, Value | None]] = [
            (image_key(topic, stream, number), part)
            for stream, image in images.items()
            for number, part in _changed_parts(standing.get(stream, _NO_IMAGE), image)
        ]
        self._images[topic] = {stream: image for stream, image in images.items() if image}
        self._enter(change, Stage.COMMITTING, now)
        records.append((f"topic/{topic}", self._topics[topic]))
        records += [(f"ack/{fence}/{incarnation}", None) for incarnation in sorted(change.acknowledged)]
        return [Commit(topic, (*records, (f"fence/{topic}", None)))]

    def on_tick(self, now: float, new_id: str) -> list[Command]:
        """Time has passed; `new_id` names the next attempt."""
        commands: list[Command] = []
        for change in list(self._changes.values()):
            waited = now - change.since
            if change.stage in (Stage.CONFIRMING, Stage.FENCING, Stage.CUTTING) and waited > FENCE_SECONDS:
                commands += self._cancel(change, now)
            elif change.stage is Stage.PAUSING and waited > self._pause_of(change):
                commands += self._prepare(change, now)
            elif change.stage is Stage.WAITING and now >= self._alone_from:
                fence_id = f"{new_id}-{change.topic}"
                commands += self._give_up(change) or self._write_ahead(change, now) or self._open(change, fence_id, now)
        return commands

    def _pause_of(self, change: Change) -> float:
        return MISSED_RETRY_SECONDS if change.missed & self._members else RETRY_SECONDS

    def _look(self, now: float) -> list[Command]:
        """Goes on where all that a stage waits for is there."""
        commands: list[Command] = []
        for change in self._changes.values():
            if change.stage is not Stage.FENCING or change.fence is None:
                continue
            if now < self._alone_from:
                commands += self._cancel(change, now)  # somebody is missing, and may serve for a lease's time
            elif self._members <= change.acknowledged:
                self._enter(change, Stage.CUTTING, now)
                partitions = change.fence.sealed | self._topics[change.topic].layout.opened_by(change.fence.following)
                commands.append(ReadCuts(change.topic, change.fence.id, partitions, change.ahead))
        return commands

    def _prepare(self, change: Change, now: float) -> list[Command]:
        change.is_ahead = False
        self._enter(change, Stage.PREPARING, now)
        return [Prepare(change.topic, max(change.target, self._topics[change.topic].layout.n))]

    def _following(self, change: Change) -> Epoch:
        layout = self._topics[change.topic].layout
        return layout.next_epoch(change.target, change.placement, dict(change.shortened), change.renewed)

    def _give_up(self, change: Change) -> list[Command]:
        """Ends a change of which a layout would come that nobody goes by; nothing has been held for it."""
        problem = why_never(self._topics[change.topic], self._following(change))
        if not problem:
            return []
        del self._changes[change.topic]
        return [Abandoned(change.topic, problem)]

    def _write_ahead(self, change: Change, now: float) -> list[Command]:
        """Has images written ahead where that is needed, and what is written by now is not what is to follow."""
        following, layout = self._following(change), self._topics[change.topic].layout
        if not change.has_many or (
            change.is_ahead and change.ahead is not None and change.ahead.following == following
        ):
            return []
        if change.ahead is None or change.ahead.following != following:
            change.ahead = NextImages(layout, following, self._images[change.topic], change.remembered_ms)
        self._enter(change, Stage.WRITING_AHEAD, now)
        partitions = layout.sealed_by(following) | layout.opened_by(following)
        return [WriteAhead(change.topic, partitions, change.ahead)]

    def _open(self, change: Change, fence_id: str, now: float) -> list[Command]:
        record = self._topics[change.topic]
        layout, following = record.layout, self._following(change)
        if not change.has_many:
            change.ahead = None
        taking_over = None if layout.is_managed else record
        change.fence = FenceRecord(fence_id, change.topic, following, layout.sealed_by(following), taking_over)
        change.acknowledged = set()
        change.attempts += 1
        self._enter(change, Stage.OPENING, now)
        return [Commit(change.topic, ((f"fence/{change.topic}", change.fence),))]

    def _cancel(self, change: Change, now: float) -> list[Command]:
        change.missed = self._members - change.acknowledged if change.stage is Stage.FENCING else frozenset()
        if change.stage is not Stage.CUTTING and not change.problem:
            change.failures = 0
        self._enter(change, Stage.CANCELLING, now)
        records: list[tuple[str, Value | None]] = [(f"fence/{change.topic}", None)]
        if change.problem:
            records += self._undone_ahead(change.topic)
        if change.fence is not None:
            records += [(f"ack/{change.fence.id}/{each}", None) for each in sorted(change.acknowledged)]
        return [Commit(change.topic, tuple(records))]

    def _undone_ahead(self, topic: str) -> list[tuple[str, Value | None]]:
        """Returns what takes away that was written ahead; the next change would, too."""
        standing, epoch = self._images.get(topic, {}), self._topics[topic].layout.epoch
        kept = self._images[topic] = {stream: image.in_force(epoch) for stream, image in standing.items()}
        return [
            (image_key(topic, stream, number), None)
            for stream, image in standing.items()
            for number in image.parts.keys() - kept[stream].parts.keys()
        ]

    def _enter(self, change: Change, stage: Stage, now: float) -> list[Command]:
        change.stage, change.since = stage, now
        return []


def _blame(change: Change, reason: str) -> None:
    """Counts for what reason attempts fail, and gives the change up when one has come too often."""
    change.failures = change.failures + 1 if reason and reason == change.reason else int(bool(reason))
    change.reason = reason
    if change.failures >= MOST_FAILURES:
        change.problem = f"given up after {MOST_FAILURES} attempts: {reason}"


def _why_not_cut(change: Change, before: TopicRecord, cuts: Mapping[int, Producers]) -> str:
    """Says why a topic cannot be taken over as it was found; empty if it can, or is managed already."""
    if before.layout.is_managed:
        return ""
    busy = sorted(q for q, cut in cuts.items() if change.expected is not None and cut.end != change.expected[q])
    if busy:
        return f"somebody writes to {change.topic}: partitions {busy} have got records meanwhile"
    if open_ones := sorted(q for q, cut in cuts.items() if cut.in_transaction):
        return f"transactions are open on {change.topic}, partitions {open_ones}; end them before"
    return ""


def _is_short(layout: Layout, following: Epoch, cuts: Mapping[int, Producers]) -> bool:
    """Whether a log ends below the start of its segment, and the change does not know of it yet (BEYOND-LOSS)."""
    opened, known = layout.open_segments, following.shortened or {}
    return any(q in opened and q not in known and cut.end < opened[q].start for q, cut in cuts.items())


def _record_after(
    before: TopicRecord, following: Epoch, cuts: Mapping[int, Producers], told: Mapping[int, int]
) -> TopicRecord:
    """Returns what is written down when `following` begins; a takeover gets the offsets that groups must pass."""
    takeover = before.takeover
    ends = {q: cut.end for q, cut in cuts.items()}
    leader_epochs = {q: cut.leader_epoch for q, cut in cuts.items()}
    layout = before.layout.changed(
        following, ends, withheld=takeover is not None, leader_epochs=leader_epochs, told=told
    )
    is_taken = before.layout.epochs[-1].placement is not following.placement
    if takeover is not None and is_taken and following.placement is Placement.LINEAR:
        takeover = replace(takeover, cuts={p: ends[p] for p in range(layout.n)})
    return replace(before, layout=layout, takeover=takeover)


_NO_IMAGE: Final = ImageParts()


def _images_after(
    layout: Layout, change: Change, cuts: Mapping[int, Producers], before: Mapping[Stream, ImageParts]
) -> dict[Stream, ImageParts]:
    """Returns the images of the streams that write under another identity from `following` on (SEQ-IMAGE).

    A stream in which nobody has written since its last image, and nobody is forgotten, keeps it.
    """
    assert change.fence is not None, "its cuts were asked for"
    cut_ms = max((cut.read_ms for cut in cuts.values()), default=0)
    if change.ahead is not None:
        return change.ahead.at_cut({q: cut.written for q, cut in cuts.items()}, cut_ms)
    found = {q: sorted_out(cut.written) for q, cut in cuts.items()}
    images: dict[Stream, ImageParts] = {}
    for stream, home in homes_left(layout, change.fence.following).items():
        here = {} if home is None else written_by(stream, home, found[home.partition])
        images[stream] = carried(before.get(stream, _NO_IMAGE), here, cut_ms, cut_ms - change.remembered_ms)
    return images


def _changed_parts(before: ImageParts, after: ImageParts) -> Iterator[tuple[int, ImageRecord | None]]:
    """Returns what of an image is to be written down; None: a part that has gone."""
    for number in sorted(before.parts.keys() | after.parts.keys()):
        if (part := after.parts.get(number)) is not before.parts.get(number):
            yield number, part
