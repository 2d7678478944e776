"""A proxy's lease on managed topics, and what renews it (LIVE-LEASE).

A lease lives for L from the moment at which a commit was *sent* that the group's coordinator accepted: such a commit is
checked against the generation and replicated. A heartbeat writes nothing and renews nothing. Time is that of
CLOCK_BOOTTIME, which continues while the machine sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.group import GroupCoordinator, GroupRefused, Joined
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC
from kordon.proxy.runtime.clock import clock

log = structlog.get_logger(__name__)

LEASE_SECONDS: Final = 20.0
"""At least this; a controller waits as long for members that it misses."""
_RENEWALS: Final = 3
"""In the time of a lease."""
_RETRY_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 1.0
"""How often is looked whether a renewal is due: timers stand still while the machine sleeps, leases do not."""


class Lease:
    """The time until which managed topics may be served.

    Args:
        on_renewed: Called at each renewal with the time at which it was asked for.
    """

    def __init__(self, seconds: float = LEASE_SECONDS, on_renewed: Callable[[float], None] | None = None) -> None:
        self.seconds = seconds
        self.expires = 0.0
        """The end of the lease, by `clock`."""
        self._on_renewed = on_renewed

    def alive(self) -> bool:
        """Whether it lives now."""
        return clock() < self.expires

    def renew(self, sent: float) -> None:
        """Takes in that a commit was accepted, which was sent at a time by `clock`."""
        self.expires = max(self.expires, sent + self.seconds)
        if self._on_renewed is not None:
            self._on_renewed(sent)


class Renewer:
    """Commits in the proxies' group each third of a lease, and at once in a new generation.

    Args:
        coordinator: A connection of its own to the coordinator, so that a commit does not wait for a JoinGroup.
        incarnation: The worker's name. It stands in the commit, for people who look at the group.
        position: Returns the offset up to which the layouts have been read.
        topic: The topic for whose partition 0 the commit is.
    """

    def __init__(
        self,
        lease: Lease,
        coordinator: GroupCoordinator,
        incarnation: str,
        position: Callable[[], int],
        topic: str = LAYOUTS_TOPIC,
    ) -> None:
        self._lease = lease
        self._coordinator = coordinator
        self._incarnation = incarnation
        self._position = position
        self._topic = topic
        self._joined: Joined | None = None
        self._wake = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    def close(self) -> None:
        """Closes the connection."""
        self._coordinator.close()

    def joined(self, joined: Joined | None) -> None:
        """Commits for another membership from now on; None: there is none to commit for."""
        self._joined = joined
        self._wake.set()

    async def run(self) -> None:
        """Renews the lease until it is cancelled."""
        due = clock()
        while True:
            if self._wake.is_set() or clock() >= due:
                self._wake.clear()
                done = await self._renew()
                due = clock() + (self._lease.seconds / _RENEWALS if done else _RETRY_SECONDS)
            try:
                async with asyncio.timeout(min(_LOOK_SECONDS, max(due - clock(), 0.0))):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _renew(self) -> bool:
        try:
            return await self.confirm()
        except UpstreamUnavailable as error:
            left = round(max(self._lease.expires - clock(), 0.0), 1)
            log.warning("lease_not_renewed", error=str(error), seconds_left=left)
            return False

    async def confirm(self) -> bool:
        """Renews now, and so proves that the generation that is known is still the present one.

        Returns:
            False: another generation is the present one, or there is none.

        Raises:
            UpstreamUnavailable: The coordinator does not answer, so nothing is known.
        """
        async with self._one_at_a_time:
            joined = self._joined
            if joined is None:
                return False
            sent = clock()
            patience = self._lease.seconds / _RENEWALS / 2
            try:
                async with asyncio.timeout(patience):
                    await self._coordinator.commit(joined, self._topic, self._position(), self._incarnation)
            except TimeoutError:
                raise UpstreamUnavailable(f"committing: no answer in {patience:.1f} s") from None
            except GroupRefused as refusal:
                if refusal.code != Code.REBALANCE_IN_PROGRESS:
                    log.warning("lease_refused", error=str(refusal), generation=joined.generation)
                return False
            self._lease.renew(sent)
            return True
