"""The SDK's transactions, against a model of a topic and of a transaction coordinator, which lose what can be lost."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IllegalOperation,
    KafkaConnectionError,
    MessageSizeTooLargeError,
    ProducerFenced,
    RequestTimedOutError,
)
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.client.test_moving_records import Model, N, V, Write, start

from kordon.client import OrderedProducer, TransactionRefusedError
from kordon.client.connection import Finalized
from kordon.client.errors import TransactionAbortableError
from kordon.codecs.messages import response

INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT = 22, 26, 28
BUSY, FENCED_EPOCH, FENCED, INVALID_TXN_STATE, GROUP_DENIED, ABORTABLE = 51, 47, 90, 48, 30, 120
PATIENCE_SECONDS = 60.0


class TransactionalModel(Model):
    """A topic behind Kordons, and the coordinator of one transactional id.

    Args:
        is_second: Whether it speaks the second protocol (KIP-890), and takes no request of the first one.
    """

    def __init__(self, seed: int, trouble: float = 0.0, *, is_second: bool = False) -> None:
        super().__init__(seed, trouble)
        self.is_second = is_second
        self.epoch = 0
        self.committed: list[Any] = []
        """Records, in the order in which their partitions have them."""
        self.ends: list[bool] = []
        self.refuses_partitions = 0
        """The error that AddPartitionsToTxn is answered with; 0: none."""
        self.refuses_offsets = GROUP_DENIED
        """The same of TxnOffsetCommit."""
        self.on_added: Any = None
        """Is called when partitions are added."""
        self._added: set[int] = set()
        self._is_last = -1
        """The epoch before, by which InitProducerId may be repeated."""

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        if isinstance(request, InitProducerIdRequest):
            return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=self.epoch)
        key = getattr(request, "api_key", None)
        kinds = (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest)
        if key == 0:
            assert request.body["transactional_id"] == "t"
            assert request.versions[-1] == (12 if self.is_second else 9)
            return await super().send(node_id, request, **options)
        assert key is not None or (isinstance(request, kinds) and not self.is_second)
        if self.happens():
            raise KafkaConnectionError("lost on its way")
        own = {INIT_PRODUCER_ID: self._init, END_TXN: self._end, TXN_OFFSET_COMMIT: self._deny_offsets}
        answer = self._coordinate(request) if key is None else own[key](request.body)
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        if self.happens():
            raise RequestTimedOutError
        return answer

    def values_of_committed(self, key: bytes) -> list[bytes]:
        """What read_committed readers get of a key, in its order."""
        return [bytes(record.value) for record in self.committed if record.key == key]

    def _init(self, body: Any) -> Any:
        assert body["producer_id"] == 7
        code = 0
        if body["producer_epoch"] == self.epoch:
            self._is_last, self.epoch = self.epoch, self.epoch + 1
        elif body["producer_epoch"] != self._is_last:
            code = FENCED
        fields = {"error_code": code, "producer_id": 7, "producer_epoch": self.epoch}
        return response(INIT_PRODUCER_ID).parse(4, response(INIT_PRODUCER_ID).build(4, fields))

    def _coordinate(self, request: Any) -> Any:
        code = FENCED_EPOCH if request._producer_epoch != self.epoch else BUSY if self.happens() else 0
        if isinstance(request, AddPartitionsToTxnRequest):
            ((topic, partitions),) = request._topics
            code = code or self.refuses_partitions
            if not code:
                self._added |= set(partitions)
                if self.on_added is not None:
                    self.on_added()
            return SimpleNamespace(errors=[(topic, [(q, code) for q in partitions])])
        if isinstance(request, AddOffsetsToTxnRequest):
            return SimpleNamespace(error_code=code or GROUP_DENIED)
        if not code:
            self._close(is_commit=bool(request._transaction_result))
        return SimpleNamespace(error_code=code)

    def _close(self, *, is_commit: bool) -> None:
        if is_commit and self._added:
            self.committed += [record for _, _, record in self.written]
        if self._added:
            self.ends.append(is_commit)
        self._added.clear()
        self.written.clear()

    def _end(self, body: Any) -> Any:
        """EndTxn 5: it tells the next epoch, also to whoever has not heard it the first time."""
        assert self.is_second
        code = BUSY if self.happens() else 0
        if body["producer_epoch"] == self.epoch and not code:
            self._close(is_commit=body["committed"])
            self._is_last, self.epoch = self.epoch, self.epoch + 1
        elif body["producer_epoch"] != self._is_last:
            code = code or FENCED
        fields = {"error_code": code, "producer_id": 7, "producer_epoch": -1 if code else self.epoch}
        return response(END_TXN).parse(5, response(END_TXN).build(5, fields))

    def _deny_offsets(self, body: Any) -> Any:
        assert self.is_second
        rows = [{"partition_index": 0, "error_code": self.refuses_offsets}]
        fields = {"topics": [{"name": body["topics"][0]["name"], "partitions": rows}]}
        return response(TXN_OFFSET_COMMIT).parse(5, response(TXN_OFFSET_COMMIT).build(5, fields))

    def _write(self, write: Write, *, heard: bool = True) -> int:
        batch = MemoryRecords(bytes(write.data)).next_batch()
        assert batch is not None
        if batch.producer_epoch != self.epoch:
            assert not heard or self.epoch > batch.producer_epoch
            return FENCED_EPOCH
        assert batch.is_transactional
        before = len(self.written)
        if self.is_second:
            if self.happens():
                return BUSY
            self._added.add(write.partition)
        code = super()._write(write, heard=heard)
        if len(self.written) > before:
            assert write.partition in self._added, "its partition was not added"
        return code


async def begin(model: TransactionalModel, **options: Any) -> OrderedProducer:
    """A producer with a transactional id, whose network is the model."""
    producer = await start(model, transactional_id="t", **options)
    producer.client.finalized = Finalized(1, {"transaction.version": 2 if model.is_second else 1})
    return producer


async def play(seed: int, trouble: float, *, is_second: bool) -> tuple[TransactionalModel, list[int]]:
    """Sends in transactions while the topic grows and shrinks and records are refused.

    Returns:
        The model, and the numbers that were committed, in their order.
    """
    model = TransactionalModel(seed, trouble, is_second=is_second)
    chance = random.Random(seed + 1)
    producer = await begin(model, max_batch_size=300)
    committed: list[int] = []
    number = 0
    for _ in range(12):
        sent: list[int] = []
        futures = []
        try:
            async with producer.transaction():
                for _ in range(chance.randrange(30)):
                    value = b"large" if chance.random() < 0.01 else b"%d" % number
                    futures.append(await producer.send("orders", value, b"key-%d" % (number % 5)))
                    sent.append(number)
                    number += 1
                    if chance.random() < 0.1:
                        await asyncio.sleep(0)
                    if chance.random() < 0.1:
                        model.counts.append(chance.choice([u for u in range(N, V + 1) if u != model.counts[-1]]))
                if chance.random() < 0.3:
                    raise LookupError  # the application aborts
            committed += sent
        except (LookupError, MessageSizeTooLargeError, IllegalOperation):
            pass
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        if committed[-1:] == sent[-1:] and sent:
            assert not [each for each in outcomes if isinstance(each, Exception)]
    await producer.stop()
    return model, committed


@settings(max_examples=20, deadline=None)
@example(755, 0.0, False)  # a record fails while its transaction is aborted, and others move to its partition
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1]), st.booleans())
def test_what_is_committed_is_there_once_and_in_order(seed: int, trouble: float, is_second: bool) -> None:
    """And nothing else: growths and shrinks at any moment, refused records, requests and answers that are lost."""
    model, committed = asyncio.run(play(seed, trouble, is_second=is_second))
    for key in range(5):
        got = list(map(int, model.values_of_committed(b"key-%d" % key)))
        assert got == [n for n in committed if n % 5 == key]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_each_transaction_of_the_second_protocol_has_an_epoch_of_its_own(*, is_commit: bool) -> None:
    """EndTxn tells it, and sequences begin anew; nothing is added before its records."""
    model = TransactionalModel(1, is_second=True)
    producer = await begin(model)
    for number in range(3):
        await producer.begin_transaction()
        await producer.send("orders", b"%d" % number, b"key")
        await (producer.commit_transaction() if is_commit else producer.abort_transaction())
    await producer.begin_transaction()
    await producer.commit_transaction()  # nobody has heard of it
    await producer.stop()
    assert (model.ends, model.epoch) == ([is_commit] * 3, 3)
    assert model.values_of_committed(b"key") == ([b"0", b"1", b"2"] if is_commit else [])


async def test_a_transaction_ends_by_the_protocol_that_it_began_with() -> None:
    """The feature may be switched on meanwhile; the next one goes by the second protocol."""
    model = TransactionalModel(1)
    producer = await begin(model)
    await producer.begin_transaction()
    await producer.send_and_wait("orders", b"0", b"key")
    producer.client.finalized = Finalized(2, {"transaction.version": 2})
    await producer.send_and_wait("orders", b"1", b"other")
    await producer.commit_transaction()
    model.is_second = True
    async with producer.transaction():
        await producer.send("orders", b"2", b"key")
    await producer.stop()
    assert (model.epoch, model.values_of_committed(b"key")) == (1, [b"0", b"2"])


async def test_a_transaction_that_cannot_go_on_is_aborted_and_its_producer_goes_on() -> None:
    """TRANSACTION_ABORTABLE says so, here of offsets; it names the cure."""
    model = TransactionalModel(1, is_second=True)
    model.refuses_offsets = ABORTABLE
    producer = await begin(model)
    await producer.begin_transaction()
    await producer.send_and_wait("orders", b"0", b"key")
    with pytest.raises(TransactionAbortableError, match="do its work again"):
        await producer.send_offsets_to_transaction({TopicPartition("orders", 0): 1}, "g")
    await producer.abort_transaction()
    async with producer.transaction():
        await producer.send("orders", b"1", b"key")
    await producer.stop()
    assert (model.ends, model.epoch) == ([False, True], 2)
    assert model.values_of_committed(b"key") == [b"1"]


async def test_records_that_move_while_their_transaction_is_committed_are_in_it() -> None:
    """Their new home is added while the commit waits: aiokafka adds nothing then."""
    model = TransactionalModel(1)
    producer = await begin(model, linger_ms=1_000_000)
    async with producer.transaction():
        for number in range(40):
            await producer.send("orders", b"%d" % number, b"key-%d" % number)
        model.on_added = lambda: model.counts.append(12) if len(model.counts) == 1 else None
    await producer.stop()
    assert model.refusals
    assert sorted(int(record.value) for record in model.committed) == list(range(40))


@pytest.mark.parametrize("is_second", [False, True])
async def test_a_record_that_fails_lets_its_transaction_only_be_aborted(*, is_second: bool) -> None:
    """Whoever does not look at futures commits no half of it; the next transaction has the next epoch."""
    model = TransactionalModel(1, is_second=is_second)
    producer = await begin(model)
    await producer.begin_transaction()
    await producer.send_and_wait("orders", b"0", b"key")
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send_and_wait("orders", b"large", b"key")
    await producer.flush()
    with pytest.raises(MessageSizeTooLargeError):
        await producer.commit_transaction()
    with pytest.raises(IllegalOperation, match="abort it, and do its work again"):
        await producer.send("orders", b"1", b"key")
    with pytest.raises(IllegalOperation, match="abort it"):
        await producer.begin_transaction()
    await producer.abort_transaction()
    assert (model.ends, model.epoch) == ([False], 1)
    async with producer.transaction():
        await producer.send("orders", b"2", b"key")
    await producer.stop()
    assert model.values_of_committed(b"key") == [b"2"]


@pytest.mark.parametrize("is_second", [False, True])
async def test_a_failure_that_the_commit_meets_is_told_by_it(*, is_second: bool) -> None:
    """The context aborts then, and the producer goes on."""
    model = TransactionalModel(1, is_second=is_second)
    producer = await begin(model, linger_ms=10_000)
    with pytest.raises(MessageSizeTooLargeError):
        async with producer.transaction():
            lost = [await producer.send("orders", b"large", b"key"), await producer.send("orders", b"1", b"other")]
    assert model.ends == [False]
    await asyncio.gather(*lost, return_exceptions=True)
    async with producer.transaction():
        await producer.send("orders", b"2", b"key")
    await producer.stop()
    assert [record.value for record in model.committed] == [b"2"]


async def test_what_kordon_does_not_take_names_causes_and_cures() -> None:
    """Instead of an unexpected error of the sender; the producer can be used for other topics."""
    model = TransactionalModel(1)
    model.refuses_partitions = INVALID_TXN_STATE
    producer = await begin(model)
    with pytest.raises(TransactionRefusedError, match=r"orders: .* ordering.transactions to true"):
        async with producer.transaction():
            await producer.send_and_wait("orders", b"0", b"key")
    model.refuses_partitions = 0
    async with producer.transaction():
        await producer.send("orders", b"1", b"key")
    await producer.stop()
    assert model.values_of_committed(b"key") == [b"1"]


@pytest.mark.parametrize("is_second", [False, True])
async def test_whoever_is_replaced_is_told_so_for_good(*, is_second: bool) -> None:
    """Nothing of it is committed, and no epoch is taken from its successor."""
    model = TransactionalModel(1, is_second=is_second)
    producer = await begin(model)
    await producer.begin_transaction()
    await producer.send_and_wait("orders", b"0", b"key")
    model.epoch = 5
    with pytest.raises(ProducerFenced):
        await producer.commit_transaction()
    with pytest.raises(IllegalOperation, match="stop the producer, and start another one"):
        await producer.begin_transaction()
    with pytest.raises(ProducerFenced):
        await producer.abort_transaction()
    await producer.stop()
    assert (model.committed, model.epoch) == ([], 5)


async def test_a_replaced_producer_takes_no_epoch_after_a_failure() -> None:
    """KIP-360: it says which one it had."""
    model = TransactionalModel(1)
    producer = await begin(model)
    await producer.begin_transaction()
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send_and_wait("orders", b"large", b"key")
    await producer.flush()

    ended = model._coordinate

    def replaced(request: Any) -> Any:
        answer = ended(request)
        model.epoch, model._is_last = 5, 4
        return answer

    model._coordinate = replaced  # type: ignore[method-assign]
    await producer.abort_transaction()
    assert producer._sender.sender_task is not None
    await asyncio.wait([producer._sender.sender_task], timeout=PATIENCE_SECONDS)
    with pytest.raises(IllegalOperation, match=r"ProducerFenced.* start another one"):
        await producer.begin_transaction()
    await producer.stop()
    assert (model.committed, model.epoch) == ([], 5)


@pytest.mark.parametrize("is_second", [False, True])
async def test_offsets_that_are_refused_abort_what_was_written(*, is_second: bool) -> None:
    """By aiokafka alone it is forgotten that the coordinator knows of partitions, and the transaction left open."""
    model = TransactionalModel(1, is_second=is_second)
    producer = await begin(model)
    await producer.begin_transaction()
    await producer.send_and_wait("orders", b"0", b"key")
    with pytest.raises(GroupAuthorizationFailedError):
        await producer.send_offsets_to_transaction({TopicPartition("orders", 0): 1}, "g")
    await producer.abort_transaction()
    async with producer.transaction():
        await producer.send("orders", b"1", b"key")
    await producer.stop()
    assert model.ends == [False, True]
    assert model.values_of_committed(b"key") == [b"1"]


async def test_steps_out_of_their_order_are_refused_with_the_cure() -> None:
    """Before anything is sent."""
    producer = await begin(TransactionalModel(1))
    for refused in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(IllegalOperation, match="begin one first"):
            await refused()
    with pytest.raises(IllegalOperation, match="begin one first"):
        await producer.send("orders", b"0", b"key")
    with pytest.raises(IllegalOperation, match="begin one first"):
        await producer.send_batch(producer.create_batch(), "orders", partition=0)
    await producer.begin_transaction()
    with pytest.raises(IllegalOperation, match="commit or abort it before"):
        await producer.begin_transaction()
    await producer.abort_transaction()
    await producer.stop()
