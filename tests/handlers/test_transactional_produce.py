"""What is asked before data of a transaction get into line, and what becomes of them (TXN-WITNESS, OWN-TRANSACTION)."""

import asyncio
import gc
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.records import look_batch
from kordon.codecs.witness import is_witness
from kordon.proxy.handlers.produce import MixedProduce, Produce, WalkedProduce
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.ordering.identity import writer_id
from kordon.proxy.ordering.transactions.beliefs import Ground, ProducerClaim
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.topics.managed_topics import Fence
from kordon.testing.managed_writes import a_batch
from kordon.testing.transactions_in_memory import ID, TOPIC, P, TransactionsInMemory, asked_of, say_right, say_witness
from kordon.testing.waiting import turns

V2 = 12
CLAIM = ProducerClaim("connection 1", ID, P, 0)


async def test_data_of_v1_go_into_line_once_the_leader_says_that_they_may() -> None:
    """Under the writer of v1, and as a plain batch: brokers see no transaction in it."""
    worker = TransactionsInMemory()
    worker.brokers.open(0)
    served = worker.decide(0)
    (right,) = served.questions
    say_right(right)
    assert await worker.codes(served) == [Code.NONE]
    (write,) = worker.brokers.added
    assert write.producer_id == writer_id(P, Protocol.V1)
    assert write.ground == Ground(0, 3)
    assert not look_batch(write.batch, 0).is_transactional


async def test_the_right_is_asked_for_without_effect() -> None:
    """A partition that is not there keeps all out of the transaction."""
    (right,) = TransactionsInMemory().decide(0).questions
    asked = asked_of(right)
    assert (asked.v3_and_below_transactional_id, asked.v3_and_below_producer_id) == (ID, P)
    assert [(row.name, row.partitions) for row in asked.v3_and_below_topics] == [(TOPIC, [2**31 - 1])]


async def test_what_is_known_is_not_asked_again() -> None:
    """Within a second, on the same connection."""
    worker = TransactionsInMemory()
    worker.brokers.open(0)
    first = worker.decide(0)
    say_right(first.questions[0])
    await worker.codes(first)
    second = worker.decide(1, sequence=1)
    assert second.questions == ()
    assert await worker.codes(second) == [Code.NONE]
    assert len(worker.brokers.asked) == 1


async def test_another_connection_needs_a_right_of_its_own() -> None:
    """OWN-TRANSACTION: producer id and epoch are no secret."""
    worker = TransactionsInMemory()
    worker.brokers.open(0)
    first = worker.decide(0)
    say_right(first.questions[0])
    await worker.codes(first)
    worker.another_client()
    forged = worker.decide(0, sequence=1)
    say_right(forged.questions[0], Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert await worker.codes(forged) == [Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert len(worker.brokers.added) == 1
    again = worker.decide(0, sequence=1)
    assert again.questions, "a refusal is no right"


@pytest.mark.parametrize(
    ("start", "epoch", "code"),
    [(-1, 0, Code.INVALID_TXN_STATE), (5, 7, Code.INVALID_TXN_STATE), (100, 0, Code.NOT_LEADER_OR_FOLLOWER)],
    ids=["not open", "open under another epoch", "not replicated"],
)
async def test_data_of_v1_that_are_not_open_are_refused(start: int, epoch: int, code: Code) -> None:
    """TXN-WITNESS: they would be acknowledged, committed and hidden."""
    worker = TransactionsInMemory()
    worker.brokers.open(0, start, epoch)
    served = worker.decide(0)
    say_right(served.questions[0])
    assert await worker.codes(served) == [code]
    assert not worker.brokers.added


async def test_a_leader_that_does_not_answer_refuses_nothing_for_good() -> None:
    """The client asks again."""
    worker = TransactionsInMemory()
    worker.brokers.is_silent = True
    served = worker.decide(0)
    say_right(served.questions[0])
    assert await worker.codes(served) == [Code.NOT_LEADER_OR_FOLLOWER]


async def test_data_of_v2_have_a_witness_before_them_on_the_clients_own_connection() -> None:
    """One request for all partitions, with sequence 0; no leader is asked."""
    worker = TransactionsInMemory()
    served = worker.decide(0, 1, 7, version=V2)
    (question,) = served.questions
    asked = asked_of(question)
    assert (question.route.version, asked.transactional_id, asked.acks) == (V2, ID, -1)
    (row,) = asked.topic_data
    assert [each.index for each in row.partition_data] == [0, 1]
    for each in row.partition_data:
        header = look_batch(each.records, 0)
        assert is_witness(header, each.records)
        assert (header.producer_id, header.base_sequence, header.records_count) == (P, 0, 2)
    say_witness(question)
    assert await worker.codes(served, V2) == [Code.NONE] * 3
    assert {each.producer_id for each in worker.brokers.added} == {writer_id(P, Protocol.V2)}
    assert not worker.brokers.asked


TRANSACTION_ABORTABLE, NOT_ENOUGH_REPLICAS = 120, 19


@pytest.mark.parametrize(
    "code",
    [
        Code.INVALID_PRODUCER_EPOCH,
        Code.CONCURRENT_TRANSACTIONS,
        Code.NOT_LEADER_OR_FOLLOWER,
        TRANSACTION_ABORTABLE,
        NOT_ENOUGH_REPLICAS,
    ],
)
async def test_the_error_of_a_witness_is_the_batchs(code: int) -> None:
    """The broker has judged the client's own transaction."""
    worker = TransactionsInMemory()
    served = worker.decide(0, version=V2)
    say_witness(served.questions[0], code)
    assert await worker.codes(served, V2) == [code]
    assert not worker.brokers.added
    assert worker.decide(0, version=V2).questions, "nothing is believed"


async def test_requests_under_way_share_a_witness_and_keep_their_order() -> None:
    """What is behind a batch that waits does not overtake it."""
    worker = TransactionsInMemory()
    first, second = worker.decide(0, version=V2), worker.decide(0, version=V2, sequence=1)
    assert second.questions == ()
    later = asyncio.ensure_future(worker.codes(second, V2))
    earlier = asyncio.ensure_future(worker.codes(first, V2))
    await asyncio.sleep(0)
    assert not worker.brokers.added
    say_witness(first.questions[0])
    assert await earlier == await later == [Code.NONE]
    assert [each.base_sequence for each in worker.brokers.added] == [0, 1]


async def test_a_later_request_waits_for_an_earlier_one() -> None:
    """Also if all is known that it needs itself: its batch may be for the same virtual partition."""
    worker = TransactionsInMemory()
    known = worker.decide(7, version=V2)
    say_witness(known.questions[0])
    await worker.codes(known, V2)
    first, second = worker.decide(0, version=V2), worker.decide(7, version=V2, sequence=1)
    assert second.questions == ()
    later = asyncio.ensure_future(worker.codes(second, V2))
    earlier = asyncio.ensure_future(worker.codes(first, V2))
    await turns(20)
    assert not later.done()
    say_witness(first.questions[0])
    assert await earlier == await later == [Code.NONE]
    assert [each.base_sequence for each in worker.brokers.added] == [0, 0, 1]


async def test_a_request_whose_client_has_gone_holds_up_nobody() -> None:
    """What came behind it on the connection goes on."""
    worker = TransactionsInMemory()
    worker.brokers.open(0)
    first = worker.decide(0)
    gone = asyncio.ensure_future(first.answer(None))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    second = worker.decide(0, sequence=1)
    say_right(first.questions[0])
    assert await worker.codes(second) == [Code.NONE]


async def test_a_witness_whose_answer_never_comes_leaves_nothing_behind() -> None:
    """A connection that ends has no answer for what was asked on it."""
    worker = TransactionsInMemory()
    beliefs = worker.transactions.beliefs(worker.topic)
    served = worker.decide(0, version=V2)
    assert served.questions
    worker.another_client()
    del served
    gc.collect()
    assert not beliefs.under_way


async def test_data_whose_home_changes_meanwhile_are_refused() -> None:
    """The witness stands elsewhere, and so does the client's connection."""
    worker = TransactionsInMemory()
    served = worker.decide(0, version=V2)
    layout = worker.topic.layout
    following = layout.next_epoch(3)
    worker.topic.adopt(layout.changed(following, dict.fromkeys(range(3), 0)), {})
    say_witness(served.questions[0])
    assert await worker.codes(served, V2) == [Code.NOT_LEADER_OR_FOLLOWER]


async def test_a_fence_that_comes_meanwhile_refuses_them() -> None:
    """Though nothing else has changed."""
    worker = TransactionsInMemory()
    served = worker.decide(0, version=V2)
    worker.topic.raise_fence(Fence("test", frozenset({0})))
    say_witness(served.questions[0])
    assert await worker.codes(served, V2) == [Code.NOT_LEADER_OR_FOLLOWER]


async def test_data_whose_leader_changes_meanwhile_are_refused() -> None:
    """TXN-WITNESS: the next leader may lack the witness."""
    worker = TransactionsInMemory()
    served = worker.decide(0, version=V2)
    worker.brokers.leader_epoch += 1
    say_witness(served.questions[0])
    assert await worker.codes(served, V2) == [Code.NOT_LEADER_OR_FOLLOWER]


async def test_an_end_between_question_and_answer_makes_the_answer_void() -> None:
    """What was acknowledged may be of the transaction before."""
    worker = TransactionsInMemory()
    served = worker.decide(0, version=V2)
    worker.transactions.ends(P)
    say_witness(served.questions[0])
    assert await worker.codes(served, V2) == [Code.NOT_LEADER_OR_FOLLOWER]
    assert worker.brokers.dropped == [P]


async def test_nothing_of_a_transaction_is_held_by_a_fence() -> None:
    """The fence may outlast the transaction: the next one would commit its data."""
    worker = TransactionsInMemory()
    worker.topic.raise_fence(Fence("test", frozenset({0})))
    served = worker.decide(0)
    assert served.questions == ()
    assert await worker.codes(served) == [Code.NOT_LEADER_OR_FOLLOWER]
    assert not worker.brokers.added


async def test_without_a_lease_nothing_is_asked() -> None:
    """LIVE-LEASE: whoever has none does not know where data belong."""
    worker = TransactionsInMemory()
    worker.serves = False
    served = worker.decide(0)
    assert served.questions == ()
    assert await worker.codes(served) == [Code.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize(
    ("rows", "codes"),
    [
        ([(0, P), (1, P + 1)], [Code.NONE, Code.INVALID_PRODUCER_ID_MAPPING]),
        ([(0, P), (1, P + 1), (1, P)], [Code.NONE, Code.INVALID_PRODUCER_ID_MAPPING, Code.NONE]),
        ([(0, P), (0, P + 1)], [Code.NONE, Code.INVALID_PRODUCER_ID_MAPPING]),
    ],
    ids=["of two partitions", "before one of the same partition", "behind one of the same partition"],
)
async def test_a_request_has_one_producer(rows: list[tuple[int, int]], codes: list[Code]) -> None:
    """Whoever names many would have many questions asked, or write where another one's transaction is open."""
    worker = TransactionsInMemory()
    for q in (0, 1):
        worker.brokers.open(q)
    batches = [(v, a_batch("a", producer_id=producer_id, epoch=0, sequence=0, txn=1)) for v, producer_id in rows]
    parts = [{"index": v, "records": batch} for v, batch in batches]
    topics = [{"name": TOPIC, "partition_data": parts}]
    held = worker.held(
        apis.PRODUCE, 11, {"transactional_id": ID, "acks": -1, "timeout_ms": 1_000, "topic_data": topics}
    )
    served = worker.handler.decide(held)
    assert isinstance(served, WalkedProduce)
    (right,) = served.questions
    say_right(right)
    assert await worker.codes(served) == codes
    assert {each.producer_id for each in worker.brokers.added} == {writer_id(P, Protocol.V1)}


async def test_the_first_data_of_a_topic_wait_for_its_layout() -> None:
    """Proxies that know no transactions must not serve it any more; the client comes again for its witness."""
    worker = TransactionsInMemory()
    object.__setattr__(worker.topic.layout, "has_transactions", False)
    served = worker.decide(0, version=V2)
    (right,) = served.questions
    say_right(right)
    assert await worker.codes(served, V2) == [Code.NOT_LEADER_OR_FOLLOWER]
    assert worker.permits_asked == 1


async def test_nobody_changes_a_layout_under_anothers_transactional_id() -> None:
    """OWN-TRANSACTION: that a topic has transactions is for good."""
    worker = TransactionsInMemory()
    object.__setattr__(worker.topic.layout, "has_transactions", False)
    served = worker.decide(0, version=V2)
    say_right(served.questions[0], Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert await worker.codes(served, V2) == [Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert worker.permits_asked == 0


@pytest.mark.parametrize("version", [11, V2])
async def test_nobody_changes_a_layout_that_may_not_write_to_its_topic(version: int) -> None:
    """RIGHTS-FIRST: not under a transactional id of its own either, and no leader is asked."""
    worker = TransactionsInMemory()
    object.__setattr__(worker.topic.layout, "has_transactions", False)
    served = worker.decide(0, version=version)
    say_right(served.questions[0], Code.TOPIC_AUTHORIZATION_FAILED)
    refused = served.refuse({TOPIC: Code.TOPIC_AUTHORIZATION_FAILED})
    assert await worker.codes(refused, version) == [Code.TOPIC_AUTHORIZATION_FAILED]
    assert worker.permits_asked == 0


async def test_no_leader_is_asked_for_whom_the_broker_refuses() -> None:
    """An answer costs a leader that remembers many producers more than the question costs a client."""
    worker = TransactionsInMemory()
    worker.brokers.open(0)
    served = worker.decide(0)
    say_right(served.questions[0], Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert await worker.codes(served) == [Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert not worker.brokers.asked


@pytest.mark.parametrize(
    ("code", "transactional_id", "is_believed"),
    [
        (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ID, True),
        (Code.INVALID_PRODUCER_ID_MAPPING, "mallorys", True),
        (Code.INVALID_PRODUCER_EPOCH, ID, False),
    ],
    ids=["no right to it", "another transactional id", "its own"],
)
async def test_a_refused_witness_changes_no_belief_of_others(
    code: Code, transactional_id: str, *, is_believed: bool
) -> None:
    """OWN-TRANSACTION: producer id and epoch are no secret."""
    worker = TransactionsInMemory()
    known = worker.decide(0, version=V2)
    say_witness(known.questions[0])
    await worker.codes(known, V2)
    worker.another_client()
    forged = worker.decide(1, version=V2, transactional_id=transactional_id)
    say_witness(forged.questions[0], code)
    await worker.codes(forged, V2)
    assert worker.transactions.beliefs(worker.topic).is_open(CLAIM, 0, Ground(0, 3)) == is_believed


async def test_a_topic_that_takes_no_transactions_says_so() -> None:
    """Compacted topics, and brokers that verify nothing."""
    worker = TransactionsInMemory()
    object.__setattr__(worker.topic.layout, "has_transactions", False)
    worker.permit = TopicsRefused("orders is compacted", Code.INVALID_CONFIG)
    served = worker.decide(0, version=V2)
    say_right(served.questions[0])
    assert await worker.codes(served, V2) == [Code.INVALID_TXN_STATE]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"transactional_id": None}, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"acks": 1}, Code.INVALID_REQUIRED_ACKS),
        ({"producer_id": -1, "epoch": -1, "sequence": -1}, Code.INVALID_RECORD),
    ],
)
async def test_what_can_be_no_transaction_is_refused(how: dict[str, Any], code: Code) -> None:
    """By the codes that brokers have for it, and without a question."""
    worker = TransactionsInMemory()
    served = worker.decide(0, **how)
    assert served.questions == ()
    assert await worker.codes(served) == [code]
    assert worker.brokers.refused == [code]


async def test_a_request_whose_topics_are_refused_holds_up_nobody() -> None:
    """The client may not write to its managed topic, or it is not served; what comes behind goes on."""
    worker = TransactionsInMemory()
    known = worker.decide(0, version=V2)
    say_witness(known.questions[0])
    await worker.codes(known, V2)
    batch = a_batch("a", producer_id=P, epoch=0, sequence=1, txn=1)
    rows = [{"name": name, "partition_data": [{"index": 0, "records": batch}]} for name in (TOPIC, "ordinary")]
    fields = {"transactional_id": ID, "acks": -1, "timeout_ms": 1_000, "topic_data": rows}
    mixed = worker.handler.decide(worker.held(apis.PRODUCE, V2, fields))
    assert isinstance(mixed, MixedProduce)
    refused = mixed.refuse({TOPIC: Code.TOPIC_AUTHORIZATION_FAILED})
    answer: Any = await worker.handler.told(refused)
    (row,) = answer["responses"][0]["partition_responses"]
    assert row["error_code"] == Code.TOPIC_AUTHORIZATION_FAILED
    assert await worker.codes(worker.decide(0, version=V2, sequence=1), V2) == [Code.NONE]


async def test_a_plain_batch_of_a_transactional_producer_is_a_plain_batch() -> None:
    """As with brokers: it belongs to no transaction, and nothing is asked."""
    worker = TransactionsInMemory()
    served = worker.decide(0, txn=0)
    assert served.questions == ()
    assert await worker.codes(served) == [Code.NONE]
    (write,) = worker.brokers.added
    assert (write.producer_id, write.ground) == (P, None)


async def test_without_the_option_all_are_refused() -> None:
    """NO-TRANSACTIONS, whatever else is wrong with them."""
    worker = TransactionsInMemory()
    brokers: Any = worker.brokers
    worker.handler = Produce(worker.topics, brokers)
    refused: list[dict[str, Any]] = [{}, {"acks": 1}, {"transactional_id": None}]
    for how in refused:
        served = worker.decide(0, **how)
        assert served.questions == ()
        assert await worker.codes(served) == [Code.INVALID_TXN_STATE]
