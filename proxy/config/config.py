"""What Kordon can be told: one frozen model per section of the configuration file.

The models say what an option is called, what it means, its unit, its bounds and whether a running proxy takes
a new value. `docs/configuration.md` shows the same table, and a test compares the two. Reading files,
environment variables and flags into a `Config`, and telling a person what is wrong with them, is `config_load`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, SecretStr

from kordon.proxy.config.host_port import MAX_PORT, Address, Host, HostPort, addresses

NODE_ID_PLACEHOLDER = "$(node_id)"
RELOADS: dict[str, JsonValue] = {"reload": True}
"""Marks an option whose new value a running proxy takes over; every other one needs a restart."""


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


Whole = Annotated[int, BeforeValidator(_whole)]
Port = Annotated[Whole, Field(ge=1, le=MAX_PORT)]
NodeId = Annotated[Whole, Field(ge=0, le=2**31 - 1)]
Count = Annotated[Whole, Field(ge=1)]
CountOrNone = Annotated[Whole, Field(ge=0)]
Bytes = Annotated[Whole, Field(ge=1, le=2**40)]
FrameBytes = Annotated[Whole, Field(ge=1024, le=2**31 - 1)]
Milliseconds = Annotated[Whole, Field(ge=1, le=2**31 - 1)]
Folder = Annotated[Path, "folder"]
Extension = Annotated[str, Field(pattern=r"^[A-Za-z]+$")]
ExtensionValue = Annotated[str, Field(pattern=r"^[\x20-\x7e]*$")]
MillisecondsOrZero = Annotated[Whole, Field(ge=0, le=2**31 - 1)]


def _fixed(default: object, description: str, *, min_length: int | None = None, max_length: int | None = None) -> Any:
    """Returns an option whose new value needs a restart."""
    return Field(default=default, description=description, min_length=min_length, max_length=max_length)


def _live(default: object, description: str, *, min_length: int | None = None) -> Any:
    """Returns an option whose new value a running proxy takes over."""
    return Field(default=default, description=description, min_length=min_length, json_schema_extra=RELOADS)


class ConfigSection(BaseModel):
    """A section of the file: frozen, and a key it does not know is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class UpstreamTls(ConfigSection):
    """Encryption between Kordon and the brokers. `tls: {}` is TLS with the system's certificate authorities."""

    ca: Path | None = _live(
        None, "PEM file of the authorities that signed the brokers' certificates; null: the system's own"
    )
    certificate: Path | None = _live(None, "PEM file of the certificate (chain) Kordon shows to brokers, for mTLS")
    key: Path | None = _live(None, "PEM file of the certificate's key, not encrypted")
    server_name: Host | None = _live(
        None, "name to expect in every broker's certificate; null: the host that is connected to"
    )
    verify: bool = _live(True, "check the brokers' certificates; false is for tests only")


class UpstreamSasl(ConfigSection):
    """How Kordon's own connection, which follows the topology, logs in. Clients log in for themselves."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        description="SASL mechanism", json_schema_extra=RELOADS
    )
    username: str | None = _live(
        None,
        "user name of PLAIN and SCRAM; of OAUTHBEARER the name by which brokers know Kordon, which only"
        " the checks of rights need",
        min_length=1,
    )
    password: SecretStr | None = _live(
        None, "password of PLAIN and SCRAM; better given by an environment variable than in the file"
    )
    token_url: str | None = _live(
        None, "address of the token endpoint that Kordon asks by client credentials (OAUTHBEARER)"
    )
    client_id: str | None = _live(None, "id by which the token endpoint knows Kordon", min_length=1)
    client_secret_file: Path | None = _live(
        None, "file with the client's secret, read for each question to the token endpoint"
    )
    scope: str | None = _live(None, "scope to ask the token endpoint for, if it needs one")
    token_ca: Path | None = _live(
        None, "PEM file of the authorities that signed the token endpoint's certificate; null: the system's own"
    )
    token_file: Path | None = _live(
        None, "file with a token, read for each log-in, in place of a token endpoint (OAUTHBEARER)"
    )
    extensions: Annotated[dict[Extension, ExtensionValue], BeforeValidator(_by_name)] = _live(
        {}, "further words of the OAUTHBEARER log-in, such as logicalCluster (KIP-342)"
    )

    def __hash__(self) -> int:
        """Returns the same for equal log-ins; a mapping such as `extensions` has no hash of its own."""
        return hash((self.mechanism, self.username, self.token_url, self.client_id, self.token_file))


class Upstream(ConfigSection):
    """The cluster behind Kordon."""

    bootstrap: Annotated[tuple[Address, ...], BeforeValidator(addresses), AfterValidator(_not_empty)] = Field(
        description="brokers to ask for the cluster first, as host:port; a list, or separated by commas",
        json_schema_extra=RELOADS,
    )
    tls: UpstreamTls | None = _fixed(None, "TLS towards the brokers; null: plain TCP")
    sasl: UpstreamSasl | None = _fixed(None, "log-in of Kordon's own metadata connection; null: none")
    brokers: Annotated[dict[NodeId, Address], BeforeValidator(_by_node_id)] = _live(
        {}, "addresses by node id that replace what brokers advertise, for example a name that Kordon cannot resolve"
    )
    connect_timeout_ms: Milliseconds = _live(10_000, "time for a connection to a broker, TLS included")
    refresh_ms: Milliseconds = _live(30_000, "how often the cluster is asked for its brokers")


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
    client_ca: Path | None = _live(None, "PEM file of the authorities that signed the clients' certificates")
    client_auth: Literal["none", "requested", "required"] = _live(
        "none", "whether a client's certificate is asked for (ssl.client.auth of a broker)"
    )


class Listen(ConfigSection):
    """The addresses at which clients reach Kordon."""

    address: Address = Field(
        description="address and port of the bootstrap listener; brokers listen on the same address"
    )
    advertise: Host | None = _fixed(
        None,
        "host that clients get; null: the listening address, or on a wildcard the address that the client connected to",
    )
    base_port: Port | None = _fixed(None, "the broker with node id n is on base_port + n; null: the listening port + 1")
    ports: Annotated[dict[NodeId, Port], BeforeValidator(_by_node_id)] = _fixed(
        {}, "port by node id, for brokers that are not on base_port + node id"
    )
    sni: Sni | None = _fixed(None, "one port for all, by host name; null: a port per broker")
    tls: ListenTls | None = _fixed(None, "TLS towards clients; null: plain TCP")

    @property
    def first_broker_port(self) -> int:
        """The port on which a broker with node id 0 is, or would be."""
        return self.address.port + 1 if self.base_port is None else self.base_port

    def port_of(self, node_id: int) -> int:
        """The port of a broker: the given one, else base_port + node id (which may lie beyond 65535)."""
        return self.ports.get(node_id, self.first_broker_port + node_id)


class Admin(ConfigSection):
    """Health, metrics and status over HTTP. It has no log-in: bind it where only operators reach it."""

    address: Address | None = _fixed(None, "address of /livez, /readyz, /metrics and /status; null: none of them")
    pages: Literal["all", "probes"] = _fixed(
        "all",
        "probes: only /livez and /readyz, without reasons; the other pages, /metrics too, name brokers,"
        " topics and groups, and are not served",
    )


class Log(ConfigSection):
    """What is logged, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = _live("info", "the least important lines to write")
    format: Literal["auto", "human", "json"] = _fixed("auto", "auto: human on a terminal, JSON otherwise")


class Limits(ConfigSection):
    """What one client, or all, may take. A client beyond a limit is closed, logged and counted, or has to wait."""

    frame_bytes: FrameBytes = _live(104_857_600, "largest request or response (socket.request.max.bytes of a broker)")
    header_bytes: Bytes = _live(32_768, "largest request header: client id and tagged fields")
    request_bytes: Bytes = _live(
        8_388_608, "largest request, other than Produce, that Kordon reads because it may name a managed topic"
    )
    request_rows: Annotated[Whole, Field(ge=100, le=1_000_000)] = _fixed(
        12_000, "rows of such a request, Produce included: topics, partitions and whatever else it lists"
    )
    unproven_bytes: Annotated[Whole, Field(ge=1_024, le=1 << 20)] = _live(
        16_384, "bytes of requests that Kordon keeps for a client before its broker has accepted it"
    )
    requests_in_flight: Count = _live(
        1_000, "requests of one connection that wait for an answer; no more are read meanwhile"
    )
    held_bytes: Bytes = _live(268_435_456, "bytes that one worker holds in memory for all its connections")
    opened_bytes: Bytes = _fixed(
        33_554_432,
        "unpacked size of one compressed batch that Kordon has to open, where each record counts as at"
        " least 128 bytes; a larger batch is passed over",
    )
    connections: Count = _live(10_000, "client connections of one worker")
    connections_per_address: CountOrNone = _live(0, "client connections of one worker from one IP address; 0: no limit")
    idle_ms: Milliseconds = _live(
        660_000,
        "time without a byte after which a connection is closed; a little over the ten minutes of"
        " connections.max.idle.ms of brokers, so that they decide",
    )
    handshake_ms: Milliseconds = _live(10_000, "time for the TLS handshake and the first complete request")
    request_ms: Milliseconds = _live(60_000, "time within which a request that has begun must have arrived entirely")


class Draining(ConfigSection):
    """How Kordon stops: listeners first, then connections step by step, each after its last answer."""

    timeout_ms: MillisecondsOrZero = _live(
        30_000, "time for accepted requests to get their answers before what is left is cut"
    )
    spread_ms: MillisecondsOrZero = _live(
        2_000, "time over which connections are closed, so that not all clients reconnect at once"
    )


class Ordering(ConfigSection):
    """Managed topics, whose partitions come and go without breaking the order of a key."""

    enabled: bool = _fixed(
        True, "serve managed topics as soon as the cluster has any; false: never, and refuse their clients"
    )
    dialect: bool = _fixed(
        True,
        "speak the dialect with clients of it, which see physical partitions (docs/dialect.md);"
        " false while the cluster has proxies that do not know it",
    )
    group: str = _fixed(
        "kordon",
        "Kafka group by which the proxies know each other; the same for all proxies of a cluster",
        min_length=1,
        max_length=249,
    )
    session_ms: Annotated[Whole, Field(ge=6_000, le=300_000)] = _fixed(
        10_000,
        "time after which the others give up a silent proxy (session.timeout.ms); the brokers'"
        " group.min.session.timeout.ms at least",
    )
    lease_ms: Annotated[Whole, Field(ge=20_000, le=300_000)] = _fixed(
        20_000,
        "time for which a proxy may serve managed topics after the cluster has last confirmed it,"
        " and for which a change of partitions waits for a missing proxy; the same for all"
        " proxies of a cluster",
    )
    rights_ms: Annotated[Whole, Field(ge=0, le=1_000)] = _fixed(
        1_000,
        "time for which Kordon uses the broker's answer on what a client may do with a managed"
        " topic, on the client's connection; used if the cluster has an authorizer, or Kordon"
        " logs in by SASL",
    )
    client_quotas: bool = _fixed(
        True,
        "hold clients of managed topics to the brokers' producer_byte_rate and consumer_byte_rate"
        " (docs/limitations.md#quotas); false: those bytes have no bound",
    )
    janitor_lag_ms: Annotated[Whole, Field(ge=0, le=7 * 86_400_000)] = _fixed(
        600_000,
        "the least min.compaction.lag.ms of compacted managed topics, which Kordon enforces: a"
        " crash of proxies must be over within that time; the same for all proxies of a cluster",
    )
    group_lag_ms: Annotated[Whole, Field(ge=0, le=3_600_000)] = _fixed(
        30_000,
        "time after which the leading worker looks again how far groups are behind on managed"
        " topics (docs/metrics.md); 0: never",
    )
    group_lag_series: Annotated[Whole, Field(ge=1, le=100_000)] = _fixed(
        2_000, "series of kordon_managed_lag_records; groups without room are reported together"
    )
    individual_commits: bool = _fixed(
        False,
        "take commits of single offsets (docs/dialect.md, accept.individual.commit of KIP-X), on managed"
        " topics and on others; the same for all proxies of a cluster",
    )
    individual_commit_bytes: Bytes = _fixed(
        67_108_864,
        "memory of one worker for what groups have done offset by offset; beyond it only what closes gaps is taken",
    )
    share_groups: bool = _fixed(
        False,
        "serve share groups on managed topics, each key in order (docs/why/cooperative.md); false: refuse"
        " them there; the same for all proxies of a cluster",
    )
    share_group_bytes: Bytes = _fixed(
        67_108_864,
        "memory of one worker for what share groups have in hand and have done of managed topics; beyond it"
        " few records are looked at ahead",
    )
    transactions: bool = _fixed(
        False,
        "take transactional writes to managed topics (docs/why/transactions.md); false: refuse them, and"
        " while the cluster has proxies that do not know them; the same for all proxies of a cluster",
    )


class Decisions(ConfigSection):
    """The decision log: what Kordon decided for managed topics, on record (docs/decisions.md)."""

    to: Literal["none", "topic", "files"] = _fixed(
        "none", "where decisions go: the topic `__kordon.decisions`, files, or nowhere"
    )
    run_ms: Annotated[Whole, Field(ge=10, le=600_000)] = _fixed(
        1_000,
        "time for which decisions that continue each other become one record; longer means fewer records, seen later",
    )
    queue_bytes: Annotated[Whole, Field(ge=65_536, le=2**40)] = _fixed(
        33_554_432,
        "bytes of decisions of one worker that wait to be written; what comes beyond is dropped, and a gap records it",
    )
    partitions: Annotated[Whole, Field(ge=1, le=1_000)] = _fixed(
        3, "partitions of the topic, when Kordon creates it; a worker writes to one of them"
    )
    replication: Annotated[Whole, Field(ge=1, le=32)] = _fixed(
        3, "copies of the topic, when Kordon creates it; fewer if there are fewer brokers"
    )
    retention_ms: Annotated[Whole, Field(ge=60_000, le=2**53)] = _fixed(
        604_800_000, "retention.ms of the topic, when Kordon creates it"
    )
    oauth_claim: str = _fixed(
        "sub",
        "claim by which tokens of OAUTHBEARER name their users, as sasl.oauthbearer.sub.claim.name of the brokers",
        min_length=1,
    )
    folder: Folder | None = _fixed(None, "folder of the files; it must be there")
    file_bytes: Annotated[Whole, Field(ge=65_536, le=2**40)] = _fixed(
        67_108_864, "size at which a worker begins another file"
    )
    files: Annotated[Whole, Field(ge=2, le=100_000)] = _fixed(
        32, "files kept in the folder, of all workers; the oldest go first"
    )


class Config(ConfigSection):
    """Everything Kordon can be told."""

    upstream: Upstream = Field(description="the cluster behind Kordon")
    listen: Listen = Field(description="where clients reach Kordon")
    admin: Admin = _fixed(Admin(), "health, metrics and status over HTTP")
    workers: Annotated[Whole, Field(ge=1, le=256)] = _fixed(
        1, "processes that share the ports; each is a full proxy with its own limits"
    )
    log: Log = _fixed(Log(), "what is logged, to standard error")
    limits: Limits = _fixed(Limits(), "what one client, or all, may take")
    drain: Draining = _fixed(Draining(), "how Kordon stops")
    ordering: Ordering = _fixed(Ordering(), "managed topics")
    decisions: Decisions = _fixed(Decisions(), "the decision log")
