"""A cluster that allows nothing that no ACL allows, with a Kordon that is no super user, for tests of rights."""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self, TypeVar

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kordon.codecs import apis
from kordon.testing.broker_config import USERS
from kordon.testing.cluster import Cluster
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

LISTENER: Final = "SASL_PLAINTEXT"
TLS_LISTENER: Final = "SASL_SSL"
_SASL_AUTHENTICATE: Final = 36
_ANYBODY: Any = None
"""Principal and host of a filter; the library's types do not know that there may be none."""
_Connection = TypeVar("_Connection", bound=PlainConnection)


def login(user: str) -> dict[str, str]:
    """Settings by which a librdkafka client logs in."""
    return {
        "security.protocol": LISTENER,
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def log_in(connection: _Connection, user: str) -> _Connection:
    """Logs a user in by PLAIN; returns the connection."""
    assert connection.ask(apis.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0
    token = f"\0{user}\0{USERS[user]}".encode()
    assert connection.ask(_SASL_AUTHENTICATE, 2, {"auth_bytes": token}).error_code == 0
    return connection


@contextmanager
def kordon_by_plain(cluster: Cluster, **sections: Any) -> Iterator[ProxyProcess]:
    """Starts a Kordon that logs in by PLAIN; `sections` are others of its configuration."""
    sasl = {"mechanism": "PLAIN", "username": "kordon", "password": USERS["kordon"]}
    upstream = {"bootstrap": cluster.bootstrap(LISTENER), "sasl": sasl}
    with ProxyProcess.start(cluster.bootstrap(LISTENER), config={"upstream": upstream, **sections}) as started:
        yield started


@contextmanager
def kordon_over_tls(cluster: Cluster, user: str) -> Iterator[ProxyProcess]:
    """Runs a Kordon whose clients and which itself speak TLS; it logs in as a user by SCRAM."""
    files, bootstrap = cluster.certificates, cluster.bootstrap(TLS_LISTENER)
    sasl = {"mechanism": "SCRAM-SHA-512", "username": user, "password": USERS[user]}
    upstream = {"bootstrap": bootstrap, "tls": {"ca": str(files.ca)}, "sasl": sasl}
    tls = {"certificate": str(files.server), "key": str(files.server_key)}
    sections = {"upstream": upstream, "listen": {"address": "127.0.0.1:1", "tls": tls}}
    with ProxyProcess.start(bootstrap, config=sections) as proxy:
        yield proxy


@dataclass(frozen=True)
class Allowed:
    """An ACL, as an operator thinks of it."""

    user: str
    operation: AclOperation
    name: str
    type: ResourceType = ResourceType.TOPIC
    pattern: ResourcePatternType = ResourcePatternType.LITERAL
    permission: AclPermissionType = AclPermissionType.ALLOW

    def as_binding(self) -> AclBinding:
        principal = f"User:{self.user}"
        return AclBinding(self.type, self.name, self.pattern, principal, "*", self.operation, self.permission)

    def as_filter(self) -> AclBindingFilter:
        """For the admin client, to take it back."""
        principal = f"User:{self.user}"
        return AclBindingFilter(self.type, self.name, self.pattern, principal, "*", self.operation, self.permission)


OWN_RIGHTS: Final = (
    Allowed("kordon", AclOperation.ALL, "__kordon.", pattern=ResourcePatternType.PREFIXED),
    Allowed("kordon", AclOperation.READ, "kordon", ResourceType.GROUP),
    Allowed("kordon", AclOperation.WRITE, "kordon.layouts", ResourceType.TRANSACTIONAL_ID),
    Allowed("kordon", AclOperation.DESCRIBE, "kafka-cluster", ResourceType.BROKER),
    Allowed("kordon", AclOperation.ALTER, "kafka-cluster", ResourceType.BROKER),
)
"""What Kordon needs beside its rights on managed topics (docs/rights.md)."""


@dataclass
class Secured:
    """A cluster with an authorizer, a Kordon that is no super user, and an operator who is one."""

    cluster: Cluster
    kordon: ProxyProcess
    operator: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.operator = AdminClient({"bootstrap.servers": self.cluster.bootstrap("PLAINTEXT")})

    @classmethod
    @contextmanager
    def start(cls, **sections: Any) -> Iterator[Self]:
        """Starts one broker with PLAIN and SCRAM, in the clear and over TLS, and a Kordon on the clear one."""
        strict = {"allow.everyone.if.no.acl.found": "false", "connections.max.reauth.ms": "60000"}
        listeners = ("PLAINTEXT", LISTENER, TLS_LISTENER)
        with (
            Cluster.start(listeners=listeners, config=strict) as cluster,
            kordon_by_plain(cluster, **sections) as kordon,
        ):
            found = cls(cluster, kordon)
            found.allow(*OWN_RIGHTS)
            yield found

    @contextmanager
    def over_tls(self) -> Iterator[Self]:
        """Starts another Kordon, whose clients and which itself speak TLS; it logs in by SCRAM."""
        with kordon_over_tls(self.cluster, "kordon") as proxy:
            yield type(self)(self.cluster, proxy)

    def allow(self, *acls: Allowed) -> None:
        """Gives rights; returns when the broker knows them."""
        for each in acls:
            self.operator.create_acls([each.as_binding()])[each.as_binding()].result(60)
            wait_until(f"{each}", partial(self._has, each))

    def revoke(self, *acls: Allowed) -> None:
        """Takes rights back; returns when the broker knows it."""
        for each in acls:
            self.operator.delete_acls([each.as_filter()])[each.as_filter()].result(60)
            wait_until(f"no {each}", partial(self._has_not, each))

    @contextmanager
    def allowed(self, *acls: Allowed) -> Iterator[None]:
        """Gives rights for as long as it is open."""
        self.allow(*acls)
        try:
            yield
        finally:
            self.revoke(*acls)

    def on_topic(self, name: str) -> set[tuple[str, str]]:
        """Returns who has what ACLs on a topic, literally."""
        kind, pattern = ResourceType.TOPIC, ResourcePatternType.LITERAL
        wanted = AclBindingFilter(kind, name, pattern, _ANYBODY, _ANYBODY, AclOperation.ANY, AclPermissionType.ANY)
        return {(each.principal, each.operation.name) for each in self.operator.describe_acls(wanted).result(60)}

    def settings(self, user: str) -> Mapping[str, Any]:
        """Settings of a client that comes through Kordon."""
        return {"bootstrap.servers": self.kordon.bootstrap, **login(user)}

    def _has(self, acl: Allowed) -> bool:
        return bool(self.operator.describe_acls(acl.as_filter()).result(60))

    def _has_not(self, acl: Allowed) -> bool:
        return not self._has(acl)
