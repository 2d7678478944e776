"""What operators ask of groups of the dialect: which partitions wait, for whom, and how far he has come (KIP-253 7).

Pure: of what members have reported, so it is known where a member's Kordon reads reports. A member says what it waits
for; how far that has to be read is the gate's to say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from kordon.proxy.ordering.gate import Gate
from kordon.proxy.ordering.positions import UNKNOWN, MemberReport, Positions
from kordon.proxy.process.explain import Facts

MOST_ROWS: Final = 20
"""As many are told; of more, how many there are."""
_AT_THE_LAST: Final = 1 << 62
"""An offset in the last segment of any partition: a member says where it stands only to those who ask."""


class _Wait(NamedTuple):
    group_id: str
    awaited: int
    """The partition that has to be read first."""
    end: int
    """The offset up to which it has to be read."""


def held_groups(topic: str, gate: Gate, positions: Positions) -> list[Facts]:
    """Tells which partitions of a topic groups wait with, each row with its cause.

    Args:
        positions: The positions of all groups, as far as they are known.
    """
    rows = [row for group_id in sorted(positions) for row in _of_group(topic, gate, positions, group_id)]
    if len(rows) > MOST_ROWS:
        more = f"{len(rows) - MOST_ROWS} more partitions are waited for"
        return [*rows[:MOST_ROWS], {"partitions": list[int](), "virtual_partitions": list[int](), "why": more}]
    return rows


def _of_group(topic: str, gate: Gate, positions: Positions, group_id: str) -> Iterator[Facts]:
    reports = _of_newest_generation(positions, group_id)
    if not reports:
        return
    reached = positions.of(group_id, next(iter(reports.values())).generation_id, topic)
    owners = {q: member for member, said in reports.items() if topic in said.topics for q in said.topics[topic].owned}
    since: dict[_Wait, int] = {}
    waiting: defaultdict[_Wait, list[int]] = defaultdict(list)
    for said in reports.values():
        for wait, q in _waits(group_id, topic, said, gate):
            if reached.get(wait.awaited, UNKNOWN) < wait.end:
                waiting[wait].append(q)
                since[wait] = min(said.said_ms, since.get(wait, said.said_ms))
    for wait, partitions in sorted(waiting.items()):
        why = _why(wait, reached.get(wait.awaited, UNKNOWN), owners.get(wait.awaited), since[wait])
        yield {"partitions": sorted(partitions), "virtual_partitions": [], "why": why}


def _of_newest_generation(positions: Positions, group_id: str) -> Mapping[str, MemberReport]:
    """Returns by member what those have said who are in the generation of the last one that has said anything."""
    members = positions.members(group_id)
    reports = {member: said for member in members if (said := positions.said(group_id, member)) is not None}
    newest = max(reports.values(), key=lambda said: said.said_ms, default=None)
    return {
        member: said
        for member, said in reports.items()
        if newest is not None and said.generation_id == newest.generation_id
    }


def _waits(group_id: str, topic: str, said: MemberReport, gate: Gate) -> Iterator[tuple[_Wait, int]]:
    """Returns what a member's own partitions wait for, each with the one that waits."""
    rows = said.topics.get(topic)
    if rows is None:
        return
    wanted = frozenset(rows.wanted)
    for q, position in rows.owned.items():
        needs = gate.needs(q, _AT_THE_LAST if position == UNKNOWN else position)
        yield from ((_Wait(group_id, awaited, end), q) for awaited, end in needs.items() if awaited in wanted)


def _why(wait: _Wait, position: int, owner: str | None, since_ms: int) -> str:
    progress = (
        f"read and flushed up to {position} of {wait.end}"
        if position != UNKNOWN
        else f"of which nobody has said yet that it is read and flushed, up to {wait.end}"
    )
    whose = f"member {owner} has it" if owner is not None else "no member has it"
    since = f"{datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    return f"group {wait.group_id} waits for partition {wait.awaited}, {progress}: {whose} (said {since})"
