"""What is wrong with rights, as brokers tell it: one look for the log and for `kordon check --cluster`."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from kordon.codecs import apis
from kordon.proxy.access.open_rights import NO_AUTHORIZER
from kordon.proxy.access.wrong_rights import Access, principal_of
from kordon.proxy.config.config import Upstream, UpstreamSasl, UpstreamTls
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.kafka.brokers import Brokers
from kordon.testing.fake_broker import Answer, Asked, FakeBroker

BOOTSTRAP = (HostPort("kafka", 9092),)
ALL_OPERATIONS = (1 << 13) - 1
DESCRIBE = 8
TOPIC, LITERAL, WRITE, ALLOW = 2, 3, 4, 3
CLUSTER_AUTHORIZATION_FAILED = 31
TOPICS = ["__kordon.layouts", "__kordon.orders", "__kordon.findings", "orders", "other"]


class Broker(FakeBroker):
    """Answers what is asked about rights."""

    def __init__(self) -> None:
        asked_for = {
            apis.METADATA: self._topics,
            apis.DESCRIBE_CLUSTER: self._cluster,
            apis.DESCRIBE_ACLS: self._describe_acls,
            apis.DESCRIBE_GROUPS: self._group,
        }
        super().__init__(dict.fromkeys(TOPICS, 1), asked_for)
        self.of_cluster = ALL_OPERATIONS
        self.of_groups: dict[str, int] = {}
        """What may be done with a group; all, unless it is named here."""
        self.acls: list[dict[str, Any]] = []

    def _topics(self, asked: Asked) -> Answer:
        names = TOPICS if asked.body.topics is None else [row.name for row in asked.body.topics]
        rows = [{"name": name, "error_code": 0, "topic_authorized_operations": ALL_OPERATIONS} for name in names]
        return {"topics": rows}

    def _cluster(self, _: Asked) -> Answer:
        return {"cluster_authorized_operations": self.of_cluster}

    def _describe_acls(self, _: Asked) -> Answer:
        if not self.of_cluster >> DESCRIBE & 1:
            return {"error_code": CLUSTER_AUTHORIZATION_FAILED, "error_message": "denied"}
        return {"error_code": 0, "resources": self.acls}

    def _group(self, asked: Asked) -> Answer:
        (group,) = asked.body.groups
        operations = self.of_groups.get(group, ALL_OPERATIONS)
        return {"groups": [{"group_id": group, "error_code": 0, "authorized_operations": operations}]}


@pytest.fixture
def broker() -> Broker:
    return Broker()


def access_to(broker: Broker) -> Access:
    return Access(Brokers(broker), "User:kordon", "kordon")


async def test_where_all_is_well_nothing_is_found(broker: Broker) -> None:
    """Neither missing nor open."""
    found = await access_to(broker).find(["orders"], authorizer=True)
    assert (found.missing, found.open) == ([], [])


async def test_what_is_missing_and_what_is_open_are_both_told(broker: Broker) -> None:
    """Each with its command."""
    broker.of_cluster = 1 << DESCRIBE
    acl = {"principal": "User:app", "operation": WRITE, "permission_type": ALLOW, "host": "*"}
    broker.acls = [{"resource_type": TOPIC, "pattern_type": LITERAL, "resource_name": "*", "acls": [acl]}]
    found = await access_to(broker).find(["orders"], authorizer=True)
    (missing,), (is_open,) = found.missing, found.open
    assert missing.endswith("--add --allow-principal User:kordon --operation Alter --cluster")
    assert "--add --deny-principal User:app --operation Write" in is_open


async def test_rights_that_share_groups_need_are_missed_where_they_are_served(broker: Broker) -> None:
    """Kordon asks for the configs of any group: a group that it may not describe has nothing given to its members."""
    broker.of_groups["__kordon.any-group"] = 1 << DESCRIBE
    assert (await access_to(broker).find(["orders"], authorizer=True)).missing == []
    access = Access(Brokers(broker), "User:kordon", "kordon", share_groups=True)
    assert await access.missing(["orders"]) == [], "topics can be managed without it"
    (told,) = (await access.find(["orders"], authorizer=True)).missing
    assert told.startswith("Kordon (User:kordon) lacks DescribeConfigs; give it by: ")
    assert told.endswith("--add --allow-principal User:kordon --operation DescribeConfigs --group '*'")


async def test_what_kordon_may_not_see_is_not_taken_for_good(broker: Broker) -> None:
    """Without Describe of the cluster it does not see ACLs: that is said beside the right that is missing."""
    broker.of_cluster = 0
    found = await access_to(broker).find(["orders"], authorizer=True)
    assert "lacks Describe, Alter" in found.missing[0]
    assert "cannot be seen: reading ACLs" in found.open[0]


async def test_without_an_authorizer_nothing_is_asked(broker: Broker) -> None:
    """There are no rights, so none is missing."""
    broker.is_away = True
    found = await access_to(broker).find(["orders"], authorizer=False)
    assert (found.missing, found.open, broker.connections) == ((), [NO_AUTHORIZER], {})


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
