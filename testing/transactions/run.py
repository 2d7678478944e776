"""A whole run: trouble for a while, then rest, then the promises. `python -m kordon.testing.transactions 0-999`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.transactions.changes import Changes
from kordon.testing.transactions.clients import Client
from kordon.testing.transactions.cluster import TRANSACTIONAL_IDS, Cluster
from kordon.testing.transactions.coordinator import State
from kordon.testing.transactions.dialect_clients import DialectClient
from kordon.testing.transactions.nemesis import Nemesis
from kordon.testing.transactions.promises import broken
from kordon.testing.transactions.readers import Reader
from kordon.testing.transactions.rules import without
from kordon.testing.transactions.workers import Worker
from kordon.testing.transactions.world import World

TROUBLE_STEPS: Final = 4000
REST_STEPS: Final = 10_000
"""By which everything is decided and read; what is not then waits for ever."""
_WORKERS: Final = 3


@dataclass
class Run:
    """What came of a seed."""

    seed: int
    world: World
    cluster: Cluster
    readers: list[Reader]

    @property
    def wrong(self) -> list[str]:
        """The promises that were broken."""
        return self.world.wrong


def run(seed: int, rule: str = "", *, trouble_steps: int = TROUBLE_STEPS) -> Run:
    """Lets a cluster live.

    Args:
        seed: Decides everything.
        rule: One of `rules.PLACES` that is taken out; empty: none.
    """
    with without(rule):
        return _Life(seed).live(trouble_steps)


class _Life:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._world = World(seed)
        self._share_of_v1 = (0.0, 0.5, 1.0, 1.0)[self._world.below(4)]
        self._share_of_dialect = (0.0, 0.0, 0.5, 1.0)[self._world.below(4)]
        self._cluster = Cluster(self._world)
        self._workers = [Worker(self._cluster, f"worker {n}") for n in range(_WORKERS)]
        self._changes = Changes(self._cluster, self._workers)
        self._clients: list[Client] = []
        self._readers: list[Reader] = []
        self._nemesis = Nemesis(self._cluster, self._workers, self._new_client, self._new_reader)

    def live(self, trouble_steps: int) -> Run:
        for each in TRANSACTIONAL_IDS:
            self._new_client(each)
        self._world.spawn(self._changes.live())
        for _ in range(trouble_steps):
            self._nemesis.act()
            self._world.step()
        self._world.is_healing = True
        self._rest()
        self._world.wrong.extend(broken(self._cluster, self._readers))
        return Run(self._seed, self._world, self._cluster, self._readers)

    def _rest(self) -> None:
        self._until(self._is_quiet, "a transaction or a change")
        for stream in self._cluster.streams:
            self._new_reader(stream, 0)
        self._until(lambda: all(each.is_over for each in self._readers), "a reader")

    def _until(self, is_done: Callable[[], bool], who: str) -> None:
        for _ in range(REST_STEPS):
            if is_done():
                return
            self._nemesis.mend()
            self._world.step()
        self._world.break_promise(f"{who} waits for ever")

    def _is_quiet(self) -> bool:
        are_over = self._changes.is_over and all(each.is_over for each in self._clients)
        are_over = are_over and all(each.layout is self._cluster.layout for each in self._workers)
        return are_over and all(each.state is State.EMPTY for each in self._cluster.coordinators.values())

    def _new_client(self, transactional_id: str) -> None:
        protocol = Protocol.V1 if self._world.happens(self._share_of_v1) else Protocol.V2
        goes_round = protocol is Protocol.V1 and self._world.happens(0.3)
        kind = DialectClient if not goes_round and self._world.happens(self._share_of_dialect) else Client
        client = kind(
            self._cluster, self._workers, transactional_id, protocol, len(self._clients), goes_round=goes_round
        )
        self._clients.append(client)
        self._world.spawn(client.live())

    def _new_reader(self, stream: Stream, stay: int) -> None:
        worker = self._workers[self._world.below(_WORKERS)]
        stays = worker.layout.chain(stream).stays
        if not stays:
            return  # it does not know the partition yet
        stay = min(stay, len(stays) - 1)
        where = stays[stay]
        kept_end, log = where.kept_end, self._cluster.logs[where.partition]
        end = log.high_watermark if kept_end is None else kept_end
        is_from_start = self._world.is_healing or self._world.happens(0.3)
        offset = where.start if is_from_start else where.start + self._world.below(max(1, end - where.start))
        reader = Reader(self._cluster, worker, stream, stay, offset)
        self._readers.append(reader)
        self._world.spawn(reader.live())
