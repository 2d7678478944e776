"""All that goes wrong, and all that goes on by itself: replication, leases, elections, retention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kordon.testing.transactions.clients import forge
from kordon.testing.transactions.cluster import Cluster
from kordon.testing.transactions.codes import Code
from kordon.testing.transactions.coordinator import State
from kordon.testing.transactions.logs import Log
from kordon.testing.transactions.workers import Worker
from kordon.testing.transactions.world import Slot

_MOST_READERS: Final = 8
_MOST_INSTANCES: Final = 14


class Nemesis:
    """Draws at each step what happens beside the activities."""

    def __init__(
        self,
        cluster: Cluster,
        workers: Sequence[Worker],
        new_client: Callable[[str], None],
        new_reader: Callable[[int, int], None],
    ) -> None:
        self._cluster, self._world, self._workers = cluster, cluster.world, workers
        self._new_client, self._new_reader = new_client, new_reader
        self._readers, self._instances = _MOST_READERS, _MOST_INSTANCES
        self._acts: tuple[tuple[float, Callable[[], None]], ...] = (
            (0.12, self._replicate),
            (0.05, self._renew),
            (0.08, self._follow),
            (0.01, self._refresh),
            (0.012, self._wake),
            (0.003, self._read),
            *((chance * self._drawn_share(), what) for chance, what in self._troubles()),
        )

    def _troubles(self) -> tuple[tuple[float, Callable[[], None]], ...]:
        return (
            (0.003, self._stop),
            (0.002, self._slow_down),
            (0.004, self._elect),
            (0.001, self._elect_uncleanly),
            (0.002, self._retain),
            (0.0007, self._renew_replicas),
            (0.003, self._repeat_marker),
            (0.003, self._replace_client),
            (0.004, self._forge),
        )

    def _drawn_share(self) -> int:
        """Draws how often one kind of trouble comes in this run: seeds differ more if each lacks some kinds."""
        return (0, 1, 3)[self._world.below(3)]

    def act(self) -> None:
        """Lets one thing happen, or none."""
        drawn = self._world.random.random()
        for chance, what in self._acts:
            if drawn < chance:
                return what()
            drawn -= chance
        return None

    def mend(self) -> None:
        """Lets all go well."""
        for worker in self._workers:
            worker.is_stopped = False
        for log in self._cluster.logs.values():
            log.slow_until = -1
        drawn = self._world.random.random()
        if drawn < 0.5:
            self._replicate()
        elif drawn < 0.7:
            self._renew()
        elif drawn < 0.9:
            self._follow()
        else:
            self._refresh()

    def _worker(self) -> Worker:
        return self._workers[self._world.below(len(self._workers))]

    def _log(self) -> Log:
        return self._cluster.logs[self._world.below(len(self._cluster.logs))]

    def _replicate(self) -> None:
        for log in self._cluster.logs.values():
            if self._world.now > log.slow_until and self._world.happens(0.6):
                some = 1 + self._world.below(log.end - log.high_watermark + 1)
                log.high_watermark = min(log.end, log.high_watermark + some)

    def _renew(self) -> None:
        for worker in self._workers:
            if not worker.is_stopped and self._world.happens(0.7):
                worker.renew()

    def _follow(self) -> None:
        worker = self._worker()
        if not worker.is_stopped and worker.has_lease:
            worker.follow()

    def _refresh(self) -> None:
        self._worker().refresh(self._log().partition)

    def _stop(self) -> None:
        self._worker().is_stopped = True

    def _wake(self) -> None:
        for worker in self._workers:
            if worker.is_stopped and self._world.happens(0.4):
                worker.is_stopped = False

    def _slow_down(self) -> None:
        self._log().slow_until = self._world.now + self._world.below(400)

    def _elect(self) -> None:
        slow = [log for log in self._cluster.logs.values() if log.end > log.high_watermark]
        log = slow[0] if slow and self._world.happens(0.5) else self._log()
        log.slow_until = -1
        kept = log.high_watermark + self._world.below(log.end - log.high_watermark + 1)
        self._world.tell(f"leader {log.leader_epoch + 1} of {log.partition} has {kept} of {log.end}")
        log.elect(kept, self._world.now)

    def _elect_uncleanly(self) -> None:
        """What lies below a cut is not taken: that has rules of its own (BEYOND-LOSS)."""
        log = self._log()
        least = max(self._cluster.cuts[log.partition], log.log_start, log.high_watermark - 12)
        if least >= log.high_watermark:
            return
        kept = least + self._world.below(log.high_watermark - least)
        self._world.tell(f"leader {log.leader_epoch + 1} of {log.partition} has lost {kept} to {log.high_watermark}")
        log.elect(kept, self._world.now)

    def _retain(self) -> None:
        """Takes the front of a log, of v1 only what lies before all open witnesses."""
        log = self._log()
        log.log_start += self._world.below(max(1, log.start_of_v1() - log.log_start + 1))

    def _renew_replicas(self) -> None:
        log = self._log()
        self._world.tell(f"leader {log.leader_epoch + 1} of {log.partition} knows it from {log.log_start} on")
        log.renew_replicas(self._world.now)

    def _repeat_marker(self) -> None:
        coordinators = list(self._cluster.coordinators.values())
        coordinators[self._world.below(len(coordinators))].repeat_marker()

    def _replace_client(self) -> None:
        if self._instances:
            self._instances -= 1
            ids = list(self._cluster.coordinators)
            self._new_client(ids[self._world.below(len(ids))])

    def _forge(self) -> None:
        for each in self._cluster.coordinators.values():
            if each.state is State.ONGOING and each.latest is not None:
                worker = self._worker()
                self._world.spawn(forge(self._cluster, worker, each.latest, Slot[Code]()), worker)
                return

    def _read(self) -> None:
        if self._readers:
            self._readers -= 1
            streams = self._cluster.streams
            stream = streams[self._world.below(len(streams))]
            self._new_reader(stream, self._world.below(len(self._cluster.layout.chain(stream).stays)))
