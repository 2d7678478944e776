"""ShareFetch and ShareAcknowledge between client and broker: sessions, what each of them is asked, who is refused."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.core.answers import body_of
from kordon.proxy.handlers.api_handler import HeldRequest
from kordon.proxy.handlers.share_acknowledge import ShareAcknowledge
from kordon.proxy.handlers.share_fetch import ShareFetch
from kordon.proxy.handlers.share_requests import ServedShare, ShareApi
from kordon.proxy.handlers.share_serving import ServedPartition, ShareLimits
from kordon.proxy.handlers.share_sessions import MOST_SESSIONS, ShareSession, VirtualPartition
from kordon.proxy.handlers.told_clients import ToldClient
from kordon.proxy.kafka.share_group_configs import ShareGroupConfig
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.share.acquiring import GivenRecord
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.handled import held
from kordon.testing.messages.as_read import as_read

FACE, OTHER, GONE = (UUID(int=number) for number in (2, 3, 4))
VERSION = 2
DATA = b"records"


class Serving:
    """Gives one record of each partition, and takes what is said; in place of ShareServing."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], ShareLimits]] = []
        self.said: list[tuple[int, list[tuple[int, int]], bool]] = []
        self.gave_back: list[str] = []
        self.problem: Code | None = None

    async def opened(self, session: ShareSession) -> Any:
        opened: Any = type("Opened", (), {"config": ShareGroupConfig()})()
        return opened if self.problem is None else self.problem

    async def acknowledge(
        self, session: ShareSession, group: Any, which: VirtualPartition, batches: Sequence[Any], *, may_renew: bool
    ) -> Code:
        self.said.append((which.number, [(each.first, each.last) for each in batches], may_renew))
        return Code.NONE if batches[0].first < 100 else Code.INVALID_RECORD_STATE

    async def give(
        self, session: ShareSession, group: Any, wanted: Iterable[VirtualPartition], limits: ShareLimits
    ) -> list[Any]:
        these = [*wanted]
        session.held.update(these)
        self.asked.append(([each.number for each in these], limits))
        nothing: Any = None
        rows = [ServedPartition(each, nothing, nothing, nothing) for each in these]
        for row in rows:
            row.records, row.given = [DATA], [GivenRecord(7, 1), GivenRecord(8, 1), GivenRecord(9, 2)]
        return rows

    def give_back(self, session: ShareSession) -> None:
        self.gave_back.append(session.member_id)


class Connection:
    """One client's, with a broker that has `refuses` against a request, or nothing."""

    def __init__(self) -> None:
        self.topics = ManagedTopics()
        self.topics.add(ManagedTopic(Layout.created("orders", UUID(int=1), 1, 4), FACE))
        self.serving: Any = Serving()
        self.told: ToldClient | None = None
        self.refuses = Code.NONE
        self.denied: Mapping[str, int] = {}
        self.passed: Any = None
        """What the broker was asked last; None: the request passed as it came."""

    def ask(self, api_key: int, epoch: int, *, member: str = "m", **fields: Any) -> Any:
        """Returns the answer to a request; None: it passes."""
        handler: ShareApi = (ShareFetch if api_key == apis.SHARE_FETCH else ShareAcknowledge)(self.serving)
        whole = {"group_id": "g", "member_id": member, "share_session_epoch": epoch, **fields}
        made = held(self.topics, api_key, VERSION, as_read(request(api_key), VERSION, whole))
        self.told = made.told = self.told or made.told
        return self._answered(handler, made)

    def _answered(self, handler: ShareApi, made: HeldRequest) -> Any:
        decision = handler.decide(made)
        if decision is None:
            self.passed = None
            return None
        assert isinstance(decision, ServedShare)
        self.passed = request(handler.key).parse(VERSION, decision.rest or b"")
        asked = decision.refuse(self.denied) if self.denied else decision
        broker = as_read(response(handler.key), VERSION, {"error_code": self.refuses})

        async def part() -> Any:
            return broker

        answer = asyncio.run(asked.answer(part()))
        return response(handler.key).parse(VERSION, body_of(answer))

    def fetch(self, epoch: int, *partitions: int, topic: UUID = FACE, **fields: Any) -> Any:
        """Sends a ShareFetch that names partitions."""
        rows = [{"partition_index": each, "acknowledgement_batches": []} for each in partitions]
        topics = fields.pop("topics", [{"topic_id": topic, "partitions": rows}] if rows else [])
        usual: dict[str, Any] = {"max_wait_ms": 500, "max_records": 9, "max_bytes": 99}
        return self.ask(apis.SHARE_FETCH, epoch, topics=topics, **usual | fields)


@pytest.fixture
def client() -> Connection:
    return Connection()


def said(partition: int, first: int, kind: int = 1, topic: UUID = FACE) -> list[dict[str, Any]]:
    """Returns the topics of a request that acknowledges one record."""
    batch = {"first_offset": first, "last_offset": first, "acknowledge_types": [kind]}
    return [{"topic_id": topic, "partitions": [{"partition_index": partition, "acknowledgement_batches": [batch]}]}]


def rows(answer: Any) -> list[Any]:
    return [row for topic in answer.responses for row in topic.partitions]


def test_a_session_names_its_partitions_until_they_are_forgotten(client: Connection) -> None:
    """The broker has the same session with what is not managed, and never waits."""
    answer = client.fetch(0, 1, 2)
    assert [(each.partition_index, each.records, each.error_code) for each in rows(answer)] == [
        (1, DATA, 0),
        (2, DATA, 0),
    ]
    acquired = rows(answer)[0].acquired_records
    assert [(each.first_offset, each.last_offset, each.delivery_count) for each in acquired] == [(7, 8, 1), (9, 9, 2)]
    assert (client.passed.topics, client.passed.max_wait_ms, client.passed.share_session_epoch) == ([], 0, 0)
    client.fetch(
        1, forgotten_topics_data=[{"topic_id": FACE, "partitions": [1]}, {"topic_id": OTHER, "partitions": [5]}]
    )
    assert [each.topic_id for each in client.passed.forgotten_topics_data] == [OTHER]
    assert client.serving.asked[-1] == ([2], ShareLimits(500, 9, 99))
    assert [row.partition_index for row in rows(client.fetch(2, 3))] == [2, 3]
    assert [row.partition_index for row in rows(client.fetch(3))] == [3, 2]


def test_what_a_member_says_goes_to_whom_it_concerns(client: Connection) -> None:
    """A record that is not the member's is refused by itself; with an answer to give nothing is waited for."""
    client.fetch(0, 1)
    mixed = [*said(1, 7), *said(1, 7, topic=OTHER)]
    [row] = rows(client.fetch(1, topics=mixed))
    assert (row.acknowledge_error_code, row.records) == (0, DATA)
    assert [each.topic_id for each in client.passed.topics] == [OTHER]
    assert client.serving.asked[-1][1].max_wait_ms == 0
    answer = client.ask(apis.SHARE_ACKNOWLEDGE, 2, topics=said(1, 100, 4), is_renew_ack=True)
    assert [row.error_code for row in rows(answer)] == [Code.INVALID_RECORD_STATE]
    assert client.serving.said == [(1, [(7, 7)], False), (1, [(100, 100)], True)]


def test_who_renews_is_given_nothing(client: Connection) -> None:
    """A request that renews says nothing of what it wants."""
    client.fetch(0, 1)
    asked = len(client.serving.asked)
    [row] = rows(client.fetch(1, topics=said(1, 7, 4), is_renew_ack=True))
    assert (row.acknowledge_error_code, row.records, len(client.serving.asked)) == (0, b"", asked)


def test_a_session_that_was_not_begun_here_is_not_known(client: Connection) -> None:
    """Whatever the broker knows of it: that is to end as well, so that the client begins anew at both."""
    answer = client.fetch(3, topics=said(1, 7))
    assert (answer.error_code, client.passed.share_session_epoch) == (Code.SHARE_SESSION_NOT_FOUND, -1)
    client.refuses = Code.GROUP_AUTHORIZATION_FAILED
    assert client.fetch(3, 1).error_code == Code.GROUP_AUTHORIZATION_FAILED
    assert client.serving.said == client.serving.asked == []


def test_the_first_request_of_a_session_acknowledges_nothing(client: Connection) -> None:
    """As brokers have it."""
    assert client.fetch(0, topics=said(1, 7)).error_code == Code.INVALID_REQUEST
    assert client.serving.said == []


def test_a_client_with_a_byte_rate_is_given_what_it_may_have_in_a_second(client: Connection) -> None:
    """It is kept waiting behind an answer, and acknowledges nothing meanwhile: the locks of more would expire."""
    client.fetch(0, 1)
    session = client.told.shares.of("g", "m") if client.told is not None else None
    assert session is not None
    session.client.most_fetch_bytes = 40
    client.fetch(1)
    client.fetch(2, max_bytes=7)
    assert [limits.max_bytes for _, limits in client.serving.asked] == [99, 40, 7]


def test_what_the_broker_refuses_is_refused_and_costs_nothing(client: Connection) -> None:
    """Who may not Read the group, or has not logged in, is given nothing; the session begins anew."""
    client.fetch(0, 1)
    client.refuses = Code.GROUP_AUTHORIZATION_FAILED
    before = len(client.serving.asked)
    assert client.fetch(1).error_code == Code.GROUP_AUTHORIZATION_FAILED
    assert len(client.serving.asked) == before
    client.refuses = Code.NONE
    assert client.fetch(2, 1).error_code == Code.SHARE_SESSION_NOT_FOUND


def test_partitions_of_topics_that_a_client_may_not_read_are_refused(client: Connection) -> None:
    """Those of its session, too, and what it says of them; a topic that is gone is not known by its id."""
    client.fetch(0, 1)
    client.denied = {"orders": Code.TOPIC_AUTHORIZATION_FAILED}
    [row] = rows(client.fetch(1, topics=said(1, 7)))
    denied = Code.TOPIC_AUTHORIZATION_FAILED
    assert (row.error_code, row.acknowledge_error_code, client.serving.said) == (denied, denied, [])
    client.denied = {}
    client.topics.remove("orders")
    [row] = rows(client.fetch(2))
    assert row.error_code == Code.UNKNOWN_TOPIC_ID


def test_partitions_that_a_topic_does_not_have_are_refused_and_no_session_keeps_them(client: Connection) -> None:
    """A client can name a million of them, and again in each request."""
    unknown = (4, -1, 2**31 - 1)
    found = {row.partition_index: row.error_code for row in rows(client.fetch(0, 1, *unknown))}
    assert found == {1: 0} | dict.fromkeys(unknown, Code.UNKNOWN_TOPIC_OR_PARTITION)
    answer = client.ask(apis.SHARE_ACKNOWLEDGE, 1, topics=said(4, 7))
    assert [row.error_code for row in rows(answer)] == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert [row.partition_index for row in rows(client.fetch(2))] == [1]
    assert client.serving.said == []


def test_a_worker_that_cannot_serve_says_so(client: Connection) -> None:
    """Clients ask again after a while, and do not at once."""
    client.serving.problem = Code.NOT_LEADER_OR_FOLLOWER
    assert [row.error_code for row in rows(client.fetch(0, 1))] == [Code.NOT_LEADER_OR_FOLLOWER]
    answer = client.ask(apis.SHARE_ACKNOWLEDGE, 1, topics=said(1, 7))
    assert [row.error_code for row in rows(answer)] == [Code.NOT_LEADER_OR_FOLLOWER]


def test_sessions_without_managed_topics_are_the_brokers_concern(client: Connection) -> None:
    """Their requests pass as they came, until one names a managed topic."""
    assert client.fetch(0, 0, topic=OTHER) is None
    assert client.fetch(1) is None
    assert client.ask(apis.SHARE_ACKNOWLEDGE, 2, topics=said(0, 7, topic=OTHER)) is None
    assert [row.partition_index for row in rows(client.fetch(3, 1))] == [1]
    assert client.told is not None
    assert client.told.shares.of("g", "m") is not None


def test_the_end_of_a_session_or_of_its_connection_gives_back_what_a_member_has(client: Connection) -> None:
    """A session that begins anew does not: its member may still work on what it has."""
    client.fetch(0, 1)
    client.fetch(0, 1)
    assert client.serving.gave_back == []
    client.ask(apis.SHARE_ACKNOWLEDGE, -1, topics=said(1, 7))
    assert client.serving.gave_back == ["m"]
    for number in range(MOST_SESSIONS + 1):
        client.fetch(0, 1, member=f"m{number}")
    assert client.told is not None
    client.told.shares.close()
    assert client.serving.gave_back[1:] == [f"m{number}" for number in range(1, MOST_SESSIONS + 1)]
