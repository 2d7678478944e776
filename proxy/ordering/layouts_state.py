"""What the layouts topic says, as far as one worker has read it, and who belongs to the proxies' group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kordon.proxy.ordering.images import ImageParts
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.ordering.member import Member
from kordon.proxy.ordering.presence import Presence
from kordon.proxy.ordering.records import BehindRecord, FenceRecord, TopicRecord
from kordon.proxy.ordering.standing_findings import StandingFindings
from kordon.proxy.ordering.unread import Unread
from kordon.proxy.ordering.wishes import Wish


class StandingFence(NamedTuple):
    """A fence as this proxy has read it."""

    offset: int
    """Where it stands in the layouts."""
    since: float
    """When it was read, in seconds on the clock of leases."""
    producer_id: int = -1
    """In whose transaction it was written; -1: in none."""


class LayoutsState:
    """Keeps what a worker has read; a controller begins from it.

    Args:
        incarnation: The worker's name from its start to its end.
        leftovers: Records that nobody needs after a while.

    Attributes:
        member: The layouts and fences in force, and the worker's lease.
        presence: The members that may serve besides those of the present generation.
        leftovers: Records that nobody needs after a while.
        unread: Records that cannot be read.
        findings: The findings of controllers about topics.
        wishes: The open wishes by id.
        looked_to: How far compacted topics were looked through, by topic and physical partition.
        behind: How far groups are from the cuts of takeovers, by topic.
        fences_read: Where each fence was read, by topic; those that have ended count no more.
        without_transactions: The hosts of the group's members that do not know transactions.
    """

    def __init__(self, incarnation: str, leftovers: Leftovers) -> None:
        self.member = Member(incarnation)
        self.presence = Presence()
        self.leftovers = leftovers
        self.unread = Unread()
        self.findings = StandingFindings()
        self.wishes: dict[str, Wish] = {}
        self.looked_to: dict[str, Mapping[int, int]] = {}
        self.behind: dict[str, BehindRecord] = {}
        self.fences_read: dict[str, StandingFence] = {}
        self.without_transactions: tuple[str, ...] = ()

    def forget(self) -> None:
        """Forgets what was read, as the log is read again from its beginning."""
        self.member.forget()
        for each in (self.leftovers, self.unread, self.findings, self.wishes, self.looked_to, self.behind):
            each.clear()

    def members(self) -> frozenset[str]:
        """Returns the incarnations of the present generation."""
        return self.presence.members

    def known(self) -> dict[str, tuple[TopicRecord, Mapping[int, ImageParts]]]:
        """Returns the topics that a controller may go by: it does not touch one of which records cannot be read."""
        topics = self.member.topics.items()
        return {name: (record, self.member.images(name)) for name, record in topics if name not in self.unread}

    def fences(self) -> dict[str, FenceRecord]:
        """Returns the fences of these topics, by topic."""
        return {name: fence for name, fence in self.member.fences.items() if name not in self.unread}

    def standing_fences(self) -> Mapping[str, StandingFence]:
        """Returns where each fence that stands was read, by topic."""
        self.fences_read = {topic: each for topic, each in self.fences_read.items() if topic in self.member.fences}
        return self.fences_read
