"""How many partitions a topic should have by its load: the rule of `kordon autoscale`, without I/O and clock.

A topic grows when a partition takes in more than the policy's bytes per second, or a group is too far behind. It
shrinks when fewer partitions would be busy to seven tenths at most: a load that swings a little changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from kordon.codecs.counted import counted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import time

    from kordon.proxy.commands.autoscale_policy import Policy

_BUSY: Final = 0.7
"""Share of the policy's bytes per second up to which fewer partitions would do."""
_MOST_BY_LAG: Final = 2
"""Growth by lag at most doubles the partitions: then it is seen whether that helps."""


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """What is seen of a topic at one moment.

    Attributes:
        now: The time in seconds.
        sizes: Bytes of the log of one replica, by partition.
        lag: Records that the slowest group is behind on one partition; None: not known.
        group: The group that has the lag.
        obstacle: Why the topic should not be changed now; empty: it may.
    """

    now: float
    time_of_day: time
    initial: int
    physical: int
    virtual: int
    sizes: Mapping[int, int]
    lag: int | None = None
    group: str = ""
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class ScaleVerdict:
    """What a look comes to.

    Attributes:
        partitions: The number of partitions that the topic should get now. None: it stays as it is.
        wanted: The number of partitions that the load asks for.
        because: The reason in words, with figures.
        bytes_per_second: The bytes per second that clients write to the topic. None: not known yet.
    """

    partitions: int | None
    wanted: int
    because: str
    bytes_per_second: float | None


class _Pressure(NamedTuple):
    """What the load asks for without a break."""

    grows: bool
    since: float
    partitions: int
    """The present count that is wanted; to shrink, the most that was wanted at any look since then."""


class AutoscaleRule:
    """What one policy makes of a topic's looks, one after the other."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._last: TopicLoad | None = None
        self._rates: dict[int, float] = {}
        """By partition, bytes a second."""
        self._pressure: _Pressure | None = None
        self._changed: float | None = None

    def changed(self, now: float) -> None:
        """Notes that the topic was changed, or that it was tried."""
        self._changed = now
        self._pressure = None

    def decide(self, look: TopicLoad) -> ScaleVerdict:
        """Says what to do, by this look and those before it."""
        rate = self._rate(look)
        if rate is None:
            return ScaleVerdict(
                None, look.physical, "this is the first look: the load is known from the second on", None
            )
        wanted, why = self._wanted(look, rate)
        verdict = ScaleVerdict(None, wanted, why, rate)
        if wanted == look.physical:
            self._pressure = None
            return verdict
        before, grows = self._pressure, wanted > look.physical
        goes_on = before is not None and before.grows == grows
        self._pressure = pressure = _Pressure(
            grows,
            before.since if goes_on and before else look.now,
            wanted if grows or not goes_on or not before else max(before.partitions, wanted),
        )
        if waits := self._waits(look, pressure):
            return replace(verdict, because=f"{why}; {waits}")
        return replace(verdict, partitions=pressure.partitions)

    def _rate(self, look: TopicLoad) -> float | None:
        """Returns how many bytes a second the topic has taken in since the last look.

        Where retention has taken more from a log than was written, the partition counts with its rate of before.
        """
        last, self._last = self._last, look
        if last is None or look.now <= last.now:
            return None
        for q, size in look.sizes.items():
            grown = size - last.sizes.get(q, 0)
            if grown >= 0:
                self._rates[q] = grown / (look.now - last.now)
        self._rates = {q: self._rates.get(q, 0.0) for q in look.sizes}
        return sum(self._rates.values())

    def _wanted(self, look: TopicLoad, rate: float) -> tuple[int, str]:
        policy, now = self._policy, look.physical
        least, most = max(policy.minimum, look.initial), min(policy.maximum, look.virtual)
        each = f"{_size(rate / now)}/s for each of {counted(now, 'partition')}, of {_size(policy.bytes_per_second)}/s"
        if not least <= now <= most:
            return min(max(now, least), most), f"the policy asks for {least} to {counted(most, 'partition')}"
        by_bytes = ceil(rate / policy.bytes_per_second)
        behind = look.lag / policy.lag if policy.lag and look.lag is not None else 0.0
        by_lag = ceil(now * min(behind, _MOST_BY_LAG)) if behind > 1 else 0
        if max(by_bytes, by_lag) > now:
            why = each if by_bytes >= by_lag else f"{_behind(look)}, of {policy.lag}"
            wanted = min(max(by_bytes, by_lag), most)
            return wanted, f"{why}; {most} is the most there can be" if wanted == now else why
        fewer = max(ceil(rate / (policy.bytes_per_second * _BUSY)), least)
        if fewer >= now:
            return now, each
        if policy.lag and look.lag is None:
            return now, f"{each}, but no lag is known, and nothing shrinks without it"
        if behind > 1 / _MOST_BY_LAG:
            return now, f"{each}, but {_behind(look)}"
        return fewer, each

    def _waits(self, look: TopicLoad, pressure: _Pressure) -> str:
        """Says what the change waits for; empty: nothing."""
        policy = self._policy
        after, what = (policy.grow_after, "grows") if pressure.grows else (policy.shrink_after, "shrinks")
        lasts = after - (look.now - pressure.since)
        cools = policy.cool_down - (look.now - self._changed) if self._changed is not None else 0.0
        if look.obstacle:
            return f"not now: {look.obstacle}"
        if policy.hours and not any(window.holds(look.time_of_day) for window in policy.hours):
            return "not at this time of day (hours)"
        if lasts > 0:
            return f"{what} if that lasts {lasts:.0f} s more"
        return f"{cools:.0f} s more to cool down" if cools > 0 else ""


def _behind(look: TopicLoad) -> str:
    return f"group {look.group} is {counted(look.lag or 0, 'record')} behind"


def _size(count: float) -> str:
    """Writes a number of bytes for people.

    >>> _size(5_242_880)
    '5.0 MiB'
    """
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:.1f} GiB"
