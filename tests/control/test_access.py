"""What is wrong with rights, as brokers tell it: one look for the log and for `kordon check --cluster`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from kordon.proxy import apis
from kordon.proxy.config import HostPort, Upstream, UpstreamSasl, UpstreamTls
from kordon.proxy.control.access import Access, principal_of
from kordon.proxy.control.open_rights import NO_AUTHORIZER

BOOTSTRAP = (HostPort("kafka", 9092),)
ALL_OPERATIONS = (1 << 13) - 1
DESCRIBE = 8
TOPIC, LITERAL, WRITE, ALLOW = 2, 3, 4, 3
CLUSTER_AUTHORIZATION_FAILED = 31


class Broker:
    """Answers what is asked about rights."""

    def __init__(self) -> None:
        self.of_cluster = ALL_OPERATIONS
        self.topics = ["__kordon.layouts", "__kordon.orders", "__kordon.findings", "orders", "other"]
        self.acls: list[Any] = []
        self.asked: list[int] = []

    async def ask_any(self, api_key: int, versions: range, fields: dict[str, Any]) -> Any:
        """Answers as a broker does."""
        del versions
        self.asked.append(api_key)
        match api_key:
            case apis.DESCRIBE_CLUSTER:
                return SimpleNamespace(cluster_authorized_operations=self.of_cluster)
            case apis.DESCRIBE_ACLS:
                refused = not self.of_cluster >> DESCRIBE & 1
                code, said = (CLUSTER_AUTHORIZATION_FAILED, "denied") if refused else (0, None)
                return SimpleNamespace(error_code=code, error_message=said, resources=self.acls)
            case apis.FIND_COORDINATOR:
                return SimpleNamespace(error_code=0)
            case _:
                names = [each["name"] for each in fields["topics"]] if fields["topics"] is not None else self.topics
                rows = [
                    SimpleNamespace(name=name, error_code=0, topic_authorized_operations=ALL_OPERATIONS)
                    for name in names
                ]
                return SimpleNamespace(topics=rows)

    async def coordinator(self, kind: int, key: str, purpose: str) -> Any:
        """Is its own coordinator."""
        del kind, key, purpose

        def version(*_: Any) -> int:
            return 5

        async def ask(*_: Any) -> Any:
            return SimpleNamespace(groups=[SimpleNamespace(error_code=0, authorized_operations=ALL_OPERATIONS)])

        return SimpleNamespace(version=version, ask=ask)


@pytest.fixture
def broker() -> Broker:
    """A broker where all is well."""
    return Broker()


def access_to(broker: Broker) -> Access:
    """Returns how Kordon asks it."""
    return Access(cast("Any", broker), "User:kordon", "kordon")


async def test_where_all_is_well_nothing_is_found(broker: Broker) -> None:
    """Neither missing nor open."""
    found = await access_to(broker).find(["orders"], authorizer=True)
    assert (found.missing, found.open) == ([], [])


async def test_what_is_missing_and_what_is_open_are_both_told(broker: Broker) -> None:
    """Each with its command."""
    broker.of_cluster = 1 << DESCRIBE
    acl = SimpleNamespace(principal="User:app", operation=WRITE, permission_type=ALLOW, host="*")
    broker.acls = [SimpleNamespace(resource_type=TOPIC, pattern_type=LITERAL, resource_name="*", acls=[acl])]
    found = await access_to(broker).find(["orders"], authorizer=True)
    (missing,), (is_open,) = found.missing, found.open
    assert missing.endswith("--add --allow-principal User:kordon --operation Alter --cluster")
    assert "--add --deny-principal User:app --operation Write" in is_open


async def test_what_kordon_may_not_see_is_not_taken_for_good(broker: Broker) -> None:
    """Without Describe of the cluster it does not see ACLs: that is said beside the right that is missing."""
    broker.of_cluster = 0
    found = await access_to(broker).find(["orders"], authorizer=True)
    assert "lacks Describe, Alter" in found.missing[0]
    assert "cannot be seen: reading ACLs" in found.open[0]


async def test_without_an_authorizer_nothing_is_asked(broker: Broker) -> None:
    """There are no rights, so none is missing."""
    found = await access_to(broker).find(["orders"], authorizer=False)
    assert (found.missing, found.open, broker.asked) == ((), [NO_AUTHORIZER], [])


async def test_managed_topics_are_those_with_a_face(broker: Broker) -> None:
    """Kordon's and its auditor's own topics are no faces."""
    assert await access_to(broker).managed() == ["orders"]


@pytest.mark.parametrize(
    ("section", "principal"),
    [
        ({"sasl": UpstreamSasl(mechanism="PLAIN", username="kordon", password=SecretStr("x"))}, "User:kordon"),
        ({"tls": UpstreamTls(certificate=Path("a.pem"), key=Path("a.key"))}, None),
        ({"tls": UpstreamTls()}, "User:ANONYMOUS"),
        ({}, "User:ANONYMOUS"),
    ],
)
def test_kordons_principal_is_its_log_in(section: dict[str, Any], principal: str | None) -> None:
    """What brokers make of a certificate is theirs to say."""
    assert principal_of(Upstream(bootstrap=BOOTSTRAP, **section)) == principal
