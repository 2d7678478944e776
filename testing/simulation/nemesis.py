"""Trouble that is arranged: what chance brings together once in thousands of seeds, several times in one.

The writes of one proxy are kept on their way while it is paused or killed and its lease ends, a layout is changed
meanwhile, and they land where they do most harm: between the two looks at a cut (STILL-CUT), or just behind it, while
another proxy has not read the new layout yet (FROZEN-READS, NO-FALSE-END). The first one then wakes up with answers
from before (LATE-ANSWER), and with a lease sooner than with the layouts (READ-BEFORE-SERVE).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster
    from kordon.testing.simulation.proxies import Proxy

_KEPT_SECONDS: Final = 0.6
"""How long a proxy's writes are kept back before it is struck itself."""
_PAUSE_SECONDS: Final = 17.0
"""Longer than the group and the controller together wait for who is missing."""
_SHORT_PAUSE_SECONDS: Final = 5.1
"""Longer than the group waits, shorter than a lease: who is missing may still serve (MISSING-WAITED)."""
_CHANGE_SECONDS: Final = 4.0
"""After the victim is hit; by then the group knows, and the change waits for the victim's lease only."""
_WHILE_SECONDS: Final = 8.0
"""Until the change is taken back, where it is: clients know of it by then, and the victim is still down."""
_LAG_SECONDS: Final = 3.0


class Nemesis:
    """Strikes one proxy after the other.

    Args:
        cluster: Whose.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._victim: Proxy | None = None
        self._kept: list[Callable[[], None]] = []
        self._strikes = 0

    def strike(self) -> bool:
        """Begins, unless the last victim is still down; returns whether it will again."""
        world = self._cluster.world
        if self._victim is None and world.now < self._cluster.trouble_seconds - _PAUSE_SECONDS:
            self._victim = world.random.choice(self._cluster.written_through)
            world.say(f"what {self._victim.name} writes is kept on its way")
            world.after(_KEPT_SECONDS, self._hit)
        return world.now < self._cluster.trouble_seconds

    def keeps(self, proxy: Proxy, write: Callable[[], None]) -> bool:
        """Takes a write, if it is the victim's."""
        if proxy is not self._victim:
            return False
        self._kept.append(write)
        return True

    def on_cut(self) -> None:
        """A controller has looked at the end of a log, and will look at its producers now."""
        if self._kept and self._cluster.world.chance(0.5):
            self.release()

    def on_layout(self) -> None:
        """A layout is durable, and nobody has read it."""
        if self._victim is None:
            return
        others = [each for each in self._cluster.proxies if each is not self._victim and each.leading is None]
        for proxy in others[:1]:
            proxy.lags_until = self._cluster.world.now + _LAG_SECONDS
        self.release()

    def release(self) -> None:
        """Lets all that was kept land, in its order."""
        kept, self._kept = self._kept, []
        for write in kept:
            write()

    def _hit(self) -> None:
        victim, world = self._victim, self._cluster.world
        assert victim is not None
        self._strikes += 1
        world.after(_CHANGE_SECONDS, lambda: self._cluster.change_for_a_while(_WHILE_SECONDS))
        if world.chance(0.3):
            self._cluster.kill(victim)
        else:
            victim.pause(_SHORT_PAUSE_SECONDS if self._strikes % 2 == 0 else _PAUSE_SECONDS)
            lags = not self._cluster.comes_back or world.chance(0.5)
            victim.lags_until = victim.paused_until + _LAG_SECONDS * lags
        world.after(_PAUSE_SECONDS, self._end)

    def _end(self) -> None:
        self._victim = None
        self.release()
