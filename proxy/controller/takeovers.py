"""The questions that the controller asks the cluster while it takes over topics with data (TAKEOVER-WAITS)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from kordon.codecs.error_codes import Code
from kordon.proxy.kafka.ends import PartitionEnds
from kordon.proxy.kafka.group_offsets import ListedGroup
from kordon.proxy.kafka.topics_admin import TopicsAdmin, TopicsRefused
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import BehindRecord, TopicRecord
from kordon.proxy.ordering.takeover import Takeover, is_near, left_to_read, looked_at
from kordon.proxy.topics.managed_topics import face_of

PROOF_SECONDS: Final = 10.0
"""How long the log ends of a topic must not move if the topic is said to be quiesced."""
_MOST_NAMED: Final = 100
"""The most groups of a topic whose distances are written down."""


class NotQuiesced(Exception):  # noqa: N818 - what is told to whoever asked
    """Raised when somebody writes to a topic that is said to be quiesced."""


class Takeovers:
    """Looks at topics and groups.

    Args:
        nothing_between: Returns whether a virtual partition of a topic has no record between two offsets.
    """

    def __init__(self, admin: TopicsAdmin, nothing_between: Callable[[str, int, int, int], Awaitable[bool]]) -> None:
        self._ends, self._groups = admin.ends, admin.groups
        self._nothing_between = nothing_between

    async def refuse_transactions(self, topic: str, partitions: Collection[int]) -> None:
        """Makes sure that no transaction is open in a topic: nothing of it would stand behind a witness (TXN-WITNESS).

        Raises:
            TopicsRefused: A transaction is open, or Kordon lacks the right to ask.
            UpstreamUnavailable: A leader does not answer.
        """
        for q, snapshot in (await self._ends.snapshots(topic, partitions)).items():
            if any(each.in_transaction for each in snapshot.producers):
                detail = "has an open transaction; wait until it ends, or end it by Admin.fenceProducers"
                raise TopicsRefused(f"{topic}-{q}", Code.INVALID_TXN_STATE, detail)

    async def look(self, record: TopicRecord) -> tuple[Takeover | None, BehindRecord]:
        """Looks at the groups of a topic that is being taken over.

        Returns:
            What is left to do (None: nothing), and how far groups are from the cuts.

        Raises:
            UpstreamUnavailable: A broker does not answer.
        """
        takeover, layout = record.takeover, record.layout
        assert takeover is not None, "it is being taken over"
        commits: Mapping[str, Mapping[int, int]] = {}
        to_go: dict[str, int] = {}
        groups = await self._groups.groups()
        if takeover.cuts:
            starts = await self._ends.log_starts(layout.topic, range(layout.n))
            commits = await self._committed(layout, groups)
            found = {group: await self._left(record, offsets, starts) for group, offsets in commits.items()}
            to_go = {group: left for group, left in sorted(found.items()) if left}
        left = looked_at(takeover, to_go, await self._groups.subscribers(groups, layout.topic))
        named = left.waits_for[:_MOST_NAMED] if left is not None else ()
        return left, BehindRecord(len(commits), {group: to_go[group] for group in named})

    async def far_groups(self, record: TopicRecord) -> tuple[str, ...]:
        """Returns the groups that are far behind the ends of a topic's logs (TAKEOVER-SHARES).

        Raises:
            TopicsRefused: A broker does not lead a partition any more, or Kordon lacks the right to ask.
            UpstreamUnavailable: A broker does not answer.
        """
        takeover, layout = record.takeover, record.layout
        assert takeover is not None, "it is being taken over"
        partitions = range(layout.n)
        starts = await self._ends.log_starts(layout.topic, partitions)
        told = await self._ends.ends_of(layout.topic, partitions)
        ends = {v: told[v].high_watermark + home.delta for v in partitions if (home := layout.chains[v].home)}
        commits = await self._committed(layout, await self._groups.groups())
        far = {group for group, offsets in commits.items() if not is_near(offsets, starts, ends)}
        return tuple(sorted(far - set(takeover.left_out)))

    async def _committed(self, layout: Layout, groups: Collection[ListedGroup]) -> dict[str, dict[int, int]]:
        """Asks what groups have committed on the face, or on the topic from before (COMMITS-FOUND)."""
        names = (face_of(layout.topic), layout.topic)
        return await self._groups.committed(groups, names, range(layout.n))

    async def _left(self, record: TopicRecord, committed: Mapping[int, int], starts: Mapping[int, int]) -> int:
        """Also asks for the records between a commit and the cut, which may all belong to other virtual partitions."""
        takeover = record.takeover
        assert takeover is not None, "it is being taken over"
        reached = dict(committed)
        for p, offset in committed.items():
            cut = takeover.cuts.get(p, 0)
            if offset < cut and await self._nothing_between(record.layout.topic, p, offset, cut):
                reached[p] = cut
        return left_to_read(takeover, reached, starts)


async def prove_quiesced(logs: PartitionEnds, topic: str, ends: Mapping[int, int]) -> None:
    """Waits, and makes sure that nothing is written meanwhile.

    Args:
        logs: The client that asks the brokers.
        ends: The present end of the topic's log, by partition.

    Raises:
        NotQuiesced: Somebody has written to the topic.
        TopicsRefused: A broker does not lead a partition any more, or the caller lacks the right to ask.
        UpstreamUnavailable: A leader does not answer.
    """
    await asyncio.sleep(PROOF_SECONDS)
    after = await logs.ends_of(topic, ends)
    if busy := [q for q, end in ends.items() if after[q].log_end_offset != end]:
        detail = f"somebody writes to {topic}: partitions {busy} have got records within {PROOF_SECONDS:g} s"
        raise NotQuiesced(f"{detail}; stop its producers, or do not ask for a quiesced takeover")
