"""What Kordon can be told: one frozen model per section of the configuration file.

The models say what an option is called, what it means, its unit, its bounds and whether a running proxy takes
a new value. `docs/configuration.md` shows the same table, and a test compares the two. Reading files,
environment variables and flags into a `Config`, and telling a person what is wrong with them, is `config_load`.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, SecretStr

MAX_PORT = 65535
NODE_ID_PLACEHOLDER = "$(node_id)"
RELOADS: dict[str, JsonValue] = {"reload": True}
"""Marks an option whose new value a running proxy takes over; every other one needs a restart."""

WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})  # noqa: S104  (only recognised, never bound because of this)


@dataclass(frozen=True, slots=True)
class HostPort:
    """A network address as Kafka writes it: `broker-1:9092`, `10.0.0.7:9092` or `[fe80::1]:9092`."""

    host: str
    """Name or address, an IPv6 one without its brackets."""
    port: int
    """1 to 65535."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `host:port`.

        Raises:
            ValueError: the text is no address; the message says what to write instead.
        """
        if "://" in text:
            bare = text.split("://", 1)[1]
            raise ValueError(f"write {bare!r} without the scheme; encryption is set in the tls section")
        host, separator, port_text = text.strip().rpartition(":")
        if not separator:
            raise ValueError(f"the port is missing: write host:port, for example {text.strip() or 'localhost'}:9092")
        return cls(cls._parse_host(host, text), cls._parse_port(port_text))

    @staticmethod
    def _parse_host(host: str, text: str) -> str:
        if host.startswith("[") and host.endswith("]"):
            try:
                return ipaddress.IPv6Address(host[1:-1]).compressed
            except ValueError:
                raise ValueError(f"{host[1:-1]!r} is no IPv6 address") from None
        if ":" in host:
            raise ValueError(f"put an IPv6 address in brackets: [::1]:9092, not {text}")
        if not host:
            raise ValueError(f"the host is missing: write 0.0.0.0{text} for all interfaces")
        _check_host(host)
        return host

    @staticmethod
    def _parse_port(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= MAX_PORT:
            raise ValueError(f"the port must be a number from 1 to {MAX_PORT}, not {text!r}")
        return int(text)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _check_host(host: str) -> None:
    """Refuses what no resolver can take (DNS, RFC 1035 §2.3.4: 253 characters in all)."""
    if len(host) > 253 or any(character.isspace() or character in "/,@[]" for character in host):
        raise ValueError(f"{host!r} is no host name")


def _host(value: object) -> object:
    """A host without a port, as it stands in the answers to clients."""
    if not isinstance(value, str):
        return value
    if value in WILDCARD_HOSTS:
        raise ValueError(f"clients cannot connect to {value}; name the host they reach Kordon by")
    bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if bare.count(":") == 1:
        raise ValueError(f"write the host only: {bare.split(':')[0]}; the ports are those Kordon listens on")
    _check_host(bare)
    return bare


def _address(value: object) -> object:
    return HostPort.parse(value) if isinstance(value, str) else value


def _addresses(value: object) -> object:
    """One address, several separated by commas, or a list."""
    if isinstance(value, HostPort):
        return (value,)
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _not_empty(value: tuple[HostPort, ...]) -> tuple[HostPort, ...]:
    """`min_length` would be told a second time, wrongly, when an address is no address."""
    if not value:
        raise ValueError("name at least one broker, as host:port")
    return value


def _by_node_id(value: object) -> object:
    """`1=a:9092,2=b:9092`, the one-line form of a map for environment variables."""
    return _pairs(value, "node_id=value")


def _by_name(value: object) -> object:
    """`logicalCluster=lkc-1,identityPoolId=pool-1`, the same for names."""
    return _pairs(value, "name=value")


def _pairs(value: object, form: str) -> object:
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",") if part.strip()]
    if not all(separator for _, separator, _ in pairs):
        raise ValueError(f"write {form} pairs, separated by commas")
    return {key.strip(): entry.strip() for key, _, entry in pairs}


def _whole(value: object) -> object:
    """A number is never meant by yes or no, which YAML turns into booleans and pydantic into 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("a whole number is needed here, not a boolean")
    return value


Address = Annotated[HostPort, BeforeValidator(_address)]
Host = Annotated[str, BeforeValidator(_host)]
Port = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MAX_PORT)]
NodeId = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=2**31 - 1)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
CountOrNone = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Bytes = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=2**40)]
FrameBytes = Annotated[int, BeforeValidator(_whole), Field(ge=1024, le=2**31 - 1)]
Milliseconds = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=2**31 - 1)]
Folder = Annotated[Path, "folder"]
Extension = Annotated[str, Field(pattern=r"^[A-Za-z]+$")]
ExtensionValue = Annotated[str, Field(pattern=r"^[\x20-\x7e]*$")]
MillisecondsOrZero = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=2**31 - 1)]


class ConfigSection(BaseModel):
    """A section of the file: frozen, and a key it does not know is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class UpstreamTls(ConfigSection):
    """Encryption between Kordon and the brokers. `tls: {}` is TLS with the system's certificate authorities."""

    ca: Path | None = Field(
        default=None,
        description="PEM file of the authorities that signed the brokers' certificates; null: the system's own",
        json_schema_extra=RELOADS,
    )
    certificate: Path | None = Field(
        default=None,
        description="PEM file of the certificate (chain) Kordon shows to brokers, for mTLS",
        json_schema_extra=RELOADS,
    )
    key: Path | None = Field(
        default=None, description="PEM file of the certificate's key, not encrypted", json_schema_extra=RELOADS
    )
    server_name: Host | None = Field(
        default=None,
        description="name to expect in every broker's certificate; null: the host that is connected to",
        json_schema_extra=RELOADS,
    )
    verify: bool = Field(
        default=True,
        description="check the brokers' certificates; false is for tests only",
        json_schema_extra=RELOADS,
    )


class UpstreamSasl(ConfigSection):
    """How Kordon's own connection, which follows the topology, logs in. Clients log in for themselves."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        description="SASL mechanism", json_schema_extra=RELOADS
    )
    username: str | None = Field(
        default=None,
        min_length=1,
        description="user name of PLAIN and SCRAM; of OAUTHBEARER the name by which brokers know Kordon, which only"
        " the checks of rights need",
        json_schema_extra=RELOADS,
    )
    password: SecretStr | None = Field(
        default=None,
        description="password of PLAIN and SCRAM; better given by an environment variable than in the file",
        json_schema_extra=RELOADS,
    )
    token_url: str | None = Field(
        default=None,
        description="address of the token endpoint that Kordon asks by client credentials (OAUTHBEARER)",
        json_schema_extra=RELOADS,
    )
    client_id: str | None = Field(
        default=None, min_length=1, description="id by which the token endpoint knows Kordon", json_schema_extra=RELOADS
    )
    client_secret_file: Path | None = Field(
        default=None,
        description="file with the client's secret, read for each question to the token endpoint",
        json_schema_extra=RELOADS,
    )
    scope: str | None = Field(
        default=None, description="scope to ask the token endpoint for, if it needs one", json_schema_extra=RELOADS
    )
    token_ca: Path | None = Field(
        default=None,
        description="PEM file of the authorities that signed the token endpoint's certificate; null: the system's own",
        json_schema_extra=RELOADS,
    )
    token_file: Path | None = Field(
        default=None,
        description="file with a token, read for each log-in, in place of a token endpoint (OAUTHBEARER)",
        json_schema_extra=RELOADS,
    )
    extensions: Annotated[dict[Extension, ExtensionValue], BeforeValidator(_by_name)] = Field(
        default={},
        description="further words of the OAUTHBEARER log-in, such as logicalCluster (KIP-342)",
        json_schema_extra=RELOADS,
    )

    def __hash__(self) -> int:
        """Returns the same for equal log-ins; a mapping such as `extensions` has no hash of its own."""
        return hash((self.mechanism, self.username, self.token_url, self.client_id, self.token_file))


class Upstream(ConfigSection):
    """The cluster behind Kordon."""

    bootstrap: Annotated[tuple[Address, ...], BeforeValidator(_addresses), AfterValidator(_not_empty)] = Field(
        description="brokers to ask for the cluster first, as host:port; a list, or separated by commas",
        json_schema_extra=RELOADS,
    )
    tls: UpstreamTls | None = Field(default=None, description="TLS towards the brokers; null: plain TCP")
    sasl: UpstreamSasl | None = Field(
        default=None, description="log-in of Kordon's own metadata connection; null: none"
    )
    brokers: Annotated[dict[NodeId, Address], BeforeValidator(_by_node_id)] = Field(
        default={},
        description="addresses by node id that replace what brokers advertise, for example a name that Kordon"
        " cannot resolve",
        json_schema_extra=RELOADS,
    )
    connect_timeout_ms: Milliseconds = Field(
        default=10_000, description="time for a connection to a broker, TLS included", json_schema_extra=RELOADS
    )
    refresh_ms: Milliseconds = Field(
        default=30_000, description="how often the cluster is asked for its brokers", json_schema_extra=RELOADS
    )


class Sni(ConfigSection):
    """One port for all brokers, told apart by the name the client asks for in the TLS handshake."""

    bootstrap: Host = Field(description="name by which clients bootstrap")
    broker: Host = Field(description=f"name of a broker, with {NODE_ID_PLACEHOLDER} in place of its node id")


class ListenTls(ConfigSection):
    """Encryption between clients and Kordon."""

    certificate: Path = Field(
        description="PEM file of the certificate (chain) Kordon shows to clients", json_schema_extra=RELOADS
    )
    key: Path = Field(description="PEM file of the certificate's key, not encrypted", json_schema_extra=RELOADS)
    client_ca: Path | None = Field(
        default=None,
        description="PEM file of the authorities that signed the clients' certificates",
        json_schema_extra=RELOADS,
    )
    client_auth: Literal["none", "requested", "required"] = Field(
        default="none",
        description="whether a client's certificate is asked for (ssl.client.auth of a broker)",
        json_schema_extra=RELOADS,
    )


class Listen(ConfigSection):
    """The addresses at which clients reach Kordon."""

    address: Address = Field(
        description="address and port of the bootstrap listener; brokers listen on the same address"
    )
    advertise: Host | None = Field(
        default=None,
        description="host that clients get; null: the listening address, or on a wildcard the address that"
        " the client connected to",
    )
    base_port: Port | None = Field(
        default=None, description="the broker with node id n is on base_port + n; null: the listening port + 1"
    )
    ports: Annotated[dict[NodeId, Port], BeforeValidator(_by_node_id)] = Field(
        default={}, description="port by node id, for brokers that are not on base_port + node id"
    )
    sni: Sni | None = Field(default=None, description="one port for all, by host name; null: a port per broker")
    tls: ListenTls | None = Field(default=None, description="TLS towards clients; null: plain TCP")

    @property
    def first_broker_port(self) -> int:
        """The port on which a broker with node id 0 is, or would be."""
        return self.address.port + 1 if self.base_port is None else self.base_port

    def port_of(self, node_id: int) -> int:
        """The port of a broker: the given one, else base_port + node id (which may lie beyond 65535)."""
        return self.ports.get(node_id, self.first_broker_port + node_id)


class Admin(ConfigSection):
    """Health, metrics and status over HTTP. It has no log-in: bind it where only operators reach it."""

    address: Address | None = Field(
        default=None, description="address of /livez, /readyz, /metrics and /status; null: none of them"
    )
    pages: Literal["all", "probes"] = Field(
        default="all",
        description="probes: only /livez and /readyz, without reasons; the other pages, /metrics too, name brokers,"
        " topics and groups, and are not served",
    )


class Log(ConfigSection):
    """What is logged, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least important lines to write", json_schema_extra=RELOADS
    )
    format: Literal["auto", "human", "json"] = Field(
        default="auto", description="auto: human on a terminal, JSON otherwise"
    )


class Limits(ConfigSection):
    """What one client, or all, may take. A client beyond a limit is closed, logged and counted, or has to wait."""

    frame_bytes: FrameBytes = Field(
        default=104_857_600,
        description="largest request or response (socket.request.max.bytes of a broker)",
        json_schema_extra=RELOADS,
    )
    header_bytes: Bytes = Field(
        default=32_768,
        description="largest request header: client id and tagged fields",
        json_schema_extra=RELOADS,
    )
    request_bytes: Bytes = Field(
        default=8_388_608,
        description="largest request, other than Produce, that Kordon reads because it may name a managed topic",
        json_schema_extra=RELOADS,
    )
    request_rows: Annotated[int, BeforeValidator(_whole), Field(ge=100, le=1_000_000)] = Field(
        default=12_000,
        description="rows of such a request, Produce included: topics, partitions and whatever else it lists",
    )
    unproven_bytes: Annotated[int, BeforeValidator(_whole), Field(ge=1_024, le=1 << 20)] = Field(
        default=16_384,
        description="bytes of requests that Kordon keeps for a client before its broker has accepted it",
        json_schema_extra=RELOADS,
    )
    requests_in_flight: Count = Field(
        default=1_000,
        description="requests of one connection that wait for an answer; no more are read meanwhile",
        json_schema_extra=RELOADS,
    )
    held_bytes: Bytes = Field(
        default=268_435_456,
        description="bytes that one worker holds in memory for all its connections",
        json_schema_extra=RELOADS,
    )
    opened_bytes: Bytes = Field(
        default=33_554_432,
        description="unpacked size of one compressed batch that Kordon has to open, where each record counts as at"
        " least 128 bytes; a larger batch is passed over",
    )
    connections: Count = Field(
        default=10_000, description="client connections of one worker", json_schema_extra=RELOADS
    )
    connections_per_address: CountOrNone = Field(
        default=0,
        description="client connections of one worker from one IP address; 0: no limit",
        json_schema_extra=RELOADS,
    )
    idle_ms: Milliseconds = Field(
        default=660_000,
        description="time without a byte after which a connection is closed; a little over the ten minutes of"
        " connections.max.idle.ms of brokers, so that they decide",
        json_schema_extra=RELOADS,
    )
    handshake_ms: Milliseconds = Field(
        default=10_000,
        description="time for the TLS handshake and the first complete request",
        json_schema_extra=RELOADS,
    )
    request_ms: Milliseconds = Field(
        default=60_000,
        description="time within which a request that has begun must have arrived entirely",
        json_schema_extra=RELOADS,
    )


class Draining(ConfigSection):
    """How Kordon stops: listeners first, then connections step by step, each after its last answer."""

    timeout_ms: MillisecondsOrZero = Field(
        default=30_000,
        description="time for accepted requests to get their answers before what is left is cut",
        json_schema_extra=RELOADS,
    )
    spread_ms: MillisecondsOrZero = Field(
        default=2_000,
        description="time over which connections are closed, so that not all clients reconnect at once",
        json_schema_extra=RELOADS,
    )


class Ordering(ConfigSection):
    """Managed topics, whose partitions come and go without breaking the order of a key."""

    enabled: bool = Field(
        default=True,
        description="serve managed topics as soon as the cluster has any; false: never, and refuse their clients",
    )
    dialect: bool = Field(
        default=True,
        description="speak the dialect with clients of it, which see physical partitions (docs/dialect.md);"
        " false while the cluster has proxies that do not know it",
    )
    group: str = Field(
        default="kordon",
        min_length=1,
        max_length=249,
        description="Kafka group by which the proxies know each other; the same for all proxies of a cluster",
    )
    session_ms: Annotated[int, BeforeValidator(_whole), Field(ge=6_000, le=300_000)] = Field(
        default=10_000,
        description="time after which the others give up a silent proxy (session.timeout.ms); the brokers'"
        " group.min.session.timeout.ms at least",
    )
    lease_ms: Annotated[int, BeforeValidator(_whole), Field(ge=20_000, le=300_000)] = Field(
        default=20_000,
        description="time for which a proxy may serve managed topics after the cluster has last confirmed it,"
        " and for which a change of partitions waits for a missing proxy; the same for all"
        " proxies of a cluster",
    )
    rights_ms: Annotated[int, BeforeValidator(_whole), Field(ge=0, le=1_000)] = Field(
        default=1_000,
        description="time for which Kordon uses the broker's answer on what a client may do with a managed"
        " topic, on the client's connection; used if the cluster has an authorizer, or Kordon"
        " logs in by SASL",
    )
    client_quotas: bool = Field(
        default=True,
        description="hold clients of managed topics to the brokers' producer_byte_rate and consumer_byte_rate"
        " (docs/limitations.md#quotas); false: those bytes have no bound",
    )
    janitor_lag_ms: Annotated[int, BeforeValidator(_whole), Field(ge=0, le=7 * 86_400_000)] = Field(
        default=600_000,
        description="the least min.compaction.lag.ms of compacted managed topics, which Kordon enforces: a"
        " crash of proxies must be over within that time; the same for all proxies of a cluster",
    )
    group_lag_ms: Annotated[int, BeforeValidator(_whole), Field(ge=0, le=3_600_000)] = Field(
        default=30_000,
        description="time after which the leading worker looks again how far groups are behind on managed"
        " topics (docs/metrics.md); 0: never",
    )
    group_lag_series: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=100_000)] = Field(
        default=2_000,
        description="series of kordon_managed_lag_records; groups without room are reported together",
    )
    individual_commits: bool = Field(
        default=False,
        description="take commits of single offsets (docs/dialect.md, accept.individual.commit of KIP-X), on managed"
        " topics and on others; the same for all proxies of a cluster",
    )
    individual_commit_bytes: Bytes = Field(
        default=67_108_864,
        description="memory of one worker for what groups have done offset by offset; beyond it only what closes gaps"
        " is taken",
    )
    share_groups: bool = Field(
        default=False,
        description="serve share groups on managed topics, each key in order (docs/why/cooperative.md); false: refuse"
        " them there; the same for all proxies of a cluster",
    )
    share_group_bytes: Bytes = Field(
        default=67_108_864,
        description="memory of one worker for what share groups have in hand and have done of managed topics; beyond it"
        " nothing more is given",
    )
    transactions: bool = Field(
        default=False,
        description="take transactional writes to managed topics (docs/why/transactions.md); false: refuse them, and"
        " while the cluster has proxies that do not know them; the same for all proxies of a cluster",
    )


class Decisions(ConfigSection):
    """The decision log: what Kordon decided for managed topics, on record (docs/decisions.md)."""

    to: Literal["none", "topic", "files"] = Field(
        default="none", description="where decisions go: the topic `__kordon.decisions`, files, or nowhere"
    )
    run_ms: Annotated[int, BeforeValidator(_whole), Field(ge=10, le=600_000)] = Field(
        default=1_000,
        description="time for which decisions that continue each other become one record; longer means fewer"
        " records, seen later",
    )
    queue_bytes: Annotated[int, BeforeValidator(_whole), Field(ge=65_536, le=2**40)] = Field(
        default=33_554_432,
        description="bytes of decisions of one worker that wait to be written; what comes beyond is dropped,"
        " and a gap records it",
    )
    partitions: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=1_000)] = Field(
        default=3, description="partitions of the topic, when Kordon creates it; a worker writes to one of them"
    )
    replication: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=32)] = Field(
        default=3, description="copies of the topic, when Kordon creates it; fewer if there are fewer brokers"
    )
    retention_ms: Annotated[int, BeforeValidator(_whole), Field(ge=60_000, le=2**53)] = Field(
        default=604_800_000, description="retention.ms of the topic, when Kordon creates it"
    )
    oauth_claim: str = Field(
        default="sub",
        min_length=1,
        description="claim by which tokens of OAUTHBEARER name their users, as"
        " sasl.oauthbearer.sub.claim.name of the brokers",
    )
    folder: Folder | None = Field(default=None, description="folder of the files; it must be there")
    file_bytes: Annotated[int, BeforeValidator(_whole), Field(ge=65_536, le=2**40)] = Field(
        default=67_108_864, description="size at which a worker begins another file"
    )
    files: Annotated[int, BeforeValidator(_whole), Field(ge=2, le=100_000)] = Field(
        default=32, description="files kept in the folder, of all workers; the oldest go first"
    )


class Config(ConfigSection):
    """Everything Kordon can be told."""

    upstream: Upstream = Field(description="the cluster behind Kordon")
    listen: Listen = Field(description="where clients reach Kordon")
    admin: Admin = Field(default=Admin(), description="health, metrics and status over HTTP")
    workers: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=256)] = Field(
        default=1, description="processes that share the ports; each is a full proxy with its own limits"
    )
    log: Log = Field(default=Log(), description="what is logged, to standard error")
    limits: Limits = Field(default=Limits(), description="what one client, or all, may take")
    drain: Draining = Field(default=Draining(), description="how Kordon stops")
    ordering: Ordering = Field(default=Ordering(), description="managed topics")
    decisions: Decisions = Field(default=Decisions(), description="the decision log")
