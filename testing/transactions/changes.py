"""The controller: it announces changes, waits for older transactions, fences, cuts, and sometimes withdraws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kordon.proxy.ordering.transactions.older_transactions import OlderTransactions, OpenAt
from kordon.proxy.ordering.transactions.open_answers import NOT_OPEN
from kordon.testing.transactions.cluster import Cluster, U, V
from kordon.testing.transactions.workers import Worker
from kordon.testing.transactions.world import Activity


class Changes:
    """Makes a topic's virtual partitions move."""

    def __init__(self, cluster: Cluster, workers: Sequence[Worker]) -> None:
        self.is_over = False
        self._cluster, self._world, self._workers = cluster, cluster.world, workers

    def live(self) -> Activity[None]:
        """Makes one change after the other until the simulation heals."""
        while not self._world.is_healing:
            rest = self._world.now + self._world.below(100)
            yield lambda: self._world.now > rest or self._world.is_healing  # noqa: B023 - until it goes on
            yield from self._change(self._drawn())
        self.is_over = True

    def _drawn(self) -> dict[int, int]:
        """Draws what moves where; nothing: a log got shorter, and its fence moves nothing."""
        if self._world.happens(0.15):
            return {}
        homes = self._cluster.layout.homes
        some = [v for v in range(V) if self._world.happens(0.5)]
        return {v: q for v in some if (q := self._world.below(U)) != homes[v]}

    def _change(self, coming: dict[int, int]) -> Activity[None]:
        cluster = self._cluster
        self._announce(coming)
        number = cluster.announced
        yield lambda: self._all(lambda each: each.acknowledged >= number)
        left = cluster.announcement.left(cluster.layout.homes)
        if self._world.happens(0.15):
            return self._announce({})
        if not (yield from self._wait_for_older(left, is_mend=not coming)):
            return self._announce({})
        sealed = left or frozenset(cluster.layout.homes.values())
        yield from self._fence(sealed)
        ends = {q: log.high_watermark for q, log in cluster.logs.items()}
        cluster.layout = cluster.layout.moved(coming, ends)
        cluster.fenced = frozenset()
        self._announce({})
        self._world.tell(f"layout {cluster.layout.epoch}: {cluster.layout.homes}, cut at {ends}")
        return None

    def _announce(self, coming: dict[int, int]) -> None:
        self._cluster.announce(coming)
        self._world.tell(f"announces {coming}")

    def _all(self, has: Callable[[Worker], bool]) -> bool:
        """Whether all workers that have a lease have done something."""
        return all(has(each) or not each.has_lease for each in self._workers)

    def _wait_for_older(self, left: frozenset[int], *, is_mend: bool) -> Activity[bool]:
        """Returns False: somebody withdrew the change."""
        older = OlderTransactions({q: self._cluster.logs[q].end for q in left})
        while True:
            at_leaders = [
                OpenAt(q, producer_id, each.start_offset)
                for q in self._cluster.logs
                if is_mend or q in left
                for producer_id, each in self._cluster.logs[q].producers.items()
                if each.start_offset != NOT_OPEN
            ]
            yield None
            waited = older.left(at_leaders, self._cluster.known())
            if not waited:
                return True
            if is_mend:
                self._world.break_promise(f"a fence that moves nothing waits for {waited}")
            if self._world.happens(0.01) and not self._world.is_healing:
                return False
            yield None

    def _fence(self, sealed: frozenset[int]) -> Activity[None]:
        self._cluster.fenced = sealed
        for worker in self._workers:
            worker.has_acknowledged_fence = False
        logs = [self._cluster.logs[q] for q in sorted(sealed)]
        yield (
            lambda: (
                self._all(lambda each: each.has_acknowledged_fence)
                and all(log.high_watermark == log.end for log in logs)
            )
        )
