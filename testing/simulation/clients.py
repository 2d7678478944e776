"""Clients of a simulated cluster: what they send, and what they make of the answers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.write_sequencer import NO_PRODUCER
from kordon.testing.simulation.kafka import REMEMBERED_SECONDS, Record
from kordon.testing.simulation.world import Pipe

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster
    from kordon.testing.simulation.proxies import Proxy

KEYS: Final = 16
SOMEWHERE: Final = -1
"""In place of a partition: it is not known in which one a record was acknowledged."""
METADATA_SECONDS: Final = 5.0
"""Between two looks at how many partitions there are (metadata.max.age.ms)."""
_RESTLESS_SECONDS: Final = 0.1
"""The same for a client that looks again and again, as clients do on errors, here and there."""
DELIVERY_SECONDS: Final = 20.0
"""delivery.timeout.ms, where it matters: while a topic is taken over."""
_POLL_SECONDS: Final = 0.4
_MOST_IN_FLIGHT: Final = 5
"""Batches of one partition (max.in.flight.requests.per.connection)."""


@dataclass(eq=False)
class Produce:
    """A batch as a client sends it, numbered as the client counts."""

    v: Stream
    """The virtual partition, or the physical one as such."""
    client_id: int
    """-1 without idempotence."""
    base_sequence: int
    records: tuple[Record, ...]
    made: float
    acknowledged: bool = False
    epoch: int = 0
    count: int | None = None
    """undeleted_partition_count, of dialect clients, which write to physical partitions as such."""
    layout_epoch: int = -1


@dataclass(eq=False)
class _Connection:
    """To one proxy; when it is lost, so are all answers that it still owes."""

    proxy: Proxy
    pipe: Pipe
    is_lost: bool = False


class Producer:
    """What all producers have: a connection to one proxy, and a view of the topic.

    Args:
        cluster: Which they write to.
        client_id: No other producer has it.
    """

    def __init__(self, cluster: Cluster, client_id: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.client_id = client_id
        known = [proxy.partition_count for proxy in cluster.proxies if proxy.knows_layouts]
        self.sees = next((count for count in known if count is not None), cluster.partition_count)
        """Partitions, as of its metadata; nobody begins without."""
        self._told = self.sees
        self.acknowledged: dict[int, list[Record]] = defaultdict(list)
        """By the partition that it saw."""
        self._patience = self.world.random.choice([(4.0, 10.0), (20.0, 30.0), (20.0, 30.0)])
        self._connection: _Connection | None = None
        self._sequences: dict[int, int] = defaultdict(int)
        self._numbers: dict[int, int] = defaultdict(int)
        self.world.each(cluster.pace, self.turn)
        is_restless = cluster.is_taken_over and self.world.chance(0.5)
        self.world.each(_RESTLESS_SECONDS if is_restless else METADATA_SECONDS, self.refresh)

    @property
    def through(self) -> Proxy | None:
        """The proxy that it is connected to."""
        found = self._connection
        return found.proxy if found is not None and found.proxy.alive and not found.is_lost else None

    @property
    def is_done(self) -> bool:
        """Whether it has come through with all that it has to."""
        raise NotImplementedError

    def turn(self) -> bool:
        """Sends something new; returns whether it will again."""
        raise NotImplementedError

    def refresh(self) -> bool:
        """Sees how many partitions there are (Metadata)."""
        proxy = self.cluster.some_proxy()
        is_answered = proxy.is_running and self.world.now >= proxy.cut_until  # by a broker, through it
        if is_answered and proxy.knows_layouts:  # or else it lets no request pass yet
            self._told = proxy.partition_count or self._told  # it waits, and asks again, while it gets no answer
        self._come_over()
        return not self.cluster.over

    def _come_over(self) -> bool:
        """Goes by the partitions that it was told of last; returns whether it may send.

        Where a takeover delivers at once, the order of acknowledgements is all that is promised (TAKEOVER-SHARES): it
        waits for all that it has sent.
        """
        if self._told != self.sees and (self.is_quiet or not self.cluster.delivers):
            self.sees = self._told
        return self._told == self.sees

    @property
    def is_quiet(self) -> bool:
        """Whether it waits for no acknowledgement."""
        raise NotImplementedError

    def _make(self, key: int, producer_id: int) -> Produce:
        """Makes a batch of a few records of one key."""
        v, number = key % self.sees, self._numbers[key]
        count = self.world.between(1, 3)
        records = tuple(Record(self.client_id, key, number + i) for i in range(count))
        batch = Produce(v, producer_id, self._sequences[v], records, self.world.now)
        self._numbers[key] += count
        self._sequences[v] += count
        return batch

    def _connect(self) -> _Connection:
        found = self._connection
        if found is None or found.is_lost or not found.proxy.alive:
            found = self._connection = _Connection(self.cluster.some_proxy(), Pipe(self.world))
        return found

    def _request(self, batch: Produce, attempt: object = None) -> None:
        """Sends a batch; `heard` is called once, with a timeout if nothing came of it."""
        connection, over = self._connect(), False
        proxy = connection.proxy

        def hear(code: int) -> None:
            nonlocal over
            if not over:
                over = True
                self.heard(batch, Code.REQUEST_TIMED_OUT if connection.is_lost else code, attempt)

        def late() -> None:
            if not over:
                connection.is_lost = True
                hear(Code.REQUEST_TIMED_OUT)

        connection.pipe.send(self.cluster.delay(proxy, 0.01), lambda: proxy.arrive(lambda: proxy.produce(batch, hear)))
        self.world.after(self.world.random.uniform(*self._patience), late)

    def heard(self, batch: Produce, code: int, attempt: object) -> None:
        """Takes in what came of one sending."""
        raise NotImplementedError


class IdempotentProducer(Producer):
    """Up to five batches in flight per partition; all that are not acknowledged are sent again, in order.

    Where a topic is taken over it fails when a batch is not delivered in time, and another one begins in its place.
    So it does anywhere when nothing of it was acknowledged for so long that it may have been forgotten, and it was.
    """

    def __init__(self, cluster: Cluster, client_id: int) -> None:
        self._window: dict[int, list[Produce]] = defaultdict(list)
        """By partition, from the first batch on that is not acknowledged."""
        self._attempt: dict[int, int] = defaultdict(int)
        self._failed = False
        self._began = cluster.world.now
        self._wrote: dict[int, float] = {}
        """By partition, when something was last acknowledged."""
        self._may_be_forgotten: dict[int, bool] = {}
        """By partition, whether that was long ago when its identity was first not known there."""
        super().__init__(cluster, client_id)

    @property
    def is_done(self) -> bool:
        """Whether all is acknowledged."""
        return self._failed or self.is_quiet

    @property
    def is_quiet(self) -> bool:
        """Whether all is acknowledged."""
        return not any(self._window.values())

    def turn(self) -> bool:
        """Sends a batch, unless too many are unsure."""
        may_send, key = self._come_over(), self.world.between(0, KEYS - 1)
        window = self._window[key % self.sees]
        if self.cluster.is_taken_over and self._is_overdue():
            self._fail()
        if self._failed:
            return False
        if may_send and len(window) < self._most_in_flight(key % self.sees) and self.cluster.is_troubled:
            batch = self._make(key, self.client_id)
            window.append(batch)
            self._request(batch, self._attempt[batch.v])
        return not self.cluster.over

    def heard(self, batch: Produce, code: int, attempt: object) -> None:
        """Goes on, or sends all that is unsure once more."""
        if attempt != self._attempt[batch.v] or self._failed:
            return
        if code == Code.NONE:
            if not batch.acknowledged:
                batch.acknowledged = True
                self.acknowledged[batch.v] += batch.records
            self._wrote[batch.v] = self.world.now
            self._may_be_forgotten.pop(batch.v, None)
            window = self._window[batch.v]
            while window and window[0].acknowledged:
                window.pop(0)
        elif code == Code.UNKNOWN_PRODUCER_ID and self._is_rightly_forgotten(batch.v):
            self._fail()
        elif not batch.acknowledged:
            self._again(batch.v)

    def _fail(self) -> None:
        """Gives up; another one begins."""
        self._failed = True
        self.cluster.replace(self)

    def _is_rightly_forgotten(self, v: int) -> bool:
        """Says so of whom brokers have forgotten by then; nobody else is ever to be (SEQ-IMAGE)."""
        silent = self.world.now - self._wrote.get(v, self._began)
        return self._may_be_forgotten.setdefault(v, silent > REMEMBERED_SECONDS)

    def _most_in_flight(self, v: int) -> int:
        """Brokers let an identity begin at any sequence, so on an ordinary topic its first batch goes alone here.

        Real clients do not wait, and can lose it, without Kordon as well; behind Kordon OPENER-ALONE sees to it.
        """
        return 1 if self.cluster.is_taken_over and not self.acknowledged[v] else _MOST_IN_FLIGHT

    def _is_overdue(self) -> bool:
        oldest = min((window[0].made for window in self._window.values() if window), default=self.world.now)
        return self.world.now - oldest > DELIVERY_SECONDS

    def _again(self, v: int) -> None:
        """Sends all that is not acknowledged, in order, on whichever connection there is."""
        self._attempt[v] += 1
        attempt = self._attempt[v]
        if self.world.chance(0.3):
            self._connection = None

        def resend() -> None:
            if attempt == self._attempt[v] and not self._failed:
                for each in self._window[v]:
                    if not each.acknowledged:
                        self._request(each, attempt)

        self.world.after(self.world.random.uniform(0.05, 0.3), resend)


class PlainProducer(Producer):
    """Without idempotence and without retries: what fails is lost, what is acknowledged stands once and in order."""

    def __init__(self, cluster: Cluster, client_id: int) -> None:
        self._in_flight: dict[int, int] = defaultdict(int)
        self._fine: dict[int, bool] = {}
        """By partition, whether its last batch was acknowledged."""
        super().__init__(cluster, client_id)

    @property
    def is_done(self) -> bool:
        """Whether it gets through to every partition."""
        return all(self._fine.get(v) for v in range(self.sees))

    @property
    def is_quiet(self) -> bool:
        """Whether it has heard of all that it has sent."""
        return not any(self._in_flight.values())

    def turn(self) -> bool:
        """Sends a batch, and when nothing goes wrong any more only where the last one failed."""
        may_send, key = self._come_over(), self.world.between(0, KEYS - 1)
        v = key % self.sees
        most = _MOST_IN_FLIGHT if self.cluster.is_troubled else not self._fine.get(v)
        if may_send and self._in_flight[v] < most:
            self._in_flight[v] += 1
            self._request(self._make(key, NO_PRODUCER))
        return not self.cluster.over

    def heard(self, batch: Produce, code: int, attempt: object) -> None:
        """Takes the batch for written, or for lost."""
        del attempt
        self._in_flight[batch.v] -= 1
        self._fine[batch.v] = code == Code.NONE
        if code == Code.NONE:
            self.acknowledged[batch.v] += batch.records
        elif code in _OF_SEQUENCES:
            self.cluster.fail(f"a producer without idempotence is told of {Code(code).name} (LENT-IDENTITY)")


_OF_SEQUENCES: Final = (
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.UNKNOWN_PRODUCER_ID,
    Code.INVALID_PRODUCER_EPOCH,
    Code.DUPLICATE_SEQUENCE_NUMBER,
)


class Consumer:
    """The member of a group that has one partition: it reads from the beginning, through whichever proxy, and commits.

    Args:
        cluster: Which it reads from.
        v: The partition.
    """

    def __init__(self, cluster: Cluster, v: int) -> None:
        self.cluster = cluster
        self.v = v
        self.position = 0
        self.got: list[Record] = []
        self._is_slow = cluster.is_taken_over and cluster.world.chance(0.3)
        cluster.world.each(_POLL_SECONDS, self.turn)

    def turn(self) -> bool:
        """Reads on."""
        if not (self._is_slow and self.cluster.is_troubled and self.cluster.world.chance(0.9)):
            self._poll(self.cluster.some_proxy())
        return not self.cluster.over

    def finish(self) -> None:
        """Reads on to the end, through whoever serves; unless it is sent back."""
        while any(self._poll(proxy) for proxy in self.cluster.proxies) and not self.cluster.failures:
            pass

    def _poll(self, proxy: Proxy) -> bool:
        """Reads on; returns whether there was something."""
        portion = proxy.read(self.v, self.position)
        if portion is None:
            return False
        before = self.position
        if portion.position < before:
            self.cluster.fail(f"the position of {self.v} fell from {before} to {portion.position}")
        self.got += portion.records
        self.cluster.delivered += portion.records
        self.position = max(portion.position, 0)
        self.cluster.committed[self.v] = self.position
        return self.position > before
