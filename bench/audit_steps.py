"""What is decided on the made-up day besides reading and writing: few decisions, made one by one.

Layouts change (`audit_changes.py`). What the killed worker has not answered is sent again. Now and then stock groups
commit, groups of the dialect tell their positions, and transactional producers ask for identities. Every 500 rounds a
stock reader connects anew, and asks where its group was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from kordon.bench.audit_changes import AFTER, BEFORE, OPENED, Change, Step, beginning, client, layout_of, reader
from kordon.bench.audit_day import FIRST_PRODUCER, Day
from kordon.bench.audit_topics import Topic, topics_of
from kordon.bench.audit_traffic import Readers, connection, positions, readers_of
from kordon.codecs import apis
from kordon.codecs.decision import Decision, Kind

NEWEST: Final = -99
"""In place of the number of the decision before."""
_POSITIONS_EVERY: Final = 3
_COMMITS_EVERY: Final = 30
_IDENTITIES_EVERY: Final = 50
"""Rounds after which a transactional producer asks for another identity."""
_FIRST_TRANSACTIONAL: Final = 5_000


def steps(day: Day, first: int, end: int) -> Iterator[Step]:
    """Yields what is decided in rounds [first, end), in the order of each slot."""
    topics = topics_of(day)
    if first == 0:
        yield from beginning(day, topics)
    for topic in topics:
        for before, after in zip(topic.phases, topic.phases[1:], strict=False):
            if first <= after.first < end and after.layout is not before.layout:
                yield from Change(day, topic, before, after).steps()
    if first <= day.killed_at < end:
        yield from _sent_again(day)
    told = (each for at in range(first, min(end, day.rounds + 1)) for each in _now_and_then(day, at))
    yield from (each for each in told if day.is_told(np.asarray(each.worker), np.asarray(each.at)))


def _sent_again(day: Day) -> Iterator[Step]:
    """Producers of the killed worker send again what it has not answered, and are told that it is there."""
    at = day.killed_at - 1
    for topic in topics_of(day):
        before, after = topic.phase(at), topic.phase(day.killed_at)
        producers = day.producer(before.written.stream, topic.number, at)
        for place in np.flatnonzero(day.has_moved(producers, day.killed_at)).tolist():
            producer, stream = int(producers[place]), int(before.written.stream[place])
            first = int((at - before.written.born[place]) // day.producers) * day.run_records
            sequences = {"first_sequence": first, "last_sequence": first + day.run_records - 1}
            told: dict[str, Any] = {"producer_id": FIRST_PRODUCER + producer, "producer_epoch": 0, **sequences}
            told |= {"stream": stream, "records": day.run_records, "bytes": day.batches * day.batch_bytes}
            told |= client(int(connection(day, producer, day.killed_at)))
            told |= layout_of(after.layout, after.layouts_offset)
            why: dict[str, Any] = {"rule": "SEQ-IMAGE", "reason": "duplicate", "evidence": {"repeated": True}}
            worker = int(day.works_for(producer, day.killed_at))
            yield Step(worker, day.killed_at, OPENED, Decision(kind=Kind.ADMIT, **told, **why))


def _now_and_then(day: Day, at: int) -> Iterator[Step]:
    for readers in readers_of(day):
        for member in range(readers.first, readers.first + readers.members):
            if not readers.is_dialect:
                yield from _of_stock(day, readers, member, at)
            elif at % _POSITIONS_EVERY == 0 and at < day.rounds:
                yield from _positions(day, readers, member, at)
    if at < day.rounds:
        for number in range(at % _IDENTITIES_EVERY, day.transactional_ids, _IDENTITIES_EVERY):
            yield _identity(day, number, at)


def _of_stock(day: Day, readers: Readers, member: int, at: int) -> Iterator[Step]:
    """A group commits; a connection ends, unless its worker was killed, and another one goes on at the commit."""
    before, now = (reader(day, readers, member, max(0, each)) for each in (at - 1, at))
    has_left = before["connection"] != now["connection"]
    goes = readers.behind > 0 and at == day.rounds
    worker = int(day.works_for(member, at))
    is_lost = has_left and at == day.killed_at
    if (at + member) % _COMMITS_EVERY == 0 or (has_left and not is_lost):
        yield from _commits(day, readers, member, at)
    if (has_left and not is_lost) or goes:
        its_own: dict[str, Any] = {name: before[name] for name in ("connection", "client_id", "principal")}
        yield Step(worker, at, BEFORE, Decision(kind=Kind.CLOSE, reason="client_closed", **its_own))
    if has_left:
        yield from _told_commits(day, readers, member, at)


def _commits(day: Day, readers: Readers, member: int, at: int) -> Iterator[Step]:
    last, first = max(at - readers.behind, 0), max(at - readers.behind - _COMMITS_EVERY + 5, 0)
    for topic in _topics_of(day, readers):
        offsets = _offsets(readers, topic, member, last)
        if last and offsets:
            began = _offsets(readers, topic, member, first)
            evidence = {"offsets": [[v, began.get(v, offset), offset] for v, offset in offsets.items()]}
            told: dict[str, Any] = {"batches": 5, "api_key": apis.OFFSET_COMMIT, "evidence": evidence}
            yield _of_group(day, readers, topic, member, at, kind=Kind.OFFSET_COMMIT, **told)


def _told_commits(day: Day, readers: Readers, member: int, at: int) -> Iterator[Step]:
    """Where it is lost what the killed worker had given last, that is not committed either."""
    last = at - readers.behind - (at == day.killed_at)
    for topic in _topics_of(day, readers):
        offsets = _offsets(readers, topic, member, last)
        if last > 0 and offsets:
            evidence = {"offsets": [[v, offset] for v, offset in offsets.items()], "asked_after": NEWEST}
            told: dict[str, Any] = {"api_key": apis.OFFSET_FETCH, "evidence": evidence}
            yield _of_group(day, readers, topic, member, at, kind=Kind.OFFSET_FETCH, **told)


def _of_group(day: Day, readers: Readers, topic: Topic, member: int, at: int, **told: Any) -> Step:
    is_told_before = told["kind"] is Kind.OFFSET_COMMIT
    its_own = reader(day, readers, member, max(0, at - is_told_before))
    phase = topic.phase(max(0, at - is_told_before))
    place = layout_of(phase.layout, phase.layouts_offset)
    return Step(int(day.works_for(member, at)), at, BEFORE, Decision(**its_own, **place, **told))


def _topics_of(day: Day, readers: Readers) -> list[Topic]:
    return [topic for topic in topics_of(day) if not topic.is_dialects and not (readers.behind and topic.number)]


def _offsets(readers: Readers, topic: Topic, member: int, at: int) -> dict[int, int]:
    """Returns where a member has got in its virtual partitions before a round, as it counts itself."""
    ends, phase = topic.ends(at), topic.phase(at)
    homes = phase.layout.chains
    streams = range(phase.layout.v_count // 4 if readers.behind else phase.layout.v_count)
    own = ((v, homes[v].stays[-1]) for v in streams if int(readers.member(v)) == member)
    return {v: int(ends[home.partition]) + home.delta for v, home in own}


def _positions(day: Day, readers: Readers, member: int, at: int) -> Iterator[Step]:
    for topic in topics_of(day):
        told = positions(topic, at).items()
        own = {str(q): end for q, end in told if int(readers.member(-1 - q)) == member and end}
        if own:
            told_by: dict[str, Any] = {**reader(day, readers, member, at), "api_key": apis.CONSUMER_GROUP_POSITION}
            told_of: dict[str, Any] = {"topic": topic.name, "evidence": {"positions": own}}
            decision = Decision(kind=Kind.POSITION, **told_by, **told_of)
            yield Step(int(day.works_for(member, at)), at, AFTER, decision)


def _identity(day: Day, number: int, at: int) -> Step:
    """A transactional producer begins, or by turns raises its epoch itself."""
    turn, producer_id = at // _IDENTITIES_EVERY, _FIRST_TRANSACTIONAL + number
    given = [producer_id, turn - 1] if turn % 2 else [-1, -1]
    told = {"transactional_id": f"till-{number}", "given": given, "answered": [producer_id, turn], "error": 0}
    its_own: dict[str, Any] = {"connection": int(connection(day, number, at)), "client_id": f"till-{number}"}
    place: dict[str, Any] = {"api_key": apis.INIT_PRODUCER_ID, "principal": "User:till", "evidence": told}
    return Step(int(day.works_for(number, at)), at, AFTER, Decision(kind=Kind.ADMIT, **its_own, **place))
