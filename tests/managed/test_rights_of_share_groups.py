"""Share groups on managed topics where brokers have ACLs: nobody is given what a broker would not give him."""

# pyright: reportPrivateImportUsage=false
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType

from kordon.codecs.error_codes import Code
from kordon.testing.broker_features import SHARE_GROUPS
from kordon.testing.managed_clients import create_managed
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.rights import Allowed, Secured, kordon_by_plain, log_in, login
from kordon.testing.share_member import ACCEPT, ShareMember, configure_group, errors

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(180),
    pytest.mark.skipif(SHARE_GROUPS.is_missing, reason=SHARE_GROUPS.reason),
]

TOPIC, GROUP = "shared-guarded", "shared-guarded-group"


@pytest.fixture(scope="module")
def proxy(strict_cluster: Secured) -> Iterator[ProxyProcess]:
    """One that serves share groups; alice may Read topic and group, mallory the group only, carol the topic only."""
    found = strict_cluster
    read, group = AclOperation.READ, ResourceType.GROUP
    found.allow(
        Allowed("kordon", AclOperation.ALL, TOPIC),
        *(Allowed(user, read, TOPIC) for user in ("alice", "carol")),
        *(Allowed(user, read, GROUP, group) for user in ("alice", "mallory")),
    )
    # These are taken back: a test of the same cluster looks which rights Kordon lacks.
    of_all_groups = [
        Allowed("kordon", each, "*", group) for each in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    ]
    with (
        found.allowed(*of_all_groups),
        kordon_by_plain(found.cluster, ordering={"share_groups": True}) as started,
    ):
        create_managed(started.bootstrap, TOPIC, login("admin"))
        producer = Producer({"bootstrap.servers": started.bootstrap, **login("admin")})
        producer.produce(TOPIC, b"value", b"key", 3)
        assert producer.flush(60) == 0
        with member(started, "admin") as admin:
            configure_group(admin.connection, GROUP, {"share.auto.offset.reset": "earliest"})
        yield started


@contextmanager
def member(proxy: ProxyProcess, user: str | None) -> Iterator[ShareMember]:
    """A member, as a user or as nobody who has logged in."""
    with ShareMember(proxy.bootstrap, GROUP) as made:
        if user is not None:
            log_in(made.connection, user)
        yield made


def test_each_gets_what_his_rights_are_for(proxy: ProxyProcess) -> None:
    """Who may Read one of the two is refused the other; who has not logged in is not answered, and costs nothing."""
    with member(proxy, "alice") as alice, member(proxy, "mallory") as mallory, member(proxy, "carol") as carol:
        [topic_id] = alice.join(TOPIC)
        before = proxy.metric("kordon_share_groups_records_total", kind="written")
        assert carol.fetch({topic_id: [3]}).error_code == Code.GROUP_AUTHORIZATION_FAILED
        assert errors(mallory.fetch({topic_id: [3]})) == [(Code.TOPIC_AUTHORIZATION_FAILED, 0)]
        with member(proxy, None) as nobody, pytest.raises((EOFError, ConnectionError)):
            nobody.fetch({topic_id: [3]})
        assert proxy.metric("kordon_share_groups_records_total", kind="written") == before
        [had] = alice.take(named={topic_id: [3]})
        denied = Code.TOPIC_AUTHORIZATION_FAILED
        assert errors(mallory.fetch(said=[(had, ACCEPT)])) == [(denied, denied)]
        assert errors(alice.fetch(said=[(had, ACCEPT)], max_records=0)) == [(0, 0)]
