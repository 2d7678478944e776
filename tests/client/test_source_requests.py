"""What a source producer asks of coordinators, with coordinators that answer from a list."""

import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiokafka.errors import (
    CommitFailedError,
    GroupLoadInProgressError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    NotCoordinatorForGroupError,
    OffsetMetadataTooLargeError,
    ProducerFenced,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from kordon.client import SourcePointError
from kordon.client.requests import WireRequest
from kordon.client.sources.member_producer import _MemberOffsets
from kordon.client.sources.store import PointStore, SourceMember
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import response
from kordon.codecs.source_points import Point, build

# pyright: reportPrivateUsage=false

OWNER = "a" * 32
MEMBER = SourceMember("me", 4)
HEARTBEAT = 12


class Link:
    """A coordinator that gives prepared answers."""

    def __init__(self) -> None:
        self.asked: list[WireRequest] = []
        self.answers: list[Any] = []
        self.moved = 0

    async def ask(self, request: WireRequest) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        version = request.versions[-1]
        table = response(request.api_key)
        return table.parse(version, table.build(version, answer))

    def look_again(self) -> None:
        self.moved += 1


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def client() -> Any:
    return SimpleNamespace(coordinator_lookup=AsyncMock(return_value=7), ready=AsyncMock(), send=AsyncMock())


@pytest.fixture
def store(link: Link, client: Any) -> PointStore:
    return PointStore("g", "s", link, client)


def fetched(*rows: tuple[int, int, str, int]) -> dict[str, Any]:
    names = ("partition_index", "committed_offset", "metadata", "error_code")
    return {"topics": [{"name": "s", "partitions": [dict(zip(names, row, strict=True)) for row in rows]}]}


def written(*codes: int) -> dict[str, Any]:
    rows = [{"partition_index": at, "error_code": code} for at, code in enumerate(codes)]
    return {"topics": [{"name": "s", "partitions": rows}]}


async def test_points_are_read_settled_or_not(link: Link, store: PointStore) -> None:
    """Those that an open transaction may change are told by None (SETTLED-POINT)."""
    point = Point(7, "x", OWNER, 5)
    link.answers += [fetched((0, 0, build(point), 0), (1, -1, "", 0)), fetched((0, -1, "", 88), (1, -1, "", 0))]
    assert await store.read([0, 1], settled=False) == {0: point}
    assert await store.read([0, 1], settled=True) is None
    assert [each.body["require_stable"] for each in link.asked] == [False, True]
    assert [each.versions[0] for each in link.asked] == [7, 7], "earlier ones have no such field"


async def test_what_is_no_point_is_told_with_its_partition(link: Link, store: PointStore) -> None:
    """And with what to do; nobody begins anew for it."""
    link.answers += [fetched((0, 0, build(Point(7, "x")), 0), (1, 17, "", 0))]
    with pytest.raises(SourcePointError, match="--partition 1 --restart-at POINT") as error:
        await store.read([0, 1], settled=True)
    assert error.value.partition == 1


async def test_points_are_written_by_member_and_generation(link: Link, store: PointStore) -> None:
    """So that nobody else's are taken (NAMED-GENERATION), at offset 0 (OFFSET-ZERO)."""
    link.answers += [written(0)]
    await store.write({0: Point(7, "x", OWNER, 5)}, MEMBER)
    await store.write({}, MEMBER)
    (request,) = link.asked
    assert (request.body["generation_id_or_member_epoch"], request.body["member_id"]) == (4, "me")
    assert request.body["topics"] == [
        {
            "name": "s",
            "partitions": [
                {"partition_index": 0, "committed_offset": 0, "committed_metadata": f"ks1;7;5;{OWNER};x"},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.ILLEGAL_GENERATION, CommitFailedError),
        (Code.UNKNOWN_MEMBER_ID, CommitFailedError),
        (Code.COORDINATOR_LOAD_IN_PROGRESS, GroupLoadInProgressError),
        (Code.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailedError),
        (12, OffsetMetadataTooLargeError),
    ],
)
async def test_refusals_are_told(link: Link, store: PointStore, code: int, error: type[Exception]) -> None:
    """Those of the group as one error."""
    link.answers += [written(0, code)]
    with pytest.raises(error):
        await store.write({0: Point(1, "x"), 1: Point(1, "x")}, MEMBER)
    assert link.moved == 0


async def test_another_coordinator_is_looked_for(link: Link, store: PointStore) -> None:
    """When this one is none."""
    link.answers += [fetched((0, -1, "", Code.NOT_COORDINATOR))]
    with pytest.raises(NotCoordinatorForGroupError):
        await store.read([0], settled=True)
    assert link.moved == 1


async def test_brokers_that_are_too_old_are_named(link: Link, store: PointStore) -> None:
    """They would tell points that change, and take those of anybody."""
    link.answers += [IncompatibleBrokerVersion()]
    with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.5 or newer"):
        await store.read([0], settled=True)


@pytest.mark.parametrize("code", [Code.NONE, Code.REBALANCE_IN_PROGRESS])
async def test_a_member_is_confirmed(link: Link, store: PointStore, code: int) -> None:
    """Also while the next generation is being formed."""
    link.answers += [{"error_code": code}]
    await store.confirm(MEMBER)
    (request,) = link.asked
    assert request.api_key == HEARTBEAT
    assert request.body == {"group_id": "g", "generation_id": 4, "member_id": "me"}


async def test_whoever_is_none_is_not_confirmed(link: Link, store: PointStore) -> None:
    """The group has gone on without it (MEMBER-FENCES)."""
    link.answers += [{"error_code": Code.ILLEGAL_GENERATION}]
    with pytest.raises(CommitFailedError):
        await store.confirm(MEMBER)


async def test_fencing_waits_until_the_transaction_has_ended(client: Any, store: PointStore) -> None:
    """Its coordinator says so; until then it asks again (DEAD-FENCED)."""
    codes = [Code.CONCURRENT_TRANSACTIONS, Code.NOT_COORDINATOR, Code.NONE]
    client.send.side_effect = [KafkaConnectionError(), *(SimpleNamespace(error_code=code) for code in codes)]
    await store.fence({OWNER}, 60)
    assert client.send.await_count == 4
    request = client.send.await_args.args[1]
    assert request.body["transactional_id"] == f"g.{OWNER}"


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "allow Write on the transactional ids that begin with g."),
        (Code.INVALID_REQUEST, "INVALID_REQUEST|InvalidRequest"),
    ],
)
async def test_what_may_not_be_fenced_ends_by_itself(
    client: Any, store: PointStore, caplog: pytest.LogCaptureFixture, code: int, cure: str
) -> None:
    """It is told once what that costs, and what to do."""
    client.send.return_value = SimpleNamespace(error_code=code)
    with caplog.at_level(logging.WARNING):
        await store.fence({OWNER}, 60)
        await store.fence({OWNER}, 60)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert any(each in record.getMessage() for each in cure.split("|"))


async def test_fencing_has_its_time(client: Any, store: PointStore, caplog: pytest.LogCaptureFixture) -> None:
    """A coordinator that never answers holds up nobody."""
    client.send.return_value = SimpleNamespace(error_code=Code.CONCURRENT_TRANSACTIONS)
    await store.fence({OWNER, "b" * 32}, 0.12)
    assert caplog.text.count("look at the brokers") == 2


class Noted:
    """What a producer's transactions are told."""

    transactional_id = f"g.{OWNER}"
    producer_id = 70
    producer_epoch = 3
    is_second = False

    def __init__(self) -> None:
        self.done: list[int] = []
        self.error: BaseException | None = None

    def offset_committed(self, tp: TopicPartition, offset: int, group_id: str) -> None:
        assert (offset, group_id) == (0, "g")
        self.done.append(tp.partition)

    def error_transaction(self, error: BaseException) -> None:
        self.error = error


def offsets(*codes: int) -> tuple[Noted, Any, _MemberOffsets]:
    """A TxnOffsetCommit of so many partitions, and its answer."""
    transactions = Noted()
    sender: Any = SimpleNamespace(_txn_manager=transactions, _retry_backoff=0.1, _coordinator_dead=Mock())
    told = {TopicPartition("s", at): OffsetAndMetadata(0, f"m{at}") for at in range(len(codes))}
    table = response(28)
    return transactions, table.parse(3, table.build(3, written(*codes))), _MemberOffsets(sender, told, "g", MEMBER)


def test_a_transaction_commits_points_by_member_and_generation() -> None:
    """Without them anybody's would be taken (NAMED-GENERATION)."""
    transactions, answer, handler = offsets(0, 0)
    request = handler.create_request()
    assert request.versions == range(3, 5), "earlier ones have no such fields, and later ones add the group"
    transactions.is_second = True
    assert handler.create_request().versions == range(5, 6)
    assert (request.body["generation_id_or_member_epoch"], request.body["member_id"]) == (4, "me")
    assert [row["committed_metadata"] for row in request.body["topics"][0]["partitions"]] == ["m0", "m1"]
    assert handler.handle_response(answer) is None
    assert transactions.done == [0, 1]


@pytest.mark.parametrize(
    ("code", "error"),
    [(Code.ILLEGAL_GENERATION, CommitFailedError), (12, OffsetMetadataTooLargeError)],
)
def test_a_refused_point_lets_its_transaction_only_be_aborted(code: int, error: type[Exception]) -> None:
    """With the reason."""
    transactions, answer, handler = offsets(0, code)
    assert handler.handle_response(answer) is None
    assert isinstance(transactions.error, error)


def test_a_coordinator_that_is_not_ready_is_asked_again() -> None:
    """After a while."""
    _, answer, handler = offsets(Code.COORDINATOR_LOAD_IN_PROGRESS)
    assert handler.handle_response(answer) == 0.1


@pytest.mark.parametrize("code", [Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED])
def test_a_fenced_producer_is_over(code: int) -> None:
    """Whoever has its partitions has ended its transactions."""
    _, answer, handler = offsets(code)
    with pytest.raises(ProducerFenced):
        handler.handle_response(answer)
