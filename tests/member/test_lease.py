"""From when on a lease is counted, and until when (LIVE-LEASE)."""

import asyncio

from kordon.proxy.kafka.group import GroupCoordinator, Joined
from kordon.proxy.member.lease import Lease, Renewer
from kordon.proxy.runtime.clock import clock


class SlowCoordinator(GroupCoordinator):
    """Accepts every commit, some time after it came."""

    def __init__(self) -> None:
        self.came = 0.0

    async def commit(self, joined: Joined, topic: str, offset: int, metadata: str) -> None:
        self.came = clock()
        await asyncio.sleep(0.05)


async def test_a_lease_is_counted_from_when_its_commit_was_sent() -> None:
    """The time that the answer took is no time in which the proxy was confirmed."""
    lease, coordinator = Lease(20.0), SlowCoordinator()
    renewer = Renewer(lease, coordinator, "incarnation", lambda: 0)
    assert not await renewer.confirm()  # there is no generation to confirm
    renewer.joined(Joined(1, "member", "member", ()))
    assert await renewer.confirm()
    assert lease.expires - lease.seconds <= coordinator.came


def test_a_lease_counts_from_the_sending_and_never_back() -> None:
    """An answer that was long on its way gives less; one that overtook it is not taken back."""
    lease = Lease(20.0)
    assert not lease.alive()
    lease.renew(clock() - 20.5)
    assert not lease.alive()
    lease.renew(clock() - 5.0)
    assert lease.alive()
    expires = lease.expires
    lease.renew(clock() - 10.0)
    assert lease.expires == expires
