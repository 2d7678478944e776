"""What is noted of what a client was told: layouts, identities, and that a request has no answer."""

import asyncio
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.codecs.messages import request, response
from kordon.proxy.core import verdicts
from kordon.proxy.core.interception import Answering, Decision, Serve, Translate
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.handlers.alter_partition_reassignments import AlterPartitionReassignments
from kordon.proxy.handlers.alter_replica_log_dirs import AlterReplicaLogDirs
from kordon.proxy.handlers.api_versions import ApiVersions
from kordon.proxy.handlers.guard import Guard
from kordon.proxy.handlers.metadata import DialectMetadata, Metadata
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.handled import guard_of
from kordon.testing.known import known
from kordon.testing.messages.as_read import as_read
from kordon.testing.noted import Noted

NOTHING = cast("Any", None)
LAYOUT = Layout.created("orders", UUID(int=1), 2, 8)
METADATA_VERSION, INIT_VERSION = 9, 4
MOVING = (AlterPartitionReassignments(), AlterReplicaLogDirs())


class SlowMetadata(Metadata):
    """Translates answers later than they come."""

    def takes_time(self, topics: ManagedTopics) -> bool:
        """Each of them."""
        return True


class SlowDialectMetadata(DialectMetadata):
    """Translates answers later than they come."""

    def takes_time(self, topics: ManagedTopics) -> bool:
        """Each of them."""
        return True


class Worker:
    """A worker that manages `orders`."""

    def __init__(self, *, completes: bool = False, records: bool = True) -> None:
        self.noted = Noted()
        self.journal = self.noted.journal if records else NoJournal()
        self.topics = ManagedTopics()
        self.topic = ManagedTopic(LAYOUT, UUID(int=2), layouts_offset=3)
        self.topics.add(self.topic)
        self.completes = completes

    def connects(self) -> Guard:
        """Returns what serves one more client."""
        guard = guard_of(
            self.topics,
            [ApiVersions(offers_dialect=True), SlowMetadata() if self.completes else Metadata(), *MOVING],
            [SlowDialectMetadata() if self.completes else DialectMetadata()],
            journal=self.journal,
        )
        guard.hear("shop")
        return guard


def decided(guard: Guard, key: int, version: int, **fields: Any) -> Decision:
    route = known(verdicts.route(key, version))
    return guard.decide(route, memoryview(request(key).build(version, fields)))


def back_of(decision: Decision) -> Callable[[Any], None]:
    """Returns what is given the broker's answer."""
    match decision:
        case Translate(_, back):
            return back
        case Serve(answer):
            return lambda value: asyncio.run(_answered(answer, value))
        case _:
            raise AssertionError(decision)


async def _answered(answer: Answering, value: Any) -> None:
    part: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    part.set_result(value)
    await answer(part)


def asks(guard: Guard, *names: str) -> Any:
    """Asks for Metadata; returns the rows that the client is answered, by topic."""
    back = back_of(decided(guard, apis.METADATA, METADATA_VERSION, topics=[{"name": name} for name in names]))
    rows = [{"name": name, "error_code": 3 if name == "absent" else 0, "partitions": physical()} for name in names]
    answer = {"brokers": [], "cluster_id": "c", "controller_id": 1, "topics": rows}
    value = as_read(response(apis.METADATA), METADATA_VERSION, answer)
    back(value)
    return {row["name"]: row for row in value.topics}


def physical() -> list[dict[str, Any]]:
    """The rows of physical partitions as a broker tells of them."""
    fields: dict[str, Any] = {"error_code": 0, "leader_id": 1, "leader_epoch": 0}
    lists: dict[str, Any] = {"replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}
    return [{**fields, **lists, "partition_index": q} for q in range(3)]


def told(worker: Worker) -> list[tuple[int | None, int | None, int | None]]:
    """Returns connection, layout epoch and layouts offset of the redirects that were noted."""
    return [(each.connection, each.layout_epoch, each.layouts_offset) for each in worker.noted.of(Kind.REDIRECT)]


@pytest.mark.parametrize("completes", [False, True])
def test_a_layout_is_told_once_on_each_connection(completes: bool) -> None:
    """Clients ask for Metadata all the time; what counts is when each has heard of a layout first."""
    worker = Worker(completes=completes)
    one, other = worker.connects(), worker.connects()
    for _ in range(3):
        assert len(asks(one, "orders")["orders"]["partitions"]) == 8
    asks(other, "orders")
    assert told(worker) == [(1, 0, 3), (2, 0, 3)]
    worker.topic.adopt(LAYOUT.changed(LAYOUT.next_epoch(3), {0: 5, 2: 0}), {}, 7)
    for _ in range(3):
        asks(one, "orders")
    assert told(worker) == [(1, 0, 3), (2, 0, 3), (1, 1, 7)]
    first, _, last = worker.noted.of(Kind.REDIRECT)
    assert first.client_id == "shop"
    assert first.evidence == {"undeleted_partition_count": 2, "told": 8, "known_epoch": None}
    assert last.evidence == {"undeleted_partition_count": 3, "told": 8, "known_epoch": 0}


def test_a_client_of_the_dialect_is_told_of_physical_partitions() -> None:
    """It hears how many there are, and so does the record."""
    worker = Worker(completes=True)
    guard = worker.connects()
    fields = {"client_software_name": "a", "client_software_version": "1", "kordon_client": 1}
    decided(guard, apis.API_VERSIONS, 3, **fields)
    row = asks(guard, "orders")["orders"]
    (redirect,) = worker.noted.of(Kind.REDIRECT)
    assert redirect.evidence["told"] == len(row["partitions"]) == 2


def test_answers_that_tell_no_layout_are_not_noted() -> None:
    """Errors are none, and neither are ordinary topics."""
    worker = Worker()
    guard = worker.connects()
    worker.topics.add(ManagedTopic(Layout.created("absent", UUID(int=5), 2, 8), UUID(int=6)))
    asks(guard, "ordinary", "absent")
    assert worker.noted.kinds == []


def test_a_topic_that_is_not_shown_yet_is_a_refusal_that_is_noted_once() -> None:
    """Clients ask again and again while it is taken over (TAKEOVER-WAITS)."""
    worker = Worker()
    worker.topics.add(ManagedTopic(Layout.unmanaged("coming", UUID(int=5), 2, 8), UUID(int=6), layouts_offset=4))
    guard = worker.connects()
    for _ in range(3):
        asks(guard, "coming")
    worker.noted.journal.end_runs()
    (refuse,) = worker.noted.of()
    assert (refuse.api_key, refuse.topic, refuse.reason) == (apis.METADATA, "coming", "LEADER_NOT_AVAILABLE")
    assert (refuse.rule, refuse.layouts_offset, refuse.batches) == ("TAKEOVER-WAITS", 4, 3)


def test_partitions_of_managed_topics_are_not_moved_and_that_is_noted() -> None:
    """The broker is asked about the others, whose errors are its own."""
    worker = Worker()
    guard = worker.connects()
    rows = [{"name": name, "partitions": [{"partition_index": 1, "replicas": [1]}]} for name in ("orders", "others")]
    decision = decided(guard, apis.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=1, topics=rows)
    failed = [{"name": "others", "partitions": [{"partition_index": 1, "error_code": 42}]}]
    back_of(decision)(as_read(response(apis.ALTER_PARTITION_REASSIGNMENTS), 0, {"error_code": 0, "responses": failed}))
    worker.noted.journal.end_runs()
    (refuse,) = worker.noted.of()
    assert (refuse.topic, refuse.stream, refuse.reason, refuse.layout_epoch) == ("orders", 1, "INVALID_REQUEST", 0)


def test_what_the_broker_has_against_a_move_is_not_on_record_as_kordons() -> None:
    """Nor is it told there what is managed."""
    worker = Worker()
    guard = worker.connects()
    rows = [{"name": "orders", "partitions": [{"partition_index": 1, "replicas": [1]}]}]
    decision = decided(guard, apis.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=1, topics=rows)
    back_of(decision)(as_read(response(apis.ALTER_PARTITION_REASSIGNMENTS), 0, {"error_code": 31, "responses": []}))
    worker.noted.journal.end_runs()
    assert worker.noted.of() == []


INIT: dict[str, Any] = {"transaction_timeout_ms": 1000, "producer_id": 9, "producer_epoch": 2}


@pytest.mark.parametrize("code", [0, 47])
def test_what_a_transactional_producer_asked_and_was_answered_is_noted(code: int) -> None:
    """Errors too; of requests of before KIP-360 that they gave nothing."""
    worker = Worker()
    guard = worker.connects()
    for version, given in ((INIT_VERSION, [9, 2]), (2, [-1, -1])):
        fields = INIT if version > 2 else {"transaction_timeout_ms": 1000}
        decision = decided(guard, apis.INIT_PRODUCER_ID, version, transactional_id="t", **fields)
        assert isinstance(decision, Translate)
        assert decision.body is None
        answer = {"throttle_time_ms": 0, "error_code": code, "producer_id": 9, "producer_epoch": 3}
        message = response(apis.INIT_PRODUCER_ID)
        built = message.build(version, answer)
        value = message.parse(version, built)
        decision.back(value)
        assert message.build(version, value) == built
        noted = worker.noted.of(Kind.ADMIT)[-1]
        assert (noted.api_key, noted.connection, noted.client_id) == (22, 1, "shop")
        assert noted.evidence == {"transactional_id": "t", "given": given, "answered": [9, 3], "error": code}


def test_answers_to_two_producers_with_one_id_that_cross_are_noted_so() -> None:
    """In which order brokers gave them is unknown. Answers for other ids, and from before the request, do not count."""
    worker = Worker()
    message = response(apis.INIT_PRODUCER_ID)

    def asks(name: str) -> Callable[[int], None]:
        decision = decided(worker.connects(), apis.INIT_PRODUCER_ID, INIT_VERSION, transactional_id=name, **INIT)
        assert isinstance(decision, Translate)
        fields = {"throttle_time_ms": 0, "error_code": 0, "producer_id": 9}
        return lambda epoch: decision.back(as_read(message, INIT_VERSION, {**fields, "producer_epoch": epoch}))

    first, second, other = asks("t"), asks("t"), asks("u")
    second(5)
    other(0)
    first(4)
    asks("t")(6)
    noted = [each.evidence for each in worker.noted.of(Kind.ADMIT)]
    assert [(each["transactional_id"], each.get("crossed")) for each in noted] == [
        ("t", None),
        ("u", None),
        ("t", True),
        ("t", None),
    ]


def test_what_cannot_be_noted_of_a_producer_is_let_pass() -> None:
    """One without a transactional id gets a fresh identity each time; a broken request is the broker's to refuse."""
    worker = Worker()
    guard = worker.connects()
    assert decided(guard, apis.INIT_PRODUCER_ID, INIT_VERSION, transactional_id=None, **INIT) is None
    route = known(verdicts.route(apis.INIT_PRODUCER_ID, INIT_VERSION))
    assert guard.decide(route, memoryview(b"\x7f")) is None


@pytest.mark.parametrize("records", [False, True])
def test_producers_are_looked_at_only_where_decisions_are_recorded(records: bool) -> None:
    """Else their requests stream through, unread."""
    route = known(verdicts.route(apis.INIT_PRODUCER_ID, INIT_VERSION))
    assert Worker(records=records).connects().wants(route) is records


def test_a_request_that_no_row_is_for_is_noted() -> None:
    """The same again and again is one record."""
    worker = Worker()
    guard = worker.connects()
    for _ in range(3):
        guard.refused(9999, 1, "UNSUPPORTED_VERSION", ends=True)
    worker.noted.journal.end_runs()
    (refuse,) = worker.noted.of(Kind.REFUSE)
    assert (refuse.api_key, refuse.reason, refuse.batches) == (9999, "UNSUPPORTED_VERSION", 3)
    assert refuse.evidence == {"api_version": 1, "ends_connection": True}
