"""Share groups on managed topics (KIP-932): each key in order and in one hand, whichever proxy a member asks."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from kordon.codecs.error_codes import Code
from kordon.testing.broker_features import SHARE_GROUPS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, create_ordinary, resize
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.share_member import ACCEPT, REJECT, RELEASE, RENEW, Got, ShareMember, configure_group, errors, given
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(SHARE_GROUPS.is_missing, reason=SHARE_GROUPS.reason),
]

PATIENCE = 60
SERVES = {"ordering": {"share_groups": True}}


@pytest.fixture(scope="module")
def proxies(open_cluster: Cluster) -> Iterator[list[ProxyProcess]]:
    """Two proxies that serve share groups, of the module's own."""
    bootstrap = open_cluster.bootstrap()
    with ProxyProcess.start(bootstrap, config=SERVES) as one, ProxyProcess.start(bootstrap, config=SERVES) as two:
        yield [one, two]


def new_group(proxy: ProxyProcess, **configs: str) -> str:
    """Returns the name of a group that begins at the earliest record."""
    name = f"sharers-{uuid4().hex[:8]}"
    values = {"share.auto.offset.reset": "earliest", **configs}
    with PlainConnection(proxy.bootstrap) as connection:
        configure_group(connection, name, values)
    return name


def write(proxy: ProxyProcess, topic: str, *records: tuple[str, str], partition: int = 3) -> None:
    """Writes keys and values to one virtual partition, all in one batch."""
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "linger.ms": 100})
    for key, value in records:
        producer.produce(topic, value, key or None, partition)
    assert producer.flush(PATIENCE) == 0


def values(records: list[Got]) -> list[str]:
    return [each.value.decode() for each in records]


def test_a_keys_next_record_is_given_when_the_one_before_is_done(proxies: list[ProxyProcess]) -> None:
    """Also to another member, by another proxy; other keys, and records without a key, wait for nothing."""
    one, two = proxies
    create_managed(one.bootstrap, "share-order")
    write(one, "share-order", ("a", "a1"), ("a", "a2"), ("b", "b1"), ("", "n1"), ("", "n2"), ("b", "b2"), ("a", "a3"))
    group = new_group(one)
    with ShareMember(one.bootstrap, group) as first, ShareMember(two.bootstrap, group) as second:
        [topic_id] = first.join("share-order")
        second.join("share-order")
        had = first.take(least=4, named={topic_id: [3]})
        assert values(had) == ["a1", "b1", "n1", "n2"]
        assert given(second.fetch({topic_id: [3]})) == []
        told = first.acknowledge([(had[0], ACCEPT), (had[2], ACCEPT)])
        assert [row.error_code for topic in told.responses for row in topic.partitions] == [0]
        [next_] = second.take()
        assert (next_.value, next_.tries) == (b"a2", 1)
        assert errors(first.fetch(said=[(had[1], REJECT), (had[3], ACCEPT)], max_records=0)) == [(0, 0)]
        assert values(second.take([(next_, ACCEPT)], least=2)) == ["b2", "a3"]


def test_what_is_released_comes_again_first_and_counts(proxies: list[ProxyProcess]) -> None:
    """A member that was given a record twice is told so; it may renew it; nobody else may say anything of it."""
    one, two = proxies
    create_managed(one.bootstrap, "share-released")
    write(one, "share-released", ("a", "a1"), ("a", "a2"))
    group = new_group(one)
    with ShareMember(one.bootstrap, group) as first, ShareMember(two.bootstrap, group) as second:
        [topic_id] = first.join("share-released")
        [had] = first.take(named={topic_id: [3]})
        assert given(second.fetch({topic_id: [3]})) == []
        assert errors(second.fetch(said=[(had, ACCEPT)])) == [(0, Code.INVALID_RECORD_STATE)]
        told = first.acknowledge([(had, RENEW)], is_renew_ack=True)
        assert [row.error_code for topic in told.responses for row in topic.partitions] == [0]
        first.fetch(said=[(had, RELEASE)], max_records=0)
        [again] = second.take()
        assert (again.value, again.tries) == (b"a1", 2)
        assert values(second.take([(again, ACCEPT)])) == ["a2"]


def test_the_end_of_a_members_connection_gives_back_what_it_has(proxies: list[ProxyProcess]) -> None:
    """At once, as brokers do it, and so does the end of its session."""
    one, two = proxies
    create_managed(one.bootstrap, "share-ends")
    write(one, "share-ends", ("a", "a1"))
    group = new_group(one)
    with ShareMember(two.bootstrap, group) as second:
        with ShareMember(one.bootstrap, group) as first:
            [topic_id] = first.join("share-ends")
            second.join("share-ends")
            assert values(first.take(named={topic_id: [3]})) == ["a1"]
            assert given(second.fetch({topic_id: [3]})) == []
        [had] = second.take()
        assert (had.value, had.tries) == (b"a1", 2)
        second.acknowledge([], is_last=True)
        with ShareMember(one.bootstrap, group) as third:
            assert given(third.fetch({topic_id: [3]})) in ([], [had._replace(tries=3)])
            wait_until("it is given again", lambda: _has(third), PATIENCE)


def _has(member: ShareMember) -> bool:
    return bool(given(member.fetch()))


def test_forged_requests_are_refused_as_brokers_do(proxies: list[ProxyProcess]) -> None:
    """Sessions of others, groups and partitions that are not there, first requests that acknowledge something."""
    one, two = proxies
    create_managed(one.bootstrap, "share-forged")
    write(one, "share-forged", ("a", "a1"))
    group = new_group(one)
    with ShareMember(one.bootstrap, group) as first, ShareMember(two.bootstrap, group) as forger:
        [topic_id] = first.join("share-forged")
        [had] = first.take(named={topic_id: [3]})
        forger.id, forger.epoch = first.id, first.epoch
        assert forger.fetch(said=[(had, ACCEPT)]).error_code == Code.SHARE_SESSION_NOT_FOUND
        assert first.fetch().error_code == Code.SHARE_SESSION_NOT_FOUND  # its broker's session was ended by that
        forger.id, forger.epoch = str(uuid4()), 0
        assert forger.fetch(said=[(had, ACCEPT)]).error_code == Code.INVALID_REQUEST
        forger.id = ""
        assert forger.fetch({topic_id: [3]}).error_code == Code.INVALID_REQUEST
        forger.id = str(uuid4())
        assert errors(forger.fetch({topic_id: [3, 99, -1]})) in ([], [(Code.UNKNOWN_TOPIC_OR_PARTITION, 0)] * 2)
    with ShareMember(one.bootstrap, "no-such-group") as nobody:
        assert errors(nobody.fetch({topic_id: [3]})) == [(Code.UNKNOWN_SERVER_ERROR, 0)]


def test_tools_see_and_change_where_a_group_stands(proxies: list[ProxyProcess]) -> None:
    """A reset, the deletion of offsets and that of the group hold in the log of all proxies."""
    one, two = proxies
    create_managed(one.bootstrap, "share-told")
    write(one, "share-told", ("a", "a1"), ("a", "a2"))
    group = new_group(one)

    def stands(proxy: ProxyProcess) -> tuple[int, int] | None:
        with PlainConnection(proxy.bootstrap) as connection:
            told = connection.ask(90, 1, {"groups": [{"group_id": group, "topics": None}]}).groups[0]
        rows = {(topic.topic_name, row.partition_index): row for topic in told.topics for row in topic.partitions}
        row = rows.get(("share-told", 3))
        return None if row is None else (row.start_offset, row.lag)

    with ShareMember(one.bootstrap, group) as member:
        [topic_id] = member.join("share-told")
        [had] = member.take(named={topic_id: [3]})
        assert errors(member.fetch(said=[(had, ACCEPT)], max_records=0)) == [(0, 0)]
        assert [stands(each) for each in proxies] == [(1, 1), (1, 1)]
        member.leave()
    fields: dict[str, Any] = {"group_id": group}
    with PlainConnection(two.bootstrap) as connection:
        rows = [{"topic_name": "share-told", "partitions": [{"partition_index": 3, "start_offset": 0}]}]
        told = connection.ask(91, 0, {**fields, "topics": rows})
        assert [(t.topic_name, row.error_code) for t in told.responses for row in t.partitions] == [("share-told", 0)]
        assert stands(one) == (0, 2)
        told = connection.ask(92, 0, {**fields, "topics": [{"topic_name": "share-told"}]})
        assert [(row.topic_name, row.error_code) for row in told.responses] == [("share-told", 0)]
        assert stands(one) is None
        assert connection.ask(42, 2, {"groups_names": [group]}).results[0].error_code == 0
    with ShareMember(two.bootstrap, group) as member:
        member.join("share-told")
        [again] = member.take(named={topic_id: [3]})
        assert (again.value, again.tries) == (b"a1", 1)


def test_a_session_may_name_managed_topics_and_others(proxies: list[ProxyProcess]) -> None:
    """While the managed one grows: the broker gives the others' records, and locks stay what they were."""
    one, _ = proxies
    admin = create_managed(one.bootstrap, "mixed-managed")
    create_ordinary(one.bootstrap, "mixed-open", 1)
    write(one, "mixed-managed", ("a", "a1"), ("a", "a2"))
    write(one, "mixed-open", ("a", "o1"), ("a", "o2"), partition=0)
    group = new_group(one)
    with ShareMember(one.bootstrap, group) as member:
        assigned = member.join("mixed-managed", "mixed-open", count=2)
        member.fetch({each: [3] if len(those) > 1 else [0] for each, those in assigned.items()}, max_records=0)
        had = {each.value: each for each in member.take(least=3)}
        assert had.keys() == {b"a1", b"o1", b"o2"}
        resize(admin, "mixed-managed", 5).result(CHANGE_SECONDS)
        more = member.take([(each, ACCEPT) for each in had.values()])
        assert values(more) == ["a2"]
