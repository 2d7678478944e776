"""The properties of an embedded broker: small, quick to start, and what its listeners need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kordon.testing.certificates import Certificates

USERS: Final = {"admin": "admin-secret", "alice": "alice-secret"}
"""Users of the SASL listeners, PLAIN and SCRAM, with their passwords."""
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
CONTROLLER: Final = "CONTROLLER"

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


def properties(
    ports: BrokerPorts, voters: Sequence[BrokerPorts], folder: Path, certificates: Certificates | None
) -> dict[str, str]:
    """Returns server.properties of one broker of a KRaft cluster whose brokers are controllers as well."""
    names = list(ports.by_listener)
    copies = str(min(3, len(voters)))
    protocols = [f"{name}:{protocol_of(name)}" for name in names]
    advertised = [f"{name}://127.0.0.1:{ports.advertised.get(name, port)}" for name, port in ports.by_listener.items()]
    found = {
        "process.roles": "broker,controller",
        "node.id": str(ports.node_id),
        "controller.quorum.voters": ",".join(f"{each.node_id}@127.0.0.1:{each.controller}" for each in voters),
        "controller.listener.names": CONTROLLER,
        "listeners": ",".join(
            [f"{name}://127.0.0.1:{port}" for name, port in ports.by_listener.items()]
            + [f"{CONTROLLER}://127.0.0.1:{ports.controller}"]
        ),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join([*protocols, f"{CONTROLLER}:PLAINTEXT"]),
        "inter.broker.listener.name": names[0],
        "log.dirs": str(folder / "data"),
        "broker.rack": f"rack-{ports.node_id}",
        "num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "allow.everyone.if.no.acl.found": "true",
        "log.cleaner.dedupe.buffer.size": "8388608",
        "delegation.token.secret.key": "embedded",
    }
    if any("SSL" in protocol_of(name) for name in names):
        found |= _tls(certificates)
    for name in names:
        if protocol_of(name).startswith("SASL"):
            found |= _sasl(name)
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
