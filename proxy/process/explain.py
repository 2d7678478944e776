"""What operators ask of managed topics: where everything lives and has lived, and why something waits.

Pure functions of a topic and of the control state to objects that JSON can take; `topics_tables` draws them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kordon.codecs.counted import counted
from kordon.codecs.shown_text import cut
from kordon.proxy.member.control_state import ControlState
from kordon.proxy.member.topic_state import announced_in_words, older_in_words, state_in_words, why_not_served
from kordon.proxy.ordering.announcing import OLDER_CURE
from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.changes import Change, OlderOpen, Stage
from kordon.proxy.ordering.images import rows_of
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import FindingRecord
from kordon.proxy.ordering.segments import Segment, SegmentId
from kordon.proxy.ordering.streams import is_physical, shown_partition
from kordon.proxy.ordering.takeover import NEAR_RECORDS, is_shared
from kordon.proxy.ordering.wishes import Resize, Wish
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.topics.managed_topics import ManagedTopic, face_of

_MOST_TRANSACTIONS: Final = 100
"""That a page has of one change."""
Facts = dict[str, Any]
"""An object of the admin pages; JSON can take it."""

NOT_ENABLED: Final[Facts] = {"enabled": False, "control": None, "topics": [], "findings": []}
"""The page of a Kordon that is told not to serve managed topics."""


def explain_all(topics: Iterable[ManagedTopic], control: ControlState) -> Facts:
    """Tells what is managed, in short, and how control is: the object of /topics."""
    rows = [_brief(topic, control) for topic in sorted(topics, key=lambda topic: topic.name)]
    return {
        "enabled": True,
        "control": explain_control(control),
        "topics": rows,
        "findings": [_finding(each) for each in control.findings],
    }


def explain_topic(
    topic: ManagedTopic, control: ControlState, bypassed: int = 0, held_for_groups: Sequence[Facts] = ()
) -> Facts:
    """Tells all about one topic: the object of /topics/NAME.

    Args:
        bypassed: The number of batches that the worker has read of writers that went around Kordon (BYPASS-SHARED).
        held_for_groups: The partitions with which groups of the dialect wait (`held_groups`).
    """
    layout = topic.layout
    return {
        **_brief(topic, control),
        "held_for_groups": list(held_for_groups),
        "topic_id": str(layout.topic_id),
        "face": face_of(topic.name),
        "face_id": str(topic.face_id),
        "epochs": [
            {"layout_epoch": each.number, "undeleted_partition_count": each.u, "placement": each.placement.value}
            for each in layout.epochs
        ],
        "partitions": [_partition(topic, q) for q in sorted({each.id.partition for each in layout.segments})],
        "chains": _chains(layout),
        "floors": {str(v): floor for v, floor in sorted((layout.floors or {}).items()) if floor},
        "producers_carried": {
            str(stream): rows_of(image)
            for stream, image in sorted(topic.images.items())
            if image and not is_physical(stream)
        },
        "dialect_producers_carried": {
            str(shown_partition(stream)): rows_of(image)
            for stream, image in sorted(topic.images.items(), reverse=True)
            if image and is_physical(stream)
        },
        "bypassed_batches": bypassed,
        "findings": [_finding(each) for each in control.findings if each.topic == topic.name],
        "control": explain_control(control),
    }


def explain_control(control: ControlState) -> Facts:
    """Tells how this worker stands in the proxies' group, and what is under way."""
    generation = control.generation
    members = generation.members if generation is not None else ()
    leader = generation.leader_id if generation is not None else None
    return {
        "serves": control.serves,
        "why_not": why_not_served(control),
        "incarnation": control.incarnation,
        "generation": generation.number if generation is not None else None,
        "leads": control.leads,
        "lease_seconds_left": round(control.lease_seconds_left, 1),
        "layouts_position": control.position,
        "members": [
            {"incarnation": each.incarnation, "host": each.host, "leads": each.member_id == leader} for each in members
        ],
        "fences": [
            {
                "topic": topic,
                "fence": fence.id,
                "sealed": sorted(fence.sealed),
                "layout_epoch": fence.following.number,
                "undeleted_partition_count": fence.following.u,
            }
            for topic, fence in sorted(control.fences.items())
        ],
        "procedures": None
        if control.changes is None
        else [_procedure(change, control) for _, change in sorted(control.changes.items())],
        "wishes": [{"wish": wish_id, "what": describe_wish(wish)} for wish_id, wish in control.wishes.items()],
    }


def describe_wish(wish: Wish) -> str:
    """Says in a few words what is wished."""
    return f"resize {wish.topic} to {wish.partitions}" if isinstance(wish, Resize) else f"{wish.kind} {wish.topic}"


def sum_up(topics: Iterable[ManagedTopic], control: ControlState) -> Facts:
    """Tells how managed topics are in a few numbers: a section of /status."""
    changes = control.changes or {}
    return {
        "enabled": True,
        "topics": sum(1 for _ in topics),
        "serves": control.serves,
        "why_not": why_not_served(control),
        "generation": control.generation.number if control.generation is not None else None,
        "leads": control.leads,
        "lease_seconds_left": round(control.lease_seconds_left, 1),
        "layouts_position": control.position,
        "fences": len(control.fences),
        "procedures": len(changes),
    }


def _finding(finding: FindingRecord) -> Facts:
    found = datetime.fromtimestamp(finding.found_ms / 1000, UTC)
    return {
        "topic": finding.topic,
        "kind": finding.kind,
        "text": finding.text,
        "found": found.isoformat(timespec="milliseconds"),
    }


def _brief(topic: ManagedTopic, control: ControlState) -> Facts:
    layout = topic.layout
    return {
        "topic": topic.name,
        "state": state_in_words(topic, control),
        "initial_partition_count": layout.n,
        "undeleted_partition_count": layout.u,
        "virtual_partitions": layout.v_count,
        "layout_epoch": layout.epoch,
        "ordered_delivery": layout.ordered_delivery,
        "has_transactions": layout.has_transactions,
        "held": _held(topic, control),
    }


def _held(topic: ManagedTopic, control: ControlState) -> list[Facts]:
    """Says what waits, and for what; empty when nothing does."""
    held: list[Facts] = []
    if (why_not := why_not_served(control)) is not None:
        held.append(_waiting(topic, topic.layout.open_segments, why_not))
    if (fence := control.fences.get(topic.name)) is not None:
        target = f"layout epoch {fence.following.number} with {counted(fence.following.u, 'partition')}"
        done = topic.fence is not None and topic.fence.id == fence.id and bool(topic.fence.high_watermarks)
        step = "nothing is under way there any more" if done else "what is under way there comes to its end"
        held.append(_waiting(topic, fence.sealed, f"fence {fence.id} for {target}: {step}"))
    elif topic.fence is not None:
        held.append(_waiting(topic, topic.fence.sealed, f"fence {topic.fence.id}: its end has not been read yet"))
    if (change := (control.changes or {}).get(topic.name)) is not None:
        held.append(_waiting(topic, (), _sentence(change, control)))
    is_announced = change is None and topic.announcement.coming
    waits = announced_in_words(control) if is_announced else "waits for the controller"
    held += [
        _waiting(topic, (), f"{describe_wish(wish)}: {waits}")
        for wish in control.wishes.values()
        if wish.topic == topic.name and change is None
    ]
    if withheld := [v for v in range(topic.layout.v_count) if topic.layout.withholds(v)]:
        held += [{"partitions": [], "virtual_partitions": withheld, "why": why} for why in _withheld(topic)]
    return held


def _withheld(topic: ManagedTopic) -> list[str]:
    """Says what a takeover waits for (TAKEOVER-WAITS)."""
    takeover = topic.takeover
    if takeover is None or not takeover.cuts:
        until_ms = None if takeover is None else takeover.until_ms
        until = "" if until_ms is None else f" {datetime.fromtimestamp(until_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ},"
        if is_shared(topic.layout):
            groups = takeover.waits_for if takeover is not None else ()
            what = f"delivered as virtual partition v mod {topic.layout.n}"
            far = [f"{what}: group {group} is more than {NEAR_RECORDS:,} records behind" for group in groups]
            return far or [f"{what} until{until} when no client has the old number of partitions any more"]
        return [f"written, but not delivered before{until} when no client has the old number of partitions any more"]
    reasons = [f"group {group} has to read what was written before" for group in takeover.waits_for]
    reasons += [f"member {each.member} of group {each.group} has to come over" for each in takeover.subscribers]
    return [f"written, but not delivered yet: {reason}" for reason in reasons or ["the groups are being looked at"]]


def _waiting(topic: ManagedTopic, partitions: Iterable[int], why: str) -> Facts:
    held = sorted(partitions)
    return {
        "partitions": held,
        "virtual_partitions": sorted(v for q in held for v in topic.layout.residence.residents(q)),
        "why": why,
    }


def _sentence(change: Change, control: ControlState) -> str:
    facts = _procedure(change, control)
    waits = ", ".join(facts["waits_for"])
    attempt = f", attempt {change.attempts}" if change.attempts > 1 else ""
    return (
        f"the controller changes it to {counted(change.target, 'partition')}: {change.stage.value}"
        f" for {facts['seconds']:g} s{attempt}"
        + (f"; {waits} missing" if waits else "")
        + (f", at most {left:g} s more" if (left := facts["lease_seconds_left"]) else "")
        + (f"; {older_in_words(change, now_ms())}. {facts['cure']}" if change.left else "")
    )


def _procedure(change: Change, control: ControlState) -> Facts:
    missing: Iterable[str] = ()
    if change.stage is Stage.FENCING:
        missing = control.members.keys() - change.acknowledged
    elif change.stage is Stage.PAUSING:
        missing = change.missed
    elif change.stage is Stage.TELLING:
        missing = control.members.keys() - change.told_to
    waits = sorted(f"{control.members.get(each, 'gone')} ({each[:8]})" for each in missing)
    return {
        "topic": change.topic,
        "undeleted_partition_count": change.target,
        "stage": change.stage.value,
        "seconds": round(max(control.now - change.since, 0.0), 1),
        "attempts": change.attempts,
        "fence": change.fence.id if change.fence is not None else None,
        "waits_for": waits,
        "lease_seconds_left": round(control.missing_lease_seconds, 1) if change.stage is Stage.WAITING else 0.0,
        "transactions": [_older(each) for each in change.waited[:_MOST_TRANSACTIONS]],
        "cure": OLDER_CURE if change.left else "",
    }


def _older(each: OlderOpen) -> Facts:
    return {
        "transactional_id": cut(each.transactional_id),
        "producer_id": each.producer_id,
        "state": each.state,
        "partitions": sorted(each.partitions),
        "seconds_left": round(max(each.ends_ms / 1000 - time.time(), 0.0), 1),
    }


def _partition(topic: ManagedTopic, q: int) -> Facts:
    layout = topic.layout
    state = "retired" if q not in layout.open_segments else "held" if topic.is_sealed(q) else "written"
    shown = topic.fence.high_watermarks.get(q) if topic.fence is not None else None
    return {
        "partition": q,
        "state": state,
        "virtual_partitions": list(layout.residence.residents(q)),
        "readable_up_to": shown,
        "segments": [_segment(each) for each in layout.segments if each.id.partition == q],
    }


def _segment(segment: Segment) -> Facts:
    return {
        "segment": _name(segment.id),
        "layout_epoch": segment.id.epoch,
        "start": segment.start,
        "end": segment.end,
        "lost_from": segment.lost_from,
        "predecessors": [_name(each) for each in segment.predecessors],
    }


def _name(segment: SegmentId) -> str:
    return f"{segment.partition}@{segment.epoch}"


def _chains(layout: Layout) -> list[Facts]:
    """Virtual partitions that have always lived together share one row."""
    together: dict[Chain, list[int]] = {}
    for vs, chain in layout.residence.runs:
        together.setdefault(chain, []).extend(vs)
    return [_chain(vs, chain) for chain, vs in together.items()]


def _chain(vs: list[int], chain: Chain) -> Facts:
    home = chain.home
    return {
        "virtual_partitions": vs,
        "partition": home.partition if home is not None else None,
        "moves": home.move if home is not None else 0,
        "stays": [_stay(each) for each in chain.stays],
    }


def _stay(stay: Stay) -> Facts:
    return {
        "partition": stay.partition,
        "start": stay.start,
        "end": stay.end,
        "lost_from": stay.lost_from,
        "virtual_start": stay.virtual_start,
        "virtual_end": stay.virtual_end,
        "delta": stay.delta,
        "move": stay.move,
        "tagged": stay.tagged,
    }
