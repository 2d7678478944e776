"""What one worker does as a member of the proxies' group, as decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kordon.codecs.decision import Decision, Kind
from kordon.proxy.controller.controller_notes import evidence_of

if TYPE_CHECKING:
    from kordon.proxy.decisions.journal import Journal
    from kordon.proxy.member.membership import Generation
    from kordon.proxy.ordering.layout import Layout
    from kordon.proxy.ordering.records import AckRecord, FenceRecord

_FENCE = "fence"


class MemberNotes:
    """Notes a worker's part; offsets are those of the layouts topic."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._fences: dict[str, tuple[FenceRecord, int | None]] = {}
        """By topic, the fence that stands, and the layout epoch in force; None where the topic is not known here."""
        self._lives = False

    def joined(self, generation: Generation, offset: int) -> None:
        """Notes another generation; the layouts were read up to `offset` then."""
        members = sorted(each.incarnation for each in generation.members)
        self._journal.note(
            Decision(
                kind=Kind.JOIN,
                generation_id=generation.number,
                member_id=generation.member_id,
                layouts_offset=offset,
                evidence={"members": members, "leads": generation.leads},
            )
        )

    def alive(self, generation: Generation | None, offset: int) -> None:
        """Notes that the lease lives, if it did not."""
        if not self._lives:
            self._lives = True
            self._lease("alive", generation, offset)

    def lost(self, generation: Generation | None, offset: int) -> None:
        """Notes that the lease has ended, if it lived."""
        if self._lives:
            self._lives = False
            self._lease("lost", generation, offset)

    def held(self, fence: FenceRecord, epoch: int | None, offset: int) -> None:
        """Notes that a fence at an offset is held under a layout epoch; None: its topic is not known here."""
        self._fences[fence.topic] = (fence, epoch)
        if fence.sealed and epoch is not None:
            evidence = {"sealed": sorted(fence.sealed)}
            self._journal.note(
                Decision(
                    kind=Kind.HOLD,
                    topic=fence.topic,
                    fence=fence.id,
                    layout_epoch=epoch,
                    layouts_offset=offset,
                    reason=_FENCE,
                    evidence=evidence,
                )
            )

    def released(self, topic: str, offset: int) -> None:
        """Notes that a fence was cancelled: what it held continues as before."""
        fence, epoch = self._fences.pop(topic, (None, None))
        if fence is not None and fence.sealed and epoch is not None:
            self._journal.note(
                Decision(
                    kind=Kind.RELEASE,
                    topic=topic,
                    fence=fence.id,
                    layout_epoch=epoch,
                    layouts_offset=offset,
                    reason=_FENCE,
                )
            )

    def acknowledged(self, ack: AckRecord, offset: int) -> None:
        """Notes what is going to be said: nothing is written any more to what a fence holds, that was read at `offset`.

        By then all that was acknowledged to clients before is on record.
        """
        found = next((each for each in self._fences.values() if each[0].id == ack.fence), None)
        topic, epoch = (found[0].topic, found[1]) if found is not None else (None, None)
        self._journal.note(
            Decision(kind=Kind.ACKNOWLEDGE, topic=topic, fence=ack.fence, layout_epoch=epoch, layouts_offset=offset)
        )

    def adopted(self, layout: Layout, offset: int) -> None:
        """Notes the layout by which this worker continues."""
        self._fences.pop(layout.topic, None)
        self._journal.note(
            Decision(
                kind=Kind.ADOPT,
                topic=layout.topic,
                layout_epoch=layout.epoch,
                layouts_offset=offset,
                evidence=evidence_of(layout) if self._journal.is_on else {},
            )
        )

    def forgot(self, topic: str, offset: int) -> None:
        """Notes that a topic is not managed any more."""
        self._fences.pop(topic, None)
        self._journal.note(Decision(kind=Kind.FORGET, topic=topic, layouts_offset=offset))

    def _lease(self, reason: str, generation: Generation | None, offset: int) -> None:
        number = None if generation is None else generation.number
        self._journal.note(Decision(kind=Kind.LEASE, reason=reason, generation_id=number, layouts_offset=offset))
