"""AddPartitionsToTxn of virtual partitions, without brokers (DOUBLE-ADD, ASKED-LEADER)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.core.interception import Translate
from kordon.proxy.handlers.add_partitions_to_txn import AddedPartitions, AddPartitionsToTxn
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.ordering.transactions.adds import Announcement
from kordon.proxy.ordering.transactions.beliefs import Ground, ProducerClaim
from kordon.proxy.writes import transactions
from kordon.testing.transactions_in_memory import ID, TOPIC, P, TransactionsInMemory

KEY, VERSION = apis.ADD_PARTITIONS_TO_TXN, 3
CLAIM = ProducerClaim("", ID, P, 0)
Names = Mapping[str, list[int]]


class Client:
    """Adds partitions through a worker."""

    def __init__(self) -> None:
        self.worker = TransactionsInMemory()
        self.brokers = self.worker.brokers
        self.handler = AddPartitionsToTxn(self.worker.produce)
        self.asked: dict[str, list[int]] = {}
        """What the client's broker was asked for."""

    def decide(self, names: Names, version: int = VERSION) -> Any:
        rows = [{"name": name, "partitions": numbers} for name, numbers in names.items()]
        fields: dict[str, Any] = {
            "v3_and_below_transactional_id": ID,
            "v3_and_below_producer_id": P,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": rows,
        }
        if version > VERSION:
            fields = {"transactions": [{"transactional_id": ID, "producer_id": P, "producer_epoch": 0, "topics": rows}]}
        return self.handler.decide(self.worker.held(KEY, version, fields))

    async def add(
        self,
        names: Names,
        codes: Mapping[tuple[str, int], int] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> dict[tuple[str, int], int]:
        """Returns error codes by topic and partition.

        Args:
            codes: What the broker answers; NONE for all others.
            meanwhile: What happens when the broker has answered.
        """
        decision = self.decide(names)
        assert isinstance(decision, AddedPartitions)
        assert decision.rest is not None
        asked = request(KEY).parse(VERSION, decision.rest).v3_and_below_topics
        self.asked = {row.name: row.partitions for row in asked}
        results = [
            {
                "name": row.name,
                "results_by_partition": [
                    {"partition_index": q, "partition_error_code": (codes or {}).get((row.name, q), 0)}
                    for q in row.partitions
                ],
            }
            for row in asked
        ]
        body = response(KEY).build(VERSION, {"results_by_topic_v3_and_below": results})
        part = asyncio.get_running_loop().create_future()
        part.set_result(response(KEY).parse(VERSION, body))
        if meanwhile is not None:
            meanwhile()
        async with asyncio.timeout(20):
            answer: Any = await decision.answer(part)
        told = response(KEY).parse(VERSION, answer())
        return {
            (row.name, each.partition_index): each.partition_error_code
            for row in told.results_by_topic_v3_and_below
            for each in row.results_by_partition
        }

    def believes(self, partition: int) -> bool:
        return self.worker.transactions.beliefs(self.worker.topic).is_open(CLAIM, partition, Ground(0, 3))


async def test_virtual_partitions_become_their_homes() -> None:
    """Each home once; each has a witness when the client is told of its virtual partitions."""
    client = Client()
    assert await client.add({TOPIC: [0, 1, 2]}) == {(TOPIC, v): Code.NONE for v in (0, 1, 2)}
    homes = sorted({home for home in client.worker.topic.layout.homes[:3] if home is not None})
    assert client.asked == {TOPIC: homes}
    assert sorted(client.brokers.witnesses) == [(q, 0) for q in homes]
    assert all(client.believes(q) for q in homes)


async def test_what_is_open_needs_no_witness() -> None:
    """A second AddPartitionsToTxn of the same transaction."""
    client = Client()
    client.brokers.open(0)
    assert await client.add({TOPIC: [0]}) == {(TOPIC, 0): Code.NONE}
    assert client.brokers.witnesses == []
    assert client.believes(0)


async def test_leaders_are_asked_each_time_and_the_sequence_follows_theirs() -> None:
    """ASKED-LEADER: what is remembered may be of the transaction before."""
    client = Client()
    await client.add({TOPIC: [0]})
    client.brokers.open(0, start=-1, sequence=4)
    await client.add({TOPIC: [0]})
    assert client.brokers.witnesses == [(0, 0), (0, 5)]
    assert len(client.brokers.asked) == 2


async def test_who_has_added_partitions_has_the_right_to_write() -> None:
    """OWN-TRANSACTION: its coordinator has said so, on the same connection, and says so no longer after a second."""
    client = Client()
    await client.add({TOPIC: [0]})
    worker = client.worker
    client.brokers.open(0)
    assert worker.decide(0).questions == ()
    worker.another_client()
    assert len(worker.decide(0).questions) == 1


async def test_who_may_not_add_partitions_has_no_right_to_write() -> None:
    """OWN-TRANSACTION: whoever is denied the transactional id is asked about it again."""
    client = Client()
    await client.add({TOPIC: [0]}, {(TOPIC, 0): Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
    assert len(client.worker.decide(0).questions) == 1


async def test_who_adds_nothing_has_shown_no_right() -> None:
    """OWN-TRANSACTION: brokers answer a request without partitions without an error, allowed or not."""
    client = Client()
    await client.add({TOPIC: []})
    worker = client.worker
    assert worker.transactions.owned(worker.told_client, ID) is None
    assert len(worker.decide(0).questions) == 1


async def test_an_announced_change_means_both_homes() -> None:
    """DOUBLE-ADD: whichever the data go to has a witness."""
    client = Client()
    client.worker.topic.announce(Announcement(1, {0: 5}))
    assert await client.add({TOPIC: [0]}) == {(TOPIC, 0): Code.NONE}
    assert client.asked == {TOPIC: [0, 5]}
    assert sorted(client.brokers.witnesses) == [(0, 0), (5, 0)]


async def test_a_plan_that_is_old_by_now_is_not_answered_as_done() -> None:
    """DOUBLE-ADD: an announcement came between; the client asks again, for both homes."""
    client = Client()
    topic = client.worker.topic
    codes = await client.add({TOPIC: [0]}, meanwhile=lambda: topic.announce(Announcement(1, {0: 5})))
    assert codes == {(TOPIC, 0): Code.CONCURRENT_TRANSACTIONS}


async def test_an_announcement_is_told_from_another_of_the_same_number() -> None:
    """DOUBLE-ADD: numbers begin with 1 again behind layouts that were restored without what was announced."""
    client = Client()
    topic = client.worker.topic
    topic.announce(Announcement(1))
    codes = await client.add({TOPIC: [0]}, meanwhile=lambda: topic.announce(Announcement(1, {0: 5})))
    assert codes == {(TOPIC, 0): Code.CONCURRENT_TRANSACTIONS}


async def test_without_a_lease_nothing_is_answered_as_done() -> None:
    """LIVE-LEASE: the layout may be another one by now."""
    client = Client()

    def end_lease() -> None:
        client.worker.serves = False

    assert await client.add({TOPIC: [0]}, meanwhile=end_lease) == {(TOPIC, 0): Code.CONCURRENT_TRANSACTIONS}


async def test_a_partition_that_is_not_there_keeps_all_out() -> None:
    """The broker says so of a partition that it does not have either."""
    client = Client()
    no_partition = 2**31 - 1
    codes = await client.add(
        {TOPIC: [0, 8]},
        {(TOPIC, 0): Code.OPERATION_NOT_ATTEMPTED, (TOPIC, no_partition): Code.UNKNOWN_TOPIC_OR_PARTITION},
    )
    assert client.asked == {TOPIC: [0, no_partition]}
    assert codes == {(TOPIC, 0): Code.OPERATION_NOT_ATTEMPTED, (TOPIC, 8): Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert not client.brokers.witnesses


async def test_a_partition_without_a_leader_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can write its witness, without which its data would be refused for good; others have theirs."""
    monkeypatch.setattr(transactions, "_PAUSE_SECONDS", 0.0)
    client = Client()
    of_0, of_1 = (client.worker.topic.layout.homes.index(q) for q in (0, 1))
    client.brokers.leaderless = {1}
    waits = {(TOPIC, of_0): Code.NONE, (TOPIC, of_1): Code.CONCURRENT_TRANSACTIONS}
    assert await client.add({TOPIC: [of_0, of_1]}) == waits
    assert (client.brokers.witnesses, client.believes(1)) == ([(0, 0)], False)
    client.brokers.leaderless.clear()
    client.brokers.open(0)
    assert set((await client.add({TOPIC: [of_0, of_1]})).values()) == {Code.NONE}
    assert client.brokers.witnesses == [(0, 0), (1, 0)]


async def test_what_the_coordinator_refuses_gets_no_witness() -> None:
    """It would join the transaction before; what is believed of the producer ends."""
    client = Client()
    await client.add({TOPIC: [0]})
    codes = await client.add({TOPIC: [0]}, {(TOPIC, 0): Code.PRODUCER_FENCED})
    assert codes == {(TOPIC, 0): Code.PRODUCER_FENCED}
    assert len(client.brokers.witnesses) == 1
    assert not client.believes(0)


async def test_a_busy_coordinator_ends_no_belief() -> None:
    """The client asks again."""
    client = Client()
    await client.add({TOPIC: [0]})
    codes = await client.add({TOPIC: [0]}, {(TOPIC, 0): Code.CONCURRENT_TRANSACTIONS})
    assert codes == {(TOPIC, 0): Code.CONCURRENT_TRANSACTIONS}
    assert client.believes(0)


@pytest.mark.parametrize(
    ("witness", "code"),
    [
        (Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_EPOCH),
        (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (Code.INVALID_TXN_STATE, Code.CONCURRENT_TRANSACTIONS),
        (Code.NOT_LEADER_OR_FOLLOWER, Code.CONCURRENT_TRANSACTIONS),
        (Code.INVALID_TIMESTAMP, Code.CONCURRENT_TRANSACTIONS),
    ],
)
async def test_errors_of_witnesses(witness: Code, code: Code) -> None:
    """What ends the client's transaction is told; upon all else it asks again."""
    client = Client()
    client.brokers.witness_code = witness
    assert await client.add({TOPIC: [0]}) == {(TOPIC, 0): code}
    assert not client.believes(0)


async def test_an_end_meanwhile_leaves_no_belief() -> None:
    """The witness may be of the transaction before."""
    client = Client()
    client.brokers.may_answer.clear()
    adding = asyncio.ensure_future(client.add({TOPIC: [0]}))
    await client.brokers.is_asked.wait()
    client.worker.transactions.ends(P)
    client.brokers.may_answer.set()
    await adding
    assert not client.believes(0)


@pytest.mark.parametrize(
    ("code", "is_believed"),
    [
        (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True),
        (Code.INVALID_PRODUCER_ID_MAPPING, True),
        (Code.TOPIC_AUTHORIZATION_FAILED, True),
        (Code.PRODUCER_FENCED, False),
    ],
)
async def test_what_a_coordinator_refuses_others_changes_no_belief(code: Code, *, is_believed: bool) -> None:
    """OWN-TRANSACTION: only who owns the transaction is told of its state."""
    client = Client()
    await client.add({TOPIC: [0]})
    await client.add({TOPIC: [0]}, {(TOPIC, 0): code})
    assert client.believes(0) == is_believed


async def test_partitions_that_were_taken_are_their_clients_own() -> None:
    """What it asks for next on the connection may end its transaction at once."""
    client = Client()
    told = client.worker.told_client
    await client.add({TOPIC: [0]}, {(TOPIC, 0): Code.NOT_COORDINATOR})
    assert client.worker.transactions.owned(told, ID) is None
    await client.add({TOPIC: [0]})
    assert client.worker.transactions.owned(told, ID) == P


async def test_ordinary_topics_go_with_the_managed_ones() -> None:
    """Their partitions are named as they are."""
    client = Client()
    codes = await client.add({TOPIC: [7], "other": [3, 4]})
    assert client.asked == {TOPIC: [1], "other": [3, 4]}
    assert codes == {(TOPIC, 7): Code.NONE, ("other", 3): Code.NONE, ("other", 4): Code.NONE}


async def test_a_request_of_ordinary_topics_alone_passes() -> None:
    """Nothing is done with it."""
    assert Client().decide({"other": [0]}) is None


async def test_a_topic_without_transactions_is_refused_or_asked_for_again() -> None:
    """By what its layout cannot have, or has not yet."""
    client = Client()
    client.worker.permit = TopicsRefused("orders is compacted", Code.INVALID_CONFIG)
    assert await client.add({TOPIC: [0]}) == {(TOPIC, 0): Code.INVALID_TXN_STATE}
    client.worker.permit = UpstreamUnavailable("the controller does not answer")
    assert await client.add({TOPIC: [0]}) == {(TOPIC, 0): Code.CONCURRENT_TRANSACTIONS}
    assert not client.brokers.witnesses


async def test_requests_of_brokers_are_refused() -> None:
    """Only brokers send version 4 and later; no client of Kordon is one (NO-TRANSACTIONS)."""
    assert isinstance(Client().decide({TOPIC: [0]}, version=4), Translate)
