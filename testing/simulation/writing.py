"""How a proxy of the simulation writes: by the product's dispatcher, or past it while the topic is ordinary."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kordon.codecs.error_codes import Code
from kordon.codecs.produce import PartitionData, ProduceRequest, TopicData
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers import produce
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.layout import NO_COUNT
from kordon.proxy.ordering.streams import is_physical, shown_partition
from kordon.proxy.topics.views import PHYSICAL
from kordon.proxy.writes.write_dispatcher import WriteDispatcher
from kordon.testing.simulation.clients import Produce
from kordon.testing.simulation.connections import Wires, links
from kordon.testing.simulation.kafka import Batch, batch_bytes
from kordon.testing.simulation.world import Pipe

if TYPE_CHECKING:
    from kordon.testing.simulation.proxies import Proxy

_VERSION: Final = 9
"""Of Produce, as clients speak it."""
_TIMEOUT_MS: Final = 10_000


class Writing:
    """All that one proxy writes.

    Args:
        proxy: The proxy that writes.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._cluster = proxy.cluster
        self._wires = Wires(proxy)
        proxy.loop.dial = self._wires.dial
        connections = links()
        self.dispatcher = WriteDispatcher(
            connections, Leaders(connections), lambda: proxy.member.may_serve(proxy.world.now)
        )
        self._virtual = produce.Produce(proxy.topics, self.dispatcher)
        self._physical = produce.Produce(proxy.topics, self.dispatcher, PHYSICAL)
        self.passed = 0
        """Writes to a topic that is not managed yet, sent and unanswered."""
        self._to_brokers, self._from_brokers = Pipe(proxy.world), Pipe(proxy.world)

    def produce(self, request: Produce, answer: Callable[[int], None]) -> None:
        """Takes a client's batch."""
        if self._proxy.topic is None:
            self._pass(request, answer)
        else:
            self._proxy.loop.start(self._write(request, answer))

    def lose_lanes(self) -> None:
        """Connections to brokers break; clients' own requests have others."""
        self._proxy.loop.call_soon(self._wires.tear)

    async def _write(self, request: Produce, answer: Callable[[int], None]) -> None:
        service = self._physical if is_physical(request.v) else self._virtual
        data = PartitionData(shown_partition(request.v), memoryview(bytearray(batch_bytes(_batch(request)))))
        count = NO_COUNT if request.count is None else request.count
        row = TopicData(self._cluster.topic, None, [data], count, request.layout_epoch)
        asked = ProduceRequest(None, -1, _TIMEOUT_MS, [row])
        ((_, _, (outcome,)),) = await service.write(_VERSION, asked, Client(request.client_id))
        self._cluster.answer(self._proxy, answer, outcome.error_code)

    def _pass(self, request: Produce, answer: Callable[[int], None]) -> None:
        """Lets a write to an ordinary topic go by as it is."""
        q = shown_partition(request.v)
        if q >= self._cluster.n or not self._proxy.knows_layouts:
            self._cluster.answer(self._proxy, answer, Code.UNKNOWN_TOPIC_OR_PARTITION)
            return
        self.passed += 1

        def there() -> None:
            code, _ = self._cluster.partition(q).append(_batch(request))
            self._from_brokers.send(self._delay(), lambda: self._proxy.arrive(lambda: back(code)))

        def back(code: Code) -> None:
            self.passed -= 1
            self._cluster.answer(self._proxy, answer, code)
            self._proxy.look_drained()

        self._to_brokers.send(self._delay(), there)

    def _delay(self) -> float:
        return self._cluster.delay(self._proxy, 0.02)


def _batch(request: Produce) -> Batch:
    return Batch(request.client_id, request.epoch, request.base_sequence, request.records)
