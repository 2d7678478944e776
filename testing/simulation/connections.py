"""What a simulated proxy's own connections run over, and the brokers at their other end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.headers import build_response_header, parse_request_header
from kordon.codecs.look import Buffer
from kordon.codecs.messages import request, response
from kordon.codecs.produce import WriteOutcome, build_outcomes, look_produce
from kordon.codecs.records import look_batch
from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leaders import NO_NODE
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.ordering.identity import WRITER_BITS
from kordon.testing.simulation.kafka import NODES, Batch, Partition, read_records
from kordon.testing.simulation.world import Pipe

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster
    from kordon.testing.simulation.proxies import Proxy

_HOST: Final = "simulated"
"""The port of a broker there is its node id."""
_SIZE_BYTES: Final = 4


def links() -> BrokerConnections:
    """Returns the product's own connections, of a process that knows where the brokers are."""
    upstream = Upstream(bootstrap=(HostPort(_HOST, NODES[0]),))
    found = BrokerConnections(Topology(upstream, lambda _: None, lambda _: None))
    found.topology.learn({node_id: (_HOST, node_id) for node_id in NODES})
    return found


class Wires:
    """The wires of one proxy, each of which keeps order both ways; it takes a round trip to lay one.

    Args:
        proxy: The proxy that dials.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._laid: list[_Wire] = []
        self._landings = _Landings(proxy.cluster)

    async def dial(self, protocol_factory: Callable[[], Any], _: str, port: int) -> tuple[asyncio.Transport, Any]:
        """Connects to a broker."""
        await self._proxy.asked(lambda: None)
        protocol = protocol_factory()
        wire = _Wire(self._proxy, port, protocol, self._landings)
        self._laid.append(wire)
        return wire, protocol

    def tear(self) -> None:
        """Breaks all of them: no answer comes any more, though what was sent may land."""
        laid, self._laid = self._laid, []
        for wire in laid:
            wire.tear()


class _Landings:
    """Sees that what a proxy writes to a stream is in its log in the order in which it was sent (NO-OVERTAKING).

    Args:
        cluster: The cluster that fails if it is not.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.numbers = count()
        """Of the requests that are sent."""
        self._cluster = cluster
        self._last: dict[tuple[int, int], int] = {}
        """By partition and by what identities say of the stream, the request that was written last."""

    def written(self, q: int, producer_id: int, number: int) -> None:
        """A broker has written a batch of a request, whose sender still waits for the answer."""
        place = q, producer_id >> WRITER_BITS
        if number < self._last.get(place, -1):
            self._cluster.fail(f"partition {q}: a write is overtaken by one that was sent later (NO-OVERTAKING)")
        self._last[place] = number


class _Asked(NamedTuple):
    """A request, as a broker gets it."""

    cluster: Cluster
    node_id: int
    """The broker."""
    version: int
    body: memoryview
    written: Callable[[int, int], None]
    """Is told of each batch that is new in a log: partition and producer id."""


class _Wire(asyncio.Transport):
    """Brings a request to a broker with each call."""

    def __init__(self, proxy: Proxy, node_id: int, protocol: asyncio.BufferedProtocol, landings: _Landings) -> None:
        super().__init__({"socket": _Socket()})
        self._proxy = proxy
        self._cluster = proxy.cluster
        self._node_id = node_id
        self._protocol = protocol
        self._landings = landings
        self._there, self._back = Pipe(proxy.world), Pipe(proxy.world)
        self._is_over = False

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Sends a frame."""
        frame = b"".join(list_of_data)[_SIZE_BYTES:]
        header, end = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        head, body = build_response_header(key, version, header.correlation_id), memoryview(frame)[end:]
        number = next(self._landings.numbers)

        def written(q: int, producer_id: int) -> None:
            if not self._is_over:  # else its sender has given it up, and may have sent others since then
                self._landings.written(q, producer_id, number)

        def there() -> None:
            answer = head + _ANSWERS[key](_Asked(self._cluster, self._node_id, version, body, written))
            self._back.send(self._delay(), lambda: self._proxy.arrive(lambda: self._receive(answer)))

        if key != apis.PRODUCE:
            self._there.send(self._delay(), there)
        elif not self._cluster.nemesis.keeps(
            self._proxy, lambda: _partitions(version, body), lambda: self._there.send(0.0, there)
        ):
            self._there.send(self._delay(stray=True), there)

    def abort(self) -> None:
        """Ends it."""
        self._is_over = True

    def tear(self) -> None:
        """Breaks it."""
        if not self._is_over:
            self._is_over = True
            self._protocol.connection_lost(ConnectionResetError())

    def _receive(self, answer: bytes) -> None:
        left = memoryview(len(answer).to_bytes(_SIZE_BYTES) + answer)
        while left and not self._is_over:
            room = memoryview(self._protocol.get_buffer(-1))
            count = min(len(room), len(left))
            room[:count], left = left[:count], left[count:]
            self._protocol.buffer_updated(count)

    def _delay(self, *, stray: bool = False) -> float:
        return self._cluster.delay(self._proxy, 0.02, stray=stray)


class _Socket:
    """Takes the options that the product sets."""

    def setsockopt(self, *_: int) -> None:
        """Ignores them."""


def _partitions(version: int, body: memoryview) -> list[int]:
    return [row.partition for topic in look_produce(version, body).topic_data for row in topic.partition_data]


def _api_versions(asked: _Asked) -> bytes:
    rows = [(key, request(key).versions) for key in _ANSWERS]
    fields = [{"api_key": key, "min_version": each[0], "max_version": each[-1]} for key, each in rows]
    return _built(apis.API_VERSIONS, asked.version, {"error_code": 0, "api_keys": fields})


def _produce(asked: _Asked) -> bytes:
    answers: list[tuple[str, None, list[WriteOutcome]]] = []
    for topic in look_produce(asked.version, asked.body).topic_data:
        outcomes: list[WriteOutcome] = []
        for q, data in topic.partition_data:
            assert data is not None
            log, code, base_offset = asked.cluster.partition(q), Code.NOT_LEADER_OR_FOLLOWER, -1
            if _leads(asked.node_id, log):
                before, batch = log.end, _batch(data)
                code, base_offset = log.append(batch)
                if log.end > before:
                    asked.written(q, batch.producer_id)
            outcomes.append(WriteOutcome(q, code, base_offset, log_start_offset=log.start))
        answers.append((topic.name, None, outcomes))
    return build_outcomes(asked.version, answers)


def _batch(data: memoryview) -> Batch:
    header = look_batch(data, 0)
    return Batch(header.producer_id, header.producer_epoch, header.base_sequence, read_records(data))


def _metadata(asked: _Asked) -> bytes:
    cluster = asked.cluster
    rows = [
        {
            "partition_index": q,
            "leader_id": log.node_id if log.has_leader else NO_NODE,
            "leader_epoch": log.leader_epoch,
            "replica_nodes": NODES,
            "isr_nodes": NODES,
            "offline_replicas": (),
        }
        for q, log in ((q, cluster.partition(q)) for q in range(cluster.physical))
    ]
    nodes = [{"node_id": node_id, "host": _HOST, "port": node_id} for node_id in NODES]
    topics = [{"name": cluster.topic, "error_code": 0, "partitions": rows}]
    return _built(apis.METADATA, asked.version, {"brokers": nodes, "controller_id": -1, "topics": topics})


def _init_producer_id(asked: _Asked) -> bytes:
    fields = {"error_code": 0, "producer_id": asked.cluster.new_producer_id(), "producer_epoch": 0}
    return _built(apis.INIT_PRODUCER_ID, asked.version, fields)


def _describe_producers(asked: _Asked) -> bytes:
    topics = [
        {
            "name": topic.name,
            "partitions": [_producers(asked.cluster.partition(q), q, asked.node_id) for q in topic.partition_indexes],
        }
        for topic in request(apis.DESCRIBE_PRODUCERS).parse(asked.version, asked.body).topics
    ]
    return _built(apis.DESCRIBE_PRODUCERS, asked.version, {"topics": topics})


def _producers(log: Partition, q: int, node_id: int) -> dict[str, Any]:
    if not _leads(node_id, log):
        return {"partition_index": q, "error_code": Code.NOT_LEADER_OR_FOLLOWER, "active_producers": []}
    rows = [
        {"producer_id": producer_id, "producer_epoch": epoch, "last_sequence": last, "last_timestamp": -1}
        for producer_id, (epoch, last) in log.producers().items()
    ]
    return {"partition_index": q, "error_code": 0, "active_producers": rows}


def _leads(node_id: int, log: Partition) -> bool:
    return log.has_leader and log.node_id == node_id


def _built(key: int, version: int, fields: dict[str, Any]) -> bytes:
    return bytes(response(key).build(version, fields))


_ANSWERS: Final[dict[int, Callable[[_Asked], bytes]]] = {
    apis.API_VERSIONS: _api_versions,
    apis.PRODUCE: _produce,
    apis.METADATA: _metadata,
    apis.INIT_PRODUCER_ID: _init_producer_id,
    apis.DESCRIBE_PRODUCERS: _describe_producers,
}
"""By api key, what a broker answers."""
