"""What members of groups report of their positions, as decisions: once it is in the log that all proxies read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kordon.codecs.apis import CONSUMER_GROUP_POSITION
from kordon.codecs.decision import Decision, Kind
from kordon.proxy.ordering.positions import UNKNOWN
from kordon.proxy.ordering.streams import physical_stream

if TYPE_CHECKING:
    from kordon.proxy.decisions.runs import Client
    from kordon.proxy.ordering.position_records import MemberKey
    from kordon.proxy.ordering.positions import MemberReport, Positions


def known_before(place: MemberKey, report: MemberReport, positions: Positions) -> Mapping[str, Mapping[int, int]]:
    """Returns by topic and partition where the group stood, as far as it is known, of what a report tells.

    A partition that was another member's stands where that one said in its generation.

    Args:
        report: The report, which has not been taken in yet.
    """
    said = positions.said(*place)
    generation = report.generation_id if said is None else said.generation_id
    before: dict[str, Mapping[int, int]] = {}
    for topic, rows in report.topics.items():
        own = said.topics[topic].owned if said is not None and topic in said.topics else {}
        others = positions.of(place.group_id, generation, topic)
        known = {q: max(own.get(q, UNKNOWN), others.get(q, UNKNOWN)) for q in rows.owned}
        before[topic] = {q: position for q, position in known.items() if position != UNKNOWN}
    return before


def decisions_of(
    place: MemberKey, report: MemberReport, before: Mapping[str, Mapping[int, int]], client: Client
) -> Iterator[Decision]:
    """Returns what a report says that is new: one POSITION for each topic, one REWIND for each position that fell.

    A position that fell names no connection: it is the group's, and no reader on a connection goes elsewhere by it.

    Args:
        before: The positions that `known_before` returns.
    """
    group_id, member_id = place
    for topic, rows in report.topics.items():
        stood = before.get(topic, {})
        told = {q: position for q, position in sorted(rows.owned.items()) if position != UNKNOWN}
        for q, position in told.items():
            if position < stood.get(q, UNKNOWN):
                yield Decision(
                    kind=Kind.REWIND,
                    client_id=client.client_id,
                    principal=client.principal,
                    group_id=group_id,
                    member_id=member_id,
                    generation_id=report.generation_id,
                    topic=topic,
                    stream=physical_stream(q),
                    partition=q,
                    first_offset=position,
                    last_offset=stood[q],
                    reason="position",
                )
        if rose := {q: position for q, position in told.items() if position > stood.get(q, UNKNOWN)}:
            yield Decision(
                kind=Kind.POSITION,
                **client.fields(),
                api_key=CONSUMER_GROUP_POSITION,
                group_id=group_id,
                member_id=member_id,
                generation_id=report.generation_id,
                topic=topic,
                evidence={"positions": rose},
            )
