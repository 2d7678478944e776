"""Trouble that is arranged: what chance brings together once in thousands of seeds, several times in one.

The writes of one proxy are kept on their way while it is paused or killed and its lease ends, a layout is changed
meanwhile, and they land where they do most harm: between the two looks at a cut (STILL-CUT), or just behind it, while
another proxy has not read the new layout yet (FROZEN-READS, NO-FALSE-END). The first one then wakes up with answers
from before (LATE-ANSWER), and with a lease sooner than with the layouts (READ-BEFORE-SERVE). Or a controller is cut off
with a layout on its way, which lands when another one takes over (ONE-CONTROLLER).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kordon.proxy.kafka.batches import NewRecord

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster
    from kordon.testing.simulation.proxies import Proxy

_KEPT_SECONDS: Final = 0.6
"""How long a proxy's writes are kept back before it is struck itself."""
_PAUSE_SECONDS: Final = 13.0
"""Longer than the group and the controller together wait for who is missing; shorter than patient clients wait, which
then hear what the victim makes of answers from before (LATE-ANSWER)."""
_SHORT_PAUSE_SECONDS: Final = 5.1
"""Longer than the group waits, shorter than a lease: who is missing may still serve (MISSING-WAITED)."""
_FRESH_SECONDS: Final = 5.6
"""What the victim's lease has left when a short pause begins: it wakes with some of it."""
_CHANGE_SECONDS: Final = 4.0
"""After the victim is hit; by then the group knows, and the change waits for the victim's lease only."""
_SOON_SECONDS: Final = 3.0
"""The same of a short pause: the fence stands already when the group gives the victim up."""
_WHILE_SECONDS: Final = 8.0
"""Until the change is taken back, where it is: clients know of it by then, and the victim is still down."""
_AT_CUT_SHARE: Final = 0.25
"""Of what a paused victim's writes do, in which they land while a cut is read; else they land behind it, and the
victim hears of that. A killed one hears nothing: its writes mostly land while the cut is read."""
_LAG_SECONDS: Final = 3.0
_WOKEN_LAG_SECONDS: Final = 2.2
"""By so much the victim has a lease sooner than the layouts: less than writes are held, or its clients give them up."""
_WAIT_SECONDS: Final = 0.05
_OVERTAKEN_SECONDS: Final = 9.0
"""How long a controller is cut off: the group has another one long before."""


class Nemesis:
    """Strikes one proxy after the other.

    Args:
        cluster: The cluster in which it strikes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._victim: Proxy | None = None
        self._kept: list[Callable[[], None]] = []
        self._kept_of: set[int] = set()
        """The partitions that what was kept is for: they are to be sealed meanwhile."""
        self._strikes = 0
        self._overtakes = False
        self._late: list[Callable[[], None]] = []
        """A layout that a controller has written, on its way."""

    def strike(self) -> bool:
        """Begins, unless the last victim is still down; returns whether it will again."""
        world = self._cluster.world
        if self._victim is None and world.now < self._cluster.trouble_seconds - _PAUSE_SECONDS:
            self._victim = world.random.choice(self._cluster.written_through)
            self._strikes += 1
            world.say(f"what {self._victim.name} writes is kept on its way")
            self._cluster.be_busy(_KEPT_SECONDS)
            world.after(_KEPT_SECONDS, self._hit_in_time if self._strikes % 2 == 0 else self._hit)
        return world.now < self._cluster.trouble_seconds

    def keeps(self, proxy: Proxy, partitions: Callable[[], Iterable[int]], write: Callable[[], None]) -> bool:
        """Takes a request that writes to physical partitions, if it is the victim's."""
        if proxy is not self._victim:
            return False
        self._kept.append(write)
        self._kept_of.update(partitions())
        return True

    def on_cut(self) -> None:
        """A controller has asked who has written to a log, and will look at its end once more now (STILL-CUT)."""
        victim = self._victim
        share = _AT_CUT_SHARE if victim is None or victim.alive else 1 - _AT_CUT_SHARE
        if self._kept and self._cluster.world.chance(share):
            self.release()

    def on_layout(self) -> None:
        """A layout is durable, and nobody has read it."""
        if self._victim is None:
            return
        others = [each for each in self._cluster.proxies if each is not self._victim and each.leading is None]
        for proxy in others[:1]:
            proxy.lags_until = self._cluster.world.now + _LAG_SECONDS
        self.release()

    def overtake(self) -> None:
        """Has the next layout that is written be overtaken by another controller (ONE-CONTROLLER)."""
        self._overtakes = True

    def keeps_layout(self, proxy: Proxy, entries: Iterable[NewRecord], write: Callable[[], None]) -> bool:
        """Takes a controller's transaction, if it is the one that is to be late."""
        if not self._overtakes or not any(entry.key.startswith("topic/") for entry in entries):
            return False
        self._overtakes = False
        self._late.append(write)
        proxy.cut_off(_OVERTAKEN_SECONDS)
        return True

    def on_takeover(self, proxy: Proxy) -> None:
        """A controller is about to fence the former one; nobody hears at once of what that one has still written."""
        if self._late:
            self._late.pop()()
            proxy.lags_until = self._cluster.world.now + _LAG_SECONDS

    def release(self) -> None:
        """Lets all that was kept land, in its order."""
        kept, self._kept = self._kept, []
        self._kept_of.clear()
        for write in kept:
            write()

    def _hit(self) -> None:
        """Strikes for longer than anybody waits."""
        victim, world = self._victim, self._cluster.world
        assert victim is not None
        self._change_after(_CHANGE_SECONDS)
        if world.chance(0.3):
            self._cluster.kill(victim)
        else:
            self._pause(victim, _PAUSE_SECONDS)
        world.after(_PAUSE_SECONDS, self._end)

    def _hit_in_time(self) -> None:
        """Strikes for a short while, as soon as the victim's lease outlasts that."""
        victim, world = self._victim, self._cluster.world
        assert victim is not None
        if victim.alive and not victim.is_ending and victim.member.lease_expires < world.now + _FRESH_SECONDS:
            world.after(_WAIT_SECONDS, self._hit_in_time)
            return
        self._change_after(_SOON_SECONDS)
        self._pause(victim, _SHORT_PAUSE_SECONDS)
        world.after(_SHORT_PAUSE_SECONDS + _LAG_SECONDS, self._end)

    def _change_after(self, seconds: float) -> None:
        """Has the layout changed where the victim's writes are on their way."""
        to_seal = frozenset(self._kept_of)
        self._cluster.world.after(seconds, lambda: self._cluster.change_for_a_while(_WHILE_SECONDS, to_seal))

    def _pause(self, victim: Proxy, seconds: float) -> None:
        victim.pause(seconds)
        lags = not self._cluster.comes_back or self._cluster.world.chance(0.5)
        victim.lags_until = victim.paused_until + _WOKEN_LAG_SECONDS * lags

    def _end(self) -> None:
        self._victim = None
        self.release()
