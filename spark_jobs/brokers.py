"""The brokers as the auditor asks them: blocking, by the project's own codecs, never through the proxy.

Spark's readers are plain generators, so a plain socket is all that is needed. `Cluster` finds leaders and follows them;
whoever asks for a partition whose leader has changed, or has gone, is told so by `LeaderUnknown` and asks again.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from scramp import ScramClient, ScramException

from kordon.codecs import fetched
from kordon.codecs.errors import WireError
from kordon.codecs.fetched import Fetched, parse_fetched
from kordon.codecs.headers import build_request_header, parse_response_header
from kordon.codecs.messages import request, response

FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
SASL_AUTHENTICATE: Final = 36
EARLIEST: Final = -2
LATEST: Final = -1
"""Timestamps that ListOffsets takes for the ends of a log."""
CLIENT_ID: Final = "kordon-audit"
_SPOKEN: Final = {
    LIST_OFFSETS: range(1, 6),
    METADATA: range(1, 10),
    SASL_AUTHENTICATE: range(2),
    CREATE_TOPICS: range(4, 8),
}
"""Versions that the auditor speaks; brokers from 2.3 on have one of each."""
_SIZE: Final = Struct(">i")
_MOST_BYTES: Final = 1 << 30
_UNKNOWN_TOPIC: Final = 3
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_TOPIC_EXISTS: Final = 36
_CREATE_SECONDS: Final = 20
_NO_LEADER: Final = frozenset({3, 5, 6, 9, 72, 74, 75, 76, 78, 100})
"""Errors by which a broker says that another is to be asked, or the same one later."""


class BrokersUnavailable(OSError):  # noqa: N818 - says how they are
    """The cluster cannot be asked: nobody answers, or does not let the auditor in."""


class NotAllowed(BrokersUnavailable):
    """The auditor's user may not see a topic, or not read it."""

    @classmethod
    def of(cls, *topics: str) -> NotAllowed:
        """Says it as Java's clients do, so that it has the same cure."""
        return cls(f"TopicAuthorizationException: Not authorized to access topics: [{', '.join(topics)}]")


class LeaderUnknown(BrokersUnavailable):
    """A partition has no leader just now, or another than was thought."""


class PartitionKey(NamedTuple):
    """A partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How brokers are reached; names as aiokafka has them."""

    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_check_hostname: bool = True
    sasl_mechanism: str = "PLAIN"
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    sasl_plain_username: str = ""
    sasl_plain_password: str = field(default="", repr=False)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Security:
        """Takes what is told in options of a source, of which all others are passed over."""
        known = {name: options[name] for name in cls.__dataclass_fields__ if options.get(name) not in (None, "")}
        if "ssl_check_hostname" in known:
            known["ssl_check_hostname"] = str(known["ssl_check_hostname"]).lower() == "true"
        return cls(**known)

    def told(self) -> list[str]:
        """Returns the names of what is said."""
        return [name for name in self.__dataclass_fields__ if getattr(self, name) not in (None, "")]

    def context(self) -> ssl.SSLContext | None:
        """Returns how TLS is spoken; None: not at all.

        Raises:
            OSError: A file cannot be read.
        """
        if "SSL" not in self.security_protocol:
            return None
        context = ssl.create_default_context(cafile=self.ssl_cafile)
        context.check_hostname = self.ssl_check_hostname
        if self.ssl_certfile:
            context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile)
        return context


class Broker:
    """One connection to one broker; requests are answered one by one."""

    def __init__(self, host: str, port: int, security: Security, timeout_seconds: float = 30.0) -> None:
        self.address = f"{host}:{port}"
        self._versions: dict[int, range] = {}
        self._number = 0
        try:
            plain = socket.create_connection((host, port), timeout=timeout_seconds)
            context = security.context()
            self._socket = context.wrap_socket(plain, server_hostname=host) if context else plain
            self._greet(security)
        except (OSError, WireError, ScramException) as error:
            self.close()
            raise BrokersUnavailable(f"{self.address}: {error}") from error

    def close(self) -> None:
        """Ends the connection."""
        if hasattr(self, "_socket"):
            self._socket.close()

    def ask(self, api_key: int, fields: Mapping[str, Any], version: int | None = None) -> Any:
        """Sends a request in the newest version that both speak, and waits for its answer.

        Raises:
            BrokersUnavailable: The connection ended, or the answer cannot be read.
        """
        spoken = self._version(api_key) if version is None else version
        body = self.send_body(api_key, spoken, request(api_key).build(spoken, dict(fields)))
        try:
            return response(api_key).parse(spoken, body)
        except WireError as error:
            raise BrokersUnavailable(f"{self.address}: {error}") from error

    def send_body(self, api_key: int, version: int, body: bytes) -> memoryview:
        """Sends a request whose body is built, and returns that of the answer.

        Raises:
            BrokersUnavailable: The connection ended.
        """
        self._number += 1
        header = build_request_header(api_key, version, self._number, CLIENT_ID)
        try:
            self._socket.sendall(_SIZE.pack(len(header) + len(body)) + header + body)
            size = _SIZE.unpack(self._take(_SIZE.size))[0]
            if not 0 < size <= _MOST_BYTES:
                raise BrokersUnavailable(f"{self.address}: an answer of {size} bytes: the server is no Kafka broker")
            answer = self._take(size)
            told, begin = parse_response_header(api_key, version, answer)
        except (OSError, WireError) as error:
            raise BrokersUnavailable(f"{self.address}: {error}") from error
        if told.correlation_id != self._number:
            raise BrokersUnavailable(f"{self.address}: an answer without a request")
        return answer[begin:]

    def _take(self, size: int) -> memoryview:
        taken = memoryview(bytearray(size))
        at = 0
        while at < size:
            got = self._socket.recv_into(taken[at:])
            if not got:
                raise OSError("the connection was closed")
            at += got
        return taken

    def _version(self, api_key: int) -> int:
        common = [version for version in _SPOKEN[api_key] if version in self._versions.get(api_key, ())]
        if not common:
            raise BrokersUnavailable(
                f"{self.address}: the broker and the auditor have no version of api key {api_key} in common"
            )
        return common[-1]

    def _greet(self, security: Security) -> None:
        answer = self.ask(API_VERSIONS, {}, 0)
        self._versions = {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}
        if security.security_protocol.startswith("SASL"):
            self._log_in(security)

    def _log_in(self, security: Security) -> None:
        mechanism = security.sasl_mechanism
        hello = self.ask(SASL_HANDSHAKE, {"mechanism": mechanism}, 1)
        if hello.error_code:
            raise OSError(f"SASL {mechanism} is not enabled; the broker has {', '.join(hello.mechanisms)}")
        name, password = security.sasl_plain_username, security.sasl_plain_password
        if mechanism == "PLAIN":
            self._authenticate(f"\0{name}\0{password}")
            return
        client = ScramClient([mechanism], name, password)
        client.set_server_first(self._authenticate(client.get_client_first()))
        client.set_server_final(self._authenticate(client.get_client_final()))

    def _authenticate(self, token: str) -> str:
        answer = self.ask(SASL_AUTHENTICATE, {"auth_bytes": token.encode()})
        if answer.error_code:
            raise OSError(f"log-in failed: {answer.error_message}")
        return bytes(answer.auth_bytes).decode()


class Cluster:
    """All brokers of a cluster: connections are made when they are needed, leaders asked for when they are not known.

    Args:
        bootstrap: Addresses to ask first, `host:port` with commas between.
    """

    def __init__(self, bootstrap: str, security: Security) -> None:
        self._bootstrap = [_address(each) for each in bootstrap.split(",") if each.strip()]
        self._security = security
        self._addresses: dict[int, tuple[str, int]] = {}
        self._brokers: dict[tuple[str, int], Broker] = {}
        self._leaders: dict[PartitionKey, int] = {}

    def __enter__(self) -> Self:
        """Nothing is opened before it is needed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes all connections."""
        self.close()

    def close(self) -> None:
        """Closes all connections; they are made again when they are needed."""
        for broker in self._brokers.values():
            broker.close()
        self._brokers.clear()

    def partitions(self, topics: Iterable[str]) -> list[PartitionKey]:
        """Returns the partitions of topics, and learns their leaders; topics that do not exist are left out.

        Raises:
            NotAllowed: The auditor's user may not see one of the topics, or could not see it if it existed.
            BrokersUnavailable: No broker answers.
        """
        names = sorted(set(topics))
        if not names:
            return []
        told = self._metadata([{"name": name} for name in names])
        if hidden := [topic.name for topic in told.topics if topic.error_code == _TOPIC_AUTHORIZATION_FAILED]:
            raise NotAllowed.of(*hidden)
        found = [topic for topic in told.topics if topic.error_code != _UNKNOWN_TOPIC]
        places = [PartitionKey(topic.name, each.partition_index) for topic in found for each in topic.partitions]
        return sorted(places)

    def make_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Makes a topic with the cluster's default counts, if it is not there.

        Raises:
            BrokersUnavailable: No broker answers, or the topic must not be made. The message says why.
        """
        controller = self._metadata([]).controller_id
        rows = [{"name": each, "value": value} for each, value in configs.items()]
        topic = {
            "name": name, "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": rows,
        }  # fmt: skip
        fields = {"topics": [topic], "timeout_ms": _CREATE_SECONDS * 1000, "validate_only": False}
        for told in self._ask(controller, CREATE_TOPICS, fields).topics:
            if told.error_code not in (0, _TOPIC_EXISTS):
                raise BrokersUnavailable(told.error_message or f"error {told.error_code}")

    def ends(self, places: Iterable[PartitionKey], timestamp: int) -> dict[PartitionKey, int]:
        """Returns where logs begin (EARLIEST) or end (LATEST: the high watermark).

        Raises:
            LeaderUnknown: A partition has no leader.
            BrokersUnavailable: A broker does not answer.
        """
        by_leader: dict[int, list[PartitionKey]] = {}
        for place in places:
            by_leader.setdefault(self._leader(place), []).append(place)
        found: dict[PartitionKey, int] = {}
        for leader, its in by_leader.items():
            rows = [{"partition_index": place.partition, "timestamp": timestamp} for place in its]
            topics = [
                {"name": name, "partitions": [row for row, place in zip(rows, its, strict=True) if place.topic == name]}
                for name in sorted({place.topic for place in its})
            ]
            answer = self._ask(leader, LIST_OFFSETS, {"replica_id": -1, "isolation_level": 0, "topics": topics})
            for topic in answer.topics:
                for each in topic.partitions:
                    place = PartitionKey(topic.name, each.partition_index)
                    self._judge(place, each.error_code)
                    found[place] = each.offset
        return found

    def fetch(self, place: PartitionKey, offset: int, most_bytes: int, wait_ms: int = 500) -> Fetched:
        """Reads a partition from an offset on: at least one whole batch, if there is one.

        Raises:
            LeaderUnknown: The partition has no leader, or another one by now.
            NotAllowed: The auditor's user may not read the topic.
            BrokersUnavailable: The broker does not answer.
        """
        leader = self._leader(place)
        row = {"partition": place.partition, "fetch_offset": offset, "partition_max_bytes": most_bytes}
        asked = {
            "replica_id": -1, "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": most_bytes, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "rack_id": "", "forgotten_topics_data": [],
            "topics": [{"topic": place.topic, "partitions": [row]}],
        }  # fmt: skip
        body = request(FETCH).build(fetched.VERSION, asked)
        try:
            answer = parse_fetched(self._broker(leader).send_body(FETCH, fetched.VERSION, body))
            told = answer.partitions[place]
        except (BrokersUnavailable, WireError, KeyError) as error:
            self._forget(leader)
            raise BrokersUnavailable(f"{place.topic}-{place.partition}: {error}") from error
        self._judge(place, told.error_code)
        return told

    def _judge(self, place: PartitionKey, error_code: int) -> None:
        if error_code in _NO_LEADER:
            self._leaders.pop(place, None)
            raise LeaderUnknown(f"{place.topic}-{place.partition}: error {error_code} from its leader")
        if error_code == _TOPIC_AUTHORIZATION_FAILED:
            raise NotAllowed.of(place.topic)

    def _leader(self, place: PartitionKey) -> int:
        if place not in self._leaders:
            self.partitions([place.topic])
        if place not in self._leaders:
            raise LeaderUnknown(f"{place.topic}-{place.partition} has no leader")
        return self._leaders[place]

    def _ask(self, node: int, api_key: int, fields: Mapping[str, Any]) -> Any:
        try:
            return self._broker(node).ask(api_key, fields)
        except BrokersUnavailable:
            self._forget(node)
            raise

    def _broker(self, node: int) -> Broker:
        return self._connect(self._addresses[node])

    def _connect(self, address: tuple[str, int]) -> Broker:
        if address not in self._brokers:
            self._brokers[address] = Broker(*address, self._security)
        return self._brokers[address]

    def _forget(self, node: int) -> None:
        """A connection that failed is not used again, nor what its broker was thought to lead."""
        broker = self._brokers.pop(self._addresses[node], None)
        if broker is not None:
            broker.close()
        self._leaders = {place: leader for place, leader in self._leaders.items() if leader != node}

    def _metadata(self, topics: list[dict[str, str]]) -> Any:
        failed: list[str] = []
        for address in dict.fromkeys([*self._brokers, *self._addresses.values(), *self._bootstrap]):
            try:
                told = self._connect(address).ask(METADATA, {"topics": topics, "allow_auto_topic_creation": False})
            except BrokersUnavailable as error:
                failed.append(str(error))
                self._brokers.pop(address, None)
                continue
            self._learn(told)
            return told
        raise BrokersUnavailable("; ".join(dict.fromkeys(failed)) or "no broker is named")

    def _learn(self, told: Any) -> None:
        self._addresses |= {broker.node_id: (broker.host, broker.port) for broker in told.brokers}
        for topic in told.topics:
            for each in topic.partitions:
                place = PartitionKey(topic.name, each.partition_index)
                self._leaders.pop(place, None)
                if each.leader_id in self._addresses:
                    self._leaders[place] = each.leader_id


def _address(text: str) -> tuple[str, int]:
    """Reads `host:port`, an IPv6 address in brackets."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise BrokersUnavailable(f"{text!r} is not an address: write host:port")
    return host.strip("[]"), int(port)
