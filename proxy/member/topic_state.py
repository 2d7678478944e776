"""The state of a managed topic in words, as one worker knows it: what goes on, what it waits for, and how long at most.

Every worker knows it: wishes, fences and takeovers stand in the layouts. Only the controller knows how far a change is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil
from typing import TYPE_CHECKING

from kordon.codecs.counted import counted
from kordon.codecs.shown_text import cut
from kordon.proxy.ordering.changes import Stage
from kordon.proxy.ordering.wishes import Manage, Resize
from kordon.proxy.runtime.clock import now_ms

if TYPE_CHECKING:
    from kordon.proxy.member.control_state import ControlState
    from kordon.proxy.ordering.changes import Change
    from kordon.proxy.ordering.takeover import Takeover
    from kordon.proxy.ordering.wishes import Wish
    from kordon.proxy.topics.managed_topics import ManagedTopic

SETTLED = "settled"
"""The last word of the state of a topic for which nothing is left to do."""
_MOST_NAMED = 3
"""Groups that are named; of more, how many there are."""


def state_in_words(topic: ManagedTopic, control: ControlState) -> str:
    """Returns the state of a managed topic."""
    layout = topic.layout
    change = (control.changes or {}).get(topic.name)
    wish = next((each for each in control.wishes.values() if each.topic == topic.name), None)
    fence = control.fences.get(topic.name)
    if change is not None or fence is not None or wish is not None:
        is_fenced = fence is not None
        if change is None and topic.announcement.coming and not is_fenced:
            waits = announced_in_words(control)
        else:
            waits = waits_for(control, change, is_fenced=is_fenced)
        if topic.takeover is not None:
            return f"being taken over: {waits}"
        target = fence.following.u if fence is not None else layout.u
        target = wish.partitions if isinstance(wish, Resize) else target
        target = change.target if change is not None else target
        return f"{_doing(layout.u, target, wish)}: {waits}"
    if topic.takeover is not None:
        return f"being taken over: {_taking_over(topic.takeover, topic, control)}"
    serving = f"serving {layout.u} of {layout.v_count}"
    why_not = why_not_served(control)
    return f"{serving}, {SETTLED}" if why_not is None else f"{serving}: not by this proxy, {why_not}"


def state_to_come(topic: str, control: ControlState) -> str | None:
    """Returns the state of a topic that somebody wants managed; None: nobody does."""
    wished = [each for each in control.wishes.values() if each.topic == topic and isinstance(each, Manage)]
    if not wished:
        return None
    waits = waits_for(control, (control.changes or {}).get(topic), is_fenced=topic in control.fences)
    return f"coming under management with {counted(wished[0].virtual_partitions, 'virtual partition')}: {waits}"


def why_not_served(control: ControlState) -> str | None:
    """Says why this worker serves no managed topic now; None if it does."""
    if control.serves:
        return None
    if control.lost:
        return f"the layouts are lost ({control.lost}): restore them, then restart"
    if control.generation is None:
        none_read = "no layouts have been read yet; there are none until a topic is managed"
        return "not in the proxies' group yet" if control.position else none_read
    if not control.lease_seconds_left:
        return "the lease has ended: the cluster has not confirmed this proxy for too long"
    return "the layouts are not read to their end yet"


def waits_for(control: ControlState, change: Change | None, *, is_fenced: bool) -> str:
    """Says what a change waits for.

    Args:
        change: The change as the controller has it; None: this worker is not the controller, or the change has not
            begun.
        is_fenced: Whether proxies hold writes for the change.
    """
    if change is not None and change.stage is Stage.FENCING:
        missing = sorted(control.members.get(each, each[:8]) for each in control.members.keys() - change.acknowledged)
        return f"waits until {', '.join(missing) or 'every proxy'} has stopped writing"
    if change is not None and change.stage is Stage.PAUSING:
        missing = sorted(control.members.get(each, each[:8]) for each in change.missed)
        return f"tries again, as {', '.join(missing) or 'a proxy'} has not stopped writing in time"
    if change is not None and change.stage is Stage.TELLING:
        missing = sorted(control.members.get(each, each[:8]) for each in control.members.keys() - change.told_to)
        return f"waits until {', '.join(missing) or 'every proxy'} knows of it"
    if change is not None and change.stage is Stage.OLDER and change.left:
        return older_in_words(change, now_ms())
    if is_fenced:
        return "holds the writes of partitions that change"
    if control.awaited and (change is None or change.stage is Stage.WAITING):
        host, seconds = max(control.awaited.items(), key=lambda each: each[1])
        whose = f"the lease of {host}" if host else "leases of proxies from before this one"
        return f"waits for {whose}, at most {ceil(seconds)} s more"
    if change is not None:
        return change.stage.value
    return "waits for the controller"


def announced_in_words(control: ControlState) -> str:
    """Says what a change waits for that is announced, where this worker is not the controller."""
    generation = control.generation
    leaders = [each.host for each in generation.members if each.member_id == generation.leader_id] if generation else []
    return f"waits for transactions from before, which the controller{' at ' + leaders[0] if leaders else ''} names"


def older_in_words(change: Change, now_ms: int) -> str:
    """Says which transactions a change waits for, and how long at most (OLDER-FIRST).

    Args:
        now_ms: The wall clock, in milliseconds since 1970.
    """
    ids = sorted({cut(each.transactional_id) for each in change.waited})
    more = f", {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    if not ids:
        return f"waits for {counted(len({each for _, each in change.left}), 'transaction')}"
    left = ceil(max(max(each.ends_ms for each in change.waited) - now_ms, 0) / 1000)
    return f"waits for the transactions of {', '.join(ids[:_MOST_NAMED])}{more}, at most {left} s more"


def _doing(now: int, target: int, wish: Wish | None) -> str:
    if now == target:
        return f"serving {now}" if wish is None or isinstance(wish, Resize) else f"{wish.kind} is under way"
    return f"{'growing' if now < target else 'shrinking'} {now} -> {target}"


def _taking_over(takeover: Takeover, topic: ManagedTopic, control: ControlState) -> str:
    """Says what a takeover waits for (TAKEOVER-WAITS)."""
    if not takeover.cuts:
        if takeover.until_ms is None:
            return f"waits until every proxy shows {counted(topic.layout.v_count, 'partition')}"
        until = datetime.fromtimestamp(takeover.until_ms / 1000, UTC)
        return f"ready at {until:%Y-%m-%d %H:%M:%SZ} at the earliest, when clients have refreshed their metadata"
    if takeover.waits_for:
        return _groups(takeover.waits_for, topic.name, control)
    if takeover.subscribers:
        groups = sorted({each.group for each in takeover.subscribers})
        members, have = (
            counted(len(takeover.subscribers), "member"),
            "has" if len(takeover.subscribers) == 1 else "have",
        )
        return f"waits until {members} of {', '.join(groups)} {have} subscribed again"
    return "looks at what groups have committed"


def _groups(names: tuple[str, ...], topic: str, control: ControlState) -> str:
    behind = control.behind.get(topic)
    to_go = behind.to_go if behind is not None else dict[str, int]()
    told = [
        f"{name} has {counted(to_go[name], 'record')} to go" if name in to_go else name
        for name in sorted(names, key=lambda name: -to_go.get(name, 0))[:_MOST_NAMED]
    ]
    more = f", {len(names) - len(told)} more" if len(names) > len(told) else ""
    known = behind.groups if behind is not None else 0
    of = f"{len(names):,} of " if known > len(names) else ""
    return f"waits for {of}{counted(max(known, len(names)), 'group')}: {', '.join(told)}{more}"
