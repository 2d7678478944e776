"""Members that subscribe by a regular expression get the topics that they would get if none were managed."""

import time
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.apis import CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT
from kordon.codecs.bodies import ConsumerGroupDescribeRequest
from kordon.codecs.messages import request, response
from kordon.proxy.handlers.consumer_group_describe import ConsumerGroupDescribe
from kordon.proxy.handlers.regexes import expand
from kordon.proxy.handlers.subscriptions import Subscriptions
from kordon.proxy.kafka.expressions import matches, may_match
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import OWN_PREFIX, ManagedTopic, ManagedTopics
from kordon.testing.cluster import Cluster
from kordon.testing.known import known
from kordon.testing.managed_clients import create_managed
from kordon.testing.messages.as_read import as_read
from kordon.testing.proxy_process import ProxyProcess

COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, INVALID_REGULAR_EXPRESSION = 14, 42, 128
NAMES = frozenset({"orders", "orders.eu", "other", "__kordon.orders", "__kordon.layouts", "__consumer_offsets"})


class Member:
    """A member of a group behind a proxy that manages `orders` at first."""

    def __init__(self) -> None:
        self.names: frozenset[str] | None = NAMES
        self.topics = ManagedTopics()
        self.manage("orders", 1)
        self.subscriptions = Subscriptions(lambda: self.names)

    def manage(self, topic: str, number: int) -> None:
        layout = Layout.created(topic, UUID(int=number), 1, 4)
        self.topics.add(ManagedTopic(layout, UUID(int=100 + number)))

    def sends(self, regex: str | None, epoch: int = 3) -> str | None:
        """Sends a heartbeat; returns the expression that the broker gets."""
        value = self._heartbeat(regex, epoch)
        reply = self.subscriptions.look(value, self.topics)
        if reply is not None:
            reply(self._answer(0))
        sent: str | None = value.subscribed_topic_regex
        return sent and self._expansion(sent)

    def refused(self, regex: str | None) -> Any:
        """Sends a heartbeat; returns the error code of the answer that the proxy gives, None where it gives none."""
        answer = self._answer(INVALID_REQUEST)
        reply = self.subscriptions.look(self._heartbeat(regex, 0), self.topics)
        if reply is not None:
            reply(answer)
        return None if answer.error_code == INVALID_REQUEST else answer.error_code

    @staticmethod
    def _answer(code: int) -> Any:
        return as_read(response(CONSUMER_GROUP_HEARTBEAT), 1, {"error_code": code, "member_id": "m"})

    @staticmethod
    def _expansion(sent: str) -> str:
        """Returns what an expression matches, without the client's own behind it, which matches nothing."""
        names, begin, _ = sent.partition("/(?:")
        return (names.removesuffix("|") or "/") if begin else sent

    def _heartbeat(self, regex: str | None, epoch: int) -> Any:
        fields = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "subscribed_topic_regex": regex}
        return as_read(request(CONSUMER_GROUP_HEARTBEAT), 1, fields)


def test_an_expression_is_expanded_to_what_the_client_would_match() -> None:
    """Faces stand for managed topics; what is Kordon's own is never among them."""
    assert Member().sends("ord.*") == r"__kordon\.orders|orders\.eu"
    assert Member().sends(".*") == r"__consumer_offsets|__kordon\.orders|orders\.eu|other"
    assert Member().sends("__kordon.*") == "/"


def test_who_describes_a_group_sees_the_members_own_words() -> None:
    """The names that an expression matches are not for everybody who may describe the group."""
    expanded = known(expand("ord.*|(?i:X)", NAMES, frozenset({"orders"})))
    member = {"member_id": "m", "assignment": {}, "target_assignment": {}}
    groups = [
        {"group_id": "g", "members": [{**member, "subscribed_topic_regex": each} for each in (expanded, "a/(?:b)")]}
    ]
    answer = as_read(response(CONSUMER_GROUP_DESCRIBE), 0, {"groups": groups})
    ConsumerGroupDescribe().response(0, answer, Member().topics, ConsumerGroupDescribeRequest())
    assert [each.subscribed_topic_regex for each in answer.groups[0].members] == ["ord.*|(?i:X)", "a/(?:b)"]


def test_expressions_that_concern_nothing_managed_pass() -> None:
    """The broker matches them itself, and broken ones it refuses."""
    for regex in ("other.*", "ord", "(", ""):
        assert Member().sends(regex) == regex
        assert Member().refused(regex) is None


def test_later_heartbeats_bring_what_has_changed() -> None:
    """They do not repeat the expression; the broker gets another one only when it must."""
    member = Member()
    member.sends("ord.*", epoch=0)
    assert member.sends(None) is None
    member.names = NAMES | {"orders.us"}
    assert member.sends(None) == r"__kordon\.orders|orders\.eu|orders\.us"
    member.manage("orders.eu", 2)
    assert member.sends(None) == r"__kordon\.orders|__kordon\.orders\.eu|orders\.us"
    assert member.sends(None) is None
    member.topics.remove("orders")
    member.topics.remove("orders.eu")
    assert member.sends(None) == "ord.*"


def test_members_that_leave_or_subscribe_otherwise_are_forgotten() -> None:
    """A member that comes back joins with its expression."""
    for epoch, regex in ((-1, None), (3, "")):
        member = Member()
        member.sends("ord.*", epoch=0)
        member.sends(regex, epoch=epoch)
        member.names = NAMES | {"orders.us"}
        assert member.sends(None) is None


def test_a_member_comes_again_when_the_names_are_known() -> None:
    """Clients retry upon that code; members without a need for names are not bothered."""
    member = Member()
    member.names = None
    assert member.refused("ord.*") == COORDINATOR_LOAD_IN_PROGRESS
    assert member.refused("other.*") is None
    assert member.refused(None) is None


def test_an_expression_with_too_many_names_is_refused_with_the_reason() -> None:
    """What would not fit into a request must not break the connection."""
    member = Member()
    member.names = frozenset(f"ord{'x' * 200}{number}" for number in range(200))
    assert member.refused("ord.*") == INVALID_REGULAR_EXPRESSION


@given(st.sets(st.text("ab.-_", min_size=1, max_size=5)), st.sets(st.text("ab.-_", min_size=1, max_size=5)))
def test_the_expansion_matches_those_names_and_no_others(others: set[str], managed: set[str]) -> None:
    """Judged by matching again: a dot in a name is a dot."""
    names = frozenset(others | managed)
    expanded = known(expand("a.*|b", names, frozenset(managed)))
    for name in names:
        wanted = name.startswith("a") or name == "b"
        assert matches(expanded, name) == (wanted and name not in managed)
        assert matches(expanded, f"__kordon.{name}") == (wanted and name in managed)


def test_no_expression_takes_long() -> None:
    """One that keeps backtracking engines busy for years must not stop a worker."""
    began = time.process_time()
    assert not matches("(a*)*b", "a" * 249)
    assert time.process_time() - began < 1


SLOW = "((.{0,30}){0,30}){0,1}" * 3
"""Takes 7 ms for a name of 240 letters: too many states for an automaton."""


def test_an_expression_that_takes_long_is_refused_with_the_reason() -> None:
    """All topics of a cluster would take minutes, in which nobody else is served."""
    member = Member()
    member.names = frozenset(f"{number:05d}{'a' * 240}" for number in range(10_000))
    began = time.thread_time()
    assert member.refused(SLOW) == INVALID_REGULAR_EXPRESSION
    assert time.thread_time() - began < 1


@pytest.mark.usefixtures("collector_at_rest")
def test_many_expressions_wait_for_each_other() -> None:
    """However many a client sends at once; who is told to come again does so."""
    member = Member()
    member.names = frozenset(f"{number:05d}{'a' * 240}" for number in range(10_000))
    began = time.thread_time()
    codes = {member.refused(f"{SLOW}{number}") for number in range(100)}
    assert codes == {INVALID_REGULAR_EXPRESSION, COORDINATOR_LOAD_IN_PROGRESS}
    assert time.thread_time() - began < 1


def test_an_expression_of_which_no_range_is_known_may_match_anything() -> None:
    """Of single bytes."""
    assert may_match(r"\C*", OWN_PREFIX)


@pytest.mark.parametrize("regex", [r"\pL{0,999}" * 30, "|".join(f".*{number:x}.*" for number in range(3000))])
def test_an_expression_that_is_too_large_is_refused_with_the_reason(regex: str) -> None:
    """A broker might take it as it is, and match what is managed by its own name."""
    assert Member().refused(regex) == INVALID_REGULAR_EXPRESSION


def read(consumer: Consumer, wanted: set[str]) -> set[str]:
    """Reads until records of so many topics have come; returns the topics."""
    found: set[str] = set()
    deadline = time.monotonic() + 90
    while not found >= wanted and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.add(str(message.topic()))
    return found


@pytest.mark.broker
def test_a_real_member_reads_managed_and_other_topics_also_later_ones(
    proxy: ProxyProcess, open_cluster: Cluster
) -> None:
    """With librdkafka, which has the broker match its expressions in KIP-848 groups."""
    if open_cluster.version.startswith("3."):
        pytest.skip("brokers match expressions since Kafka 4 (KIP-848)")
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    create_managed(proxy.bootstrap, "matched-managed")
    admin.create_topics([NewTopic("matched-plain", 2, 1)])["matched-plain"].result(60)
    producer = Producer({"bootstrap.servers": proxy.bootstrap})
    config = {"group.id": "matchers", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": proxy.bootstrap, "topic.metadata.refresh.interval.ms": 1000, **config})
    consumer.subscribe(["^matched-.*"])
    try:
        for topic in ("matched-managed", "matched-plain"):
            producer.produce(topic, b"value")
        producer.flush(90)
        assert read(consumer, {"matched-managed", "matched-plain"}) == {"matched-managed", "matched-plain"}
        create_managed(proxy.bootstrap, "matched-later")
        producer.produce("matched-later", b"value")
        producer.flush(90)
        assert read(consumer, {"matched-later"}) == {"matched-later"}
    finally:
        consumer.close()
