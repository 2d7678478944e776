"""Hands groups over from a topic to its copy: each continues there at the record that it would have read next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kordon.codecs.error_codes import Code
from kordon.proxy.commands.copied_partition import CopiedPartition, CopyStopped, RecordsBehind
from kordon.proxy.commands.topic_copy import NEW_TARGET, commit
from kordon.proxy.commands.topic_reader import TopicReader
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.kafka.group_offsets import GroupOffsets

_EMPTY: Final = "Empty"
_WAIT_MS: Final = 500
_MOST_NAMED: Final = 5
_HAS_MEMBERS: Final = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS})


class Handover:
    """Moves the places of groups.

    Args:
        source: The topic whose groups move.
        target: The copy of the topic.
        partitions: The partitions of both topics.
    """

    def __init__(self, brokers: Brokers, source: str, target: str, partitions: int) -> None:
        self._brokers = brokers
        self._source = source
        self._target = target
        self._numbers = range(partitions)

    async def groups(self, wanted: Collection[str]) -> dict[str, dict[int, int]]:
        """Returns what groups have committed of the source, by partition; those without commits are missing.

        Args:
            wanted: The groups; none: all.

        Raises:
            CopyStopped: A group has members, or one that is wanted has no commits.
            UpstreamUnavailable: A broker does not answer.
        """
        offsets = GroupOffsets(self._brokers)
        listed = {each.name: each for each in await offsets.groups() if not wanted or each.name in wanted}
        found = await offsets.committed(list(listed.values()), [self._source], self._numbers)
        if missing := sorted(set(wanted) - found.keys()):
            raise CopyStopped(f"no commits on {self._source} of {_named(missing)}, or they may not be seen")
        if busy := sorted(name for name in found if listed[name].state != _EMPTY):
            raise CopyStopped(
                f"{_named(busy)} still has members: stop the consumers, and run this again; or name the groups "
                "that move with --group"
            )
        return found

    async def places(
        self, groups: Mapping[str, Mapping[int, int]], copied: Mapping[int, CopiedPartition]
    ) -> dict[str, dict[int, int]]:
        """Returns where groups continue in the target.

        Args:
            groups: The result of `groups`.
            copied: The partitions of a copy that has all that the source has.

        Raises:
            CopyStopped: Records that they have to read are gone, or cannot be read.
            UpstreamUnavailable: A broker does not answer.
        """
        behind = {
            number: RecordsBehind(offsets[number] for offsets in groups.values() if number in offsets)
            for number in self._numbers
            if any(number in offsets for offsets in groups.values())
        }
        await self._count(behind, {number: copied[number].read_to for number in behind})
        places = {number: each.places(copied[number].place.written) for number, each in behind.items()}
        return {
            group: {number: places[number][offset] for number, offset in offsets.items()}
            for group, offsets in groups.items()
        }

    async def move(self, places: Mapping[str, Mapping[int, int]]) -> None:
        """Commits the places of groups; none goes back where it has read further in the target already.

        Raises:
            CopyStopped: A group has got members.
            UpstreamUnavailable: A coordinator does not answer, or refuses.
        """
        offsets = GroupOffsets(self._brokers)
        listed = [each for each in await offsets.groups() if each.name in places]
        there = await offsets.committed(listed, [self._target], self._numbers)
        for group, wanted in places.items():
            before = there.get(group, {})
            new = {number: (place, "") for number, place in wanted.items() if place > before.get(number, -1)}
            try:
                if new:
                    await commit(self._brokers, group, self._target, new)
            except TopicsRefused as refused:
                if refused.code in _HAS_MEMBERS:
                    raise CopyStopped(f"{group} has members: stop its consumers, and run this again") from refused
                raise

    async def _count(self, behind: Mapping[int, RecordsBehind], ends: Mapping[int, int]) -> None:
        """Reads what groups have not read, each partition once; what retention has taken before, they do not get."""
        reader = TopicReader(self._brokers, self._source, NEW_TARGET)
        starts = await reader.starts(self._numbers)
        first = {number: max(each.first, starts[number]) for number, each in behind.items()}
        positions = {number: offset for number, offset in first.items() if offset < ends[number]}
        while positions:
            for number, found in (await reader.read(positions, _WAIT_MS)).items():
                begin = positions.pop(number)
                for record in found.records:
                    if begin <= record.offset < ends[number]:
                        behind[number].add(record.offset)
                if found.next_offset < ends[number]:
                    positions[number] = found.next_offset
        starts = await reader.starts(self._numbers)
        if any(starts[number] > offset for number, offset in first.items()):
            raise CopyStopped(f"retention has just taken records of {self._source} that were counted: run this again")


def _named(groups: Collection[str]) -> str:
    shown = ", ".join(list(groups)[:_MOST_NAMED])
    more = len(groups) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def check_caught_up(places: Mapping[str, Mapping[int, int]], copied: Mapping[int, CopiedPartition]) -> None:
    """Refuses groups that have something to read of a compacted topic: how much of it was copied nobody can count.

    Raises:
        CopyStopped: There are such groups.
    """
    behind = sorted(
        group
        for group, offsets in places.items()
        if any(place != copied[number].place.written for number, place in offsets.items())
    )
    if behind:
        raise CopyStopped(
            f"{_named(behind)} has not read all of a compacted topic, so its place in the copy cannot be counted: "
            "let its consumers read to the end, stop them, and run this again"
        )
