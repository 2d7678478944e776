"""The properties of an embedded broker: small, quick to start, and what its listeners need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kordon.testing.certificates import Certificates

USERS: Final = {name: f"{name}-secret" for name in ("admin", "alice", "bob", "carol", "kordon", "mallory")}
"""Users of the SASL listeners, PLAIN and SCRAM, with their passwords; admin may do everything."""
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
CONTROLLER: Final = "CONTROLLER"
QUICK_DEATH: Final = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "1000"}
"""A killed broker's partitions get another leader after this, which is 9 seconds by default."""
UNCLEAN_ELECTIONS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "1",
    "authorizer.class.name": "",
    **QUICK_DEATH,
}
"""Of three brokers whose logs get shorter when the copy that is behind comes to lead."""
KAFKAS_OWN_THREADS: Final = {"num.network.threads": "3", "num.io.threads": "8"}
"""Of a broker that is measured under load; others have few threads, of which each looks for work 3 times a second."""

_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Where one broker listens."""

    node_id: int
    controller: int
    by_listener: dict[str, int]
    advertised: dict[str, int]
    """Ports that are told in place of the broker's own, by listener."""
    known_as: str | None = None
    """The host that clients are told, if they are on other hosts."""


def needs_zookeeper(version: str) -> bool:
    """Says whether a version of Kafka has no KRaft that is fit for use (before 3.3, KIP-833)."""
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) < (3, 3)


def write_properties(file: Path, lines: Mapping[str, str]) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))


def properties(
    ports: BrokerPorts,
    voters: Sequence[BrokerPorts],
    folder: Path,
    certificates: Certificates | None,
    zookeeper: str | None = None,
) -> dict[str, str]:
    """Returns server.properties of one broker.

    Args:
        voters: Those of all brokers; with KRaft they are the controllers as well.
        zookeeper: host:port, for a Kafka without KRaft.
    """
    names = list(ports.by_listener)
    found = (_with_zookeeper(ports, zookeeper) if zookeeper else _with_kraft(ports, voters)) | {
        "inter.broker.listener.name": names[0],
        "log.dirs": str(folder / "data"),
        "broker.rack": f"rack-{ports.node_id}",
        "super.users": "User:ANONYMOUS;User:admin",
        "allow.everyone.if.no.acl.found": "true",
        "log.cleaner.dedupe.buffer.size": "8388608",
        "log.retention.ms": "-1",  # records of tests are as old as they say: a few minutes later they were gone
        "num.network.threads": "1",
        "num.io.threads": "3",
        "replica.fetch.wait.max.ms": "2000",  # copies that ask twice a second are a third of what idle brokers do
    }
    found |= _coordinators(copies=min(3, len(voters)))
    if any("SSL" in protocol_of(name) for name in names):
        found |= _tls(certificates)
    for name in names:
        if protocol_of(name).startswith("SASL"):
            found |= _sasl(name)
    return found


def _with_kraft(ports: BrokerPorts, voters: Sequence[BrokerPorts]) -> dict[str, str]:
    controller = f"{CONTROLLER}://127.0.0.1:{ports.controller}"
    return _listeners(ports, controller, f"{CONTROLLER}:PLAINTEXT") | {
        "process.roles": "broker,controller",
        "node.id": str(ports.node_id),
        "controller.quorum.voters": ",".join(f"{each.node_id}@127.0.0.1:{each.controller}" for each in voters),
        "controller.listener.names": CONTROLLER,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "delegation.token.secret.key": "embedded",
        "metadata.max.idle.interval.ms": "5000",  # records without content are a third of what an idle broker does
    }


def _with_zookeeper(ports: BrokerPorts, zookeeper: str) -> dict[str, str]:
    return _listeners(ports) | {
        "broker.id": str(ports.node_id),
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": "5000",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "delegation.token.master.key": "embedded",
    }


def _listeners(ports: BrokerPorts, more: str = "", more_protocol: str = "") -> dict[str, str]:
    bound, host = ("0.0.0.0", ports.known_as) if ports.known_as else ("127.0.0.1", "127.0.0.1")  # noqa: S104 - asked for
    here = [f"{name}://{bound}:{port}" for name, port in ports.by_listener.items()]
    told = [f"{name}://{host}:{ports.advertised.get(name, port)}" for name, port in ports.by_listener.items()]
    protocols = [f"{name}:{protocol_of(name)}" for name in ports.by_listener]
    return {
        "listeners": ",".join([*here, *filter(None, [more])]),
        "advertised.listeners": ",".join(told),
        "listener.security.protocol.map": ",".join([*protocols, *filter(None, [more_protocol])]),
    }


def _coordinators(copies: int) -> dict[str, str]:
    """Small internal topics, and groups that start without waiting for more members."""
    found = {"num.partitions": "1", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
    found["group.min.session.timeout.ms"] = "1000"  # for members that are to die soon
    found["offsets.topic.replication.factor"] = str(copies)
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        found[f"{topic}.num.partitions"] = "4"
        found[f"{topic}.replication.factor"] = str(copies)
        found[f"{topic}.min.isr"] = "1"
    return found


def protocol_of(listener: str) -> str:
    """Returns the security protocol of a listener: its name up to an underscore that begins none (FLOOR: plain)."""
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL", "SSL", "PLAINTEXT"):
        if listener.startswith(protocol):
            return protocol
    return "PLAINTEXT"


def _tls(certificates: Certificates | None) -> Mapping[str, str]:
    if certificates is None:
        raise ValueError("a TLS listener needs certificates")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker_store()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.auth": "requested",
    }


def _sasl(listener: str) -> Mapping[str, str]:
    prefix = f"listener.name.{listener.lower()}"
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    unsecured = f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecured"
    login = f"{_OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=broker;"
    return {
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{prefix}.plain.sasl.jaas.config": f"{_PLAIN_MODULE} required {users};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": login,
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{unsecured}ValidatorCallbackHandler",
        f"{prefix}.oauthbearer.sasl.login.callback.handler.class": f"{unsecured}LoginCallbackHandler",
    }
