"""The controller: changes layouts, one procedure per topic, each step durable before the next.

    PREPARING ──(partitions are there, no lease is missing)──> FENCING ──(all have acknowledged)──> CUTTING ──> done
        ^                                                        │                                    │
        └────────────────────(too long, or somebody went missing: cancelled by a record)─────────────┘

If a topic has transactions, a change that moves virtual partitions is announced first (`announcing.py`).
Where a topic has very many producers, their images are written down before the fence (WRITING_AHEAD, `next_images.py`).

It decides from what the layouts topic says and from the proxies' group, and does no I/O: events in, commands out. Any
later controller begins from the same log: a fence that it finds there is cancelled and its wish begun again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kordon.proxy.ordering.announcing import Announcing
from kordon.proxy.ordering.changes import (
    REMEMBERED_MS,
    Abandoned,
    Change,
    Command,
    Commit,
    ConfirmMembers,
    Finished,
    Mended,
    Prepare,
    Producers,
    ReadCuts,
    Stage,
    WriteAhead,
)
from kordon.proxy.ordering.known_topics import KnownTopics
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.next_images import NextImages
from kordon.proxy.ordering.placements import Epoch
from kordon.proxy.ordering.records import FenceRecord, TopicRecord, Value, why_never

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
        alone_from: From when on nobody serves but these, by `Presence` (MISSING-WAITED).

    Attributes:
        known: The managed topics.
        changes: What is under way, by topic.
        announcing: What is announced of topics with transactions.
    """

    def __init__(self, members: frozenset[str], alone_from: float) -> None:
        self._members = members
        self.alone_from = alone_from
        self.known = KnownTopics()
        self.changes: dict[str, Change] = {}
        self.announcing = Announcing(self.known, self.changes)

    def raised(self, fence: str) -> bool:
        """Whether a fence or an announcement, by its id, is this controller's: it need not read who acknowledges it."""
        own = [each for change in self.changes.values() for each in (change.fence, change.announced)]
        return any(each is not None and each.id == fence for each in own)

    def forget(self, topic: str) -> None:
        """A topic is let go; a change of it that is between two attempts is given up."""
        self.changes.pop(topic, None)
        self.announcing.announced.forget(topic)
        self.known.forget(topic)

    def found_fence(self, fence: FenceRecord, now: float) -> list[Command]:
        """Takes over what a former controller left under way: cancels it, and begins again.

        A topic that was not managed yet is begun again by the wish of which it was a part.
        """
        if not fence.sealed:  # it asked who knows the layout, and changes nothing
            return [Commit(fence.topic, ((f"fence/{fence.topic}", None),))]
        has_no_wish = fence.taking_over is not None or fence.following.renewed  # whoever began it begins it again
        problem = "another controller has begun" if has_no_wish else ""
        change = Change(fence.topic, fence.following.u, Stage.CANCELLING, now, now, fence, problem=problem)
        if fence.following.shortened:
            change.placement, change.shortened = fence.following.placement, dict(fence.following.shortened)
        self.changes[fence.topic] = change
        return [Commit(fence.topic, ((f"fence/{fence.topic}", None),))]

    def begin(self, change: Change, now: float) -> list[Command]:
        """Begins a change or its next attempt; the caller has seen that nothing else happens with the topic."""
        self.changes[change.topic] = change
        change.is_ahead = False
        change.enter(Stage.PREPARING, now)
        return [Prepare(change.topic, max(change.target, self.known.layout(change.topic).n))]

    def mend(self, topic: str, shortened: Mapping[int, int], now: float) -> list[Command]:
        """Continues behind what was lost, by a layout epoch of its own or by that of a change under way (BEYOND-LOSS).

        `shortened` has the offset from which on all was lost, by physical partition whose log has got shorter.
        """
        change = self.changes.get(topic)
        if change is None:
            newest = self.known.layout(topic).epochs[-1]
            return self.begin(Change(topic, newest.u, placement=newest.placement, shortened=dict(shortened)), now)
        change.shortened.update(shortened)  # the next attempt has it; one that stands now cannot find its cuts
        if change.stage in (Stage.ANNOUNCING, Stage.TELLING, Stage.OLDER):
            return self.announcing.interrupt(change, now)
        return self._cancel(change, now) if change.stage in (Stage.CONFIRMING, Stage.FENCING) else []

    def on_members(self, members: frozenset[str], now: float, alone_from: float) -> list[Command]:
        """The group has another generation, or more is known of who is missing in it; arguments as at the beginning."""
        self._members, self.alone_from = members, alone_from
        confirm = [each.topic for each in self.changes.values() if each.stage is Stage.CONFIRMING]
        return [*(ConfirmMembers(topic) for topic in confirm), *self._look(now)]

    def on_prepared(
        self, topic: str, problem: str | None, now: float, remembered_ms: int = REMEMBERED_MS, *, has_many: bool = False
    ) -> list[Command]:
        """The partitions are there, or could not be made because of a problem.

        Brokers remember a silent producer for `remembered_ms`; `has_many`: there are too many producers for a fence to
        ask for all of them.
        """
        change = self.changes.get(topic)
        if change is None or change.stage is not Stage.PREPARING:
            return []
        change.remembered_ms, change.has_many = remembered_ms, has_many
        if problem is not None:
            return change.enter(Stage.PAUSING, now)
        return [*change.enter(Stage.WAITING, now), *self._look(now)]

    def on_ahead(
        self, topic: str, images: NextImages, now: float, problem: str | None, reason: str = ""
    ) -> list[Command]:
        """Images are written ahead, or could not be because of a problem.

        A `reason` is given where another attempt would most likely fail for it as well.
        """
        change = self.changes.get(topic)
        if change is None or change.stage is not Stage.WRITING_AHEAD or change.ahead is not images:
            return []
        if problem is None:
            change.is_ahead = True
            return change.enter(Stage.WAITING, now)
        change.ahead = None
        change.blame(reason, MOST_FAILURES)
        return self._cancel(change, now) if change.problem else change.enter(Stage.PAUSING, now)

    def on_refused(self, topic: str, code: int, problem: str) -> list[Command]:
        """The cluster will never have the partitions that are missing: nothing has been held yet, nothing changes."""
        change = self.changes.get(topic)
        if change is None or change.stage is not Stage.PREPARING:
            return []
        return self._abandon(change, problem, change.since, code)

    def withdraw(self, topic: str, problem: str, now: float) -> list[Command]:
        """Gives up a change that waits for older transactions; returns nothing if it does not, or is over just now."""
        change = self.changes.get(topic)
        if change is None or change.stage not in (Stage.TELLING, Stage.OLDER) or change.is_writing:
            return []
        return self._abandon(change, problem, now)

    def on_ack(self, fence: str, incarnation: str, now: float, told: Mapping[int, int] | None = None) -> list[Command]:
        """A proxy holds what a fence names; `told` as in `AckRecord`."""
        for change in self.changes.values():
            if change.fence is not None and change.fence.id == fence:
                change.acknowledged.add(incarnation)
                change.told.update({q: max(end, change.told.get(q, 0)) for q, end in (told or {}).items()})
            if change.announced is not None and change.announced.id == fence:
                change.told_to.add(incarnation)
        return self._look(now)

    def on_committed(self, topic: str, now: float) -> list[Command]:
        """What was to be written for a topic is durable."""
        change = self.changes.get(topic)
        if change is None:
            return []
        match change.stage:
            case Stage.OPENING:
                change.enter(Stage.CONFIRMING, now)
                return [ConfirmMembers(topic)]
            case Stage.ANNOUNCING | Stage.OLDER:
                return self.announcing.on_committed(change, now)
            case Stage.COMMITTING if change.target != self.known.layout(topic).u:
                change.fence, change.shortened, change.told = None, {}, {}
                return [Mended(topic), *self.begin(change, now)]
            case Stage.COMMITTING:
                del self.changes[topic]
                return [Finished(topic)]
            case Stage.CANCELLING if change.problem:
                del self.changes[topic]
                return [Abandoned(topic, change.problem, change.code)]
            case Stage.CANCELLING:
                change.fence = None
                return change.enter(Stage.PAUSING, now)
            case _:
                return []

    def on_confirmed(self, topic: str, now: float, announcement: str = "") -> list[Command]:
        """The members that are known were all there are when the fence, or an announcement, was durable."""
        change = self.changes.get(topic)
        if change is not None and announcement:
            self.announcing.on_confirmed(change, announcement)
            return self._look(now)
        if change is None or change.stage is not Stage.CONFIRMING:
            return []
        change.stage = Stage.FENCING  # its time runs since the fence is durable
        return self._look(now)

    def on_cuts(
        self, topic: str, fence: str, cuts: Mapping[int, Producers] | None, now: float, reason: str = ""
    ) -> list[Command]:
        """Ends and producers have been read under a fence, by physical partition, or (None) could not be.

        A `reason` is given where another attempt would most likely fail for it as well.
        """
        change = self.changes.get(topic)
        if change is None or change.stage is not Stage.CUTTING or change.fence is None or change.fence.id != fence:
            return []
        before = self.known.records[topic]
        if cuts is None:
            change.ahead = None  # what it was made of may not stand any more
            change.blame(reason, MOST_FAILURES)
            return self._cancel(change, now)
        if _is_short(before.layout, change.fence.following, cuts):
            return self._cancel(change, now)
        change.problem = _why_not_cut(change, before, cuts)
        if change.problem:
            return self._cancel(change, now)
        change.enter(Stage.COMMITTING, now)
        records = self.known.change(change, cuts)
        records += [(f"ack/{fence}/{incarnation}", None) for incarnation in sorted(change.acknowledged)]
        if change.target == change.fence.following.u:
            records += self.announcing.withdrawal(topic)
        return [Commit(topic, (*records, (f"fence/{topic}", None)))]

    def on_tick(self, now: float, new_id: str) -> list[Command]:
        """Time has passed; `new_id` names the next attempt."""
        commands: list[Command] = []
        for change in list(self.changes.values()):
            waited = now - change.since
            pause = MISSED_RETRY_SECONDS if change.missed & self._members else RETRY_SECONDS
            if change.stage in (Stage.CONFIRMING, Stage.FENCING, Stage.CUTTING) and waited > FENCE_SECONDS:
                commands += self._cancel(change, now)
            elif change.stage is Stage.PAUSING and waited > pause:
                commands += self.begin(change, now)
            elif change.stage is Stage.WAITING and now >= self.alone_from:
                commands += (
                    self._abandon(change, _why_never(change, self.known), now)
                    or self.announcing.begin(change, new_id, now)
                    or _write_ahead(change, self.known, now)
                    or self._open(change, f"{new_id}-{change.topic}", now)
                )
            commands += self.announcing.on_tick(change, now)
        return commands

    def _look(self, now: float) -> list[Command]:
        """Continues where all that a stage waits for is there."""
        commands: list[Command] = []
        for change in self.changes.values():
            commands += self.announcing.look(change, self._members, self.alone_from, now)
            if change.stage is not Stage.FENCING or change.fence is None:
                continue
            if now < self.alone_from:
                commands += self._cancel(change, now)  # somebody is missing, and may serve for a lease's time
            elif self._members <= change.acknowledged:
                change.enter(Stage.CUTTING, now)
                opened = self.known.layout(change.topic).change_to(change.fence.following).opened
                partitions = change.fence.sealed | opened
                commands.append(ReadCuts(change.topic, change.fence.id, partitions, change.ahead))
        return commands

    def _abandon(self, change: Change, problem: str, now: float, code: int | None = None) -> list[Command]:
        """Ends a change for a problem, if there is one, without a fence; what is announced of it is withdrawn first."""
        if not problem:
            return []
        if self.announcing.stands(change.topic):
            change.problem, change.code = problem, code
            return self._cancel(change, now)
        del self.changes[change.topic]
        return [Abandoned(change.topic, problem, code)]

    def _open(self, change: Change, fence_id: str, now: float) -> list[Command]:
        record = self.known.records[change.topic]
        layout, following = record.layout, change.following(record.layout)
        if not change.has_many:
            change.ahead = None
        taking_over = None if layout.is_managed else record
        change.fence = FenceRecord(fence_id, change.topic, following, layout.change_to(following).sealed, taking_over)
        change.acknowledged = set()
        change.attempts += 1
        change.enter(Stage.OPENING, now)
        return [Commit(change.topic, ((f"fence/{change.topic}", change.fence),))]

    def _cancel(self, change: Change, now: float) -> list[Command]:
        change.missed = self._members - change.acknowledged if change.stage is Stage.FENCING else frozenset()
        if change.stage is not Stage.CUTTING and not change.problem:
            change.failures = 0
        change.enter(Stage.CANCELLING, now)
        records: list[tuple[str, Value | None]] = [(f"fence/{change.topic}", None)]
        if change.problem:
            records += self.known.undo_ahead(change.topic)
            records += self.announcing.withdrawal(change.topic)
        if change.fence is not None:
            records += [(f"ack/{change.fence.id}/{each}", None) for each in sorted(change.acknowledged)]
        return [Commit(change.topic, tuple(records))]


def _why_never(change: Change, known: KnownTopics) -> str:
    """Says why nobody would go by the layout of which a change would come; nothing has been held for it."""
    return why_never(known.records[change.topic], change.following(known.layout(change.topic)))


def _write_ahead(change: Change, known: KnownTopics, now: float) -> list[Command]:
    """Has images written ahead where that is needed, and what is written by now is not what is to follow."""
    layout = known.layout(change.topic)
    following = change.following(layout)
    if not change.has_many or (change.is_ahead and change.ahead is not None and change.ahead.following == following):
        return []
    if change.ahead is None or change.ahead.following != following:
        change.ahead = NextImages(layout, following, known.images[change.topic], change.remembered_ms)
    change.enter(Stage.WRITING_AHEAD, now)
    partitions = layout.change_to(following).touched
    return [WriteAhead(change.topic, partitions, change.ahead)]


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
