"""What stands around a broker's call: claims before it, its outcome behind it, and what producers are told."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import cast

import pytest

from kordon.codecs.bodies import InitProducerIdResponse
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.handlers import epoch_lending
from kordon.proxy.handlers.epoch_lending import EpochLending, LendingAnswer, LendingOutcome
from kordon.proxy.ordering.lent_epoch_records import key_of
from kordon.proxy.ordering.lent_epochs import CALL_SECONDS, TAKE_OVER_SECONDS, EpochClaim, Lent, ProducerIdentity
from kordon.proxy.ordering.lent_table import LentTable
from kordon.proxy.own_topics.lent_epochs_log import LentEpochsLog

ID = "orders-writer"
KEY = key_of(ID)
BUSY = InitProducerIdResponse(error_code=Code.CONCURRENT_TRANSACTIONS)


@dataclass
class Records:
    """A log that proxies share."""

    entries: list[tuple[str, Lent | None]] = field(default_factory=list[tuple[str, "Lent | None"]])
    now: float = 0.0


class InMemory:
    """One proxy's reading of it."""

    def __init__(self, records: Records, most_ids: int = 10) -> None:
        self.table = LentTable(most_ids)
        self.problem: str | None = None
        self.is_away = False
        self.on_write: Callable[[], None] = lambda: None
        self._records = records
        self._read = 0

    async def read_to_end(self) -> None:
        await asyncio.sleep(0)
        if self.is_away or self.problem:
            raise UpstreamUnavailable(self.problem or "nobody leads it")
        self._read_up_to(len(self._records.entries))

    async def write(self, key: str, lent: Lent) -> bool:
        await asyncio.sleep(0)
        self.on_write()
        self._records.entries.append((key, lent))
        return self._read_up_to(len(self._records.entries))

    def _read_up_to(self, end: int) -> bool:
        counts = True
        while self._read < end:
            key, lent = self._records.entries[self._read]
            counts = self.table.take_in(key, lent, 0, self._records.now)
            self._read += 1
        return counts


def lending_of(kept: InMemory, records: Records) -> EpochLending:
    """What serves the clients of the proxy that reads it so."""
    return EpochLending(cast(LentEpochsLog, kept), lambda: records.now)


class Broker:
    """A coordinator without KIP-360."""

    def __init__(self) -> None:
        self.epochs: Iterator[int] = count()
        self.calls = 0
        self.first: list[InitProducerIdResponse] = []
        """What is answered before epochs are given."""
        self.called = asyncio.Event()
        self.held: asyncio.Event | None = None

    async def call(self) -> InitProducerIdResponse:
        self.calls += 1
        self.called.set()
        if self.held is not None:
            await self.held.wait()
        if self.first:
            return self.first.pop(0)
        return InitProducerIdResponse(error_code=Code.NONE, producer_id=7, producer_epoch=next(self.epochs))


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def kept(records: Records) -> InMemory:
    return InMemory(records)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def lending(records: Records, kept: InMemory) -> EpochLending:
    return lending_of(kept, records)


def given(epoch: int) -> LendingAnswer:
    return LendingAnswer(LendingOutcome.GIVEN, ProducerIdentity(7, epoch))


async def test_a_producer_gets_its_next_epoch_once(lending: EpochLending, broker: Broker) -> None:
    """Whoever has come before it gets nothing, and who asks again is told the same."""
    assert await lending.serve(ID, None, broker.call) == given(0)
    assert await lending.serve(ID, ProducerIdentity(7, 0), broker.call) == given(1)
    assert await lending.serve(ID, ProducerIdentity(7, 0), broker.call) == LendingAnswer(
        LendingOutcome.REPEATED, ProducerIdentity(7, 1)
    )
    assert await lending.serve(ID, ProducerIdentity(7, 1), broker.call) == given(2)
    assert await lending.serve(ID, ProducerIdentity(7, 0), broker.call) == LendingAnswer(LendingOutcome.FENCED)
    assert broker.calls == 3
    assert (lending.outcomes["given"], lending.outcomes["repeated"], lending.outcomes["fenced"]) == (3, 1, 1)


async def test_a_claim_stands_in_the_log_before_the_broker_is_called(
    lending: EpochLending, broker: Broker, records: Records
) -> None:
    """And what the broker has answered before the producer is told."""
    broker.held = asyncio.Event()
    serving = asyncio.ensure_future(lending.serve(ID, None, broker.call))
    await broker.called.wait()
    ((_, claimed),) = records.entries
    assert claimed is not None
    assert claimed.claim is not None
    broker.held.set()
    assert await serving == given(0)
    assert records.entries[1:] == [(KEY, Lent(1, ProducerIdentity(7, 0)))]


async def test_of_two_proxies_one_calls(records: Records, broker: Broker) -> None:
    """The other has its client ask again, until a claim that nobody settles is old."""
    one, other = (lending_of(InMemory(records), records) for _ in range(2))
    broker.held = asyncio.Event()
    serving = asyncio.ensure_future(one.serve(ID, None, broker.call))
    await broker.called.wait()
    assert await other.serve(ID, None, broker.call) == LendingAnswer(LendingOutcome.BUSY)
    records.now += TAKE_OVER_SECONDS
    broker.held.set()
    assert await other.serve(ID, None, broker.call) == given(1)
    # who was taken over from has lost what its call gave, and decides anew, while the other's claim stands
    assert await serving == LendingAnswer(LendingOutcome.BUSY)
    assert broker.calls == 2


async def test_of_two_claims_at_once_one_counts(records: Records, broker: Broker) -> None:
    """Both proxies have seen none before. One calls the broker, and the other one's client asks again."""
    two = [lending_of(InMemory(records), records) for _ in range(2)]
    broker.held = asyncio.Event()
    serving = [asyncio.ensure_future(each.serve(ID, None, broker.call)) for each in two]
    done, _ = await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
    assert [each.result() for each in done] == [LendingAnswer(LendingOutcome.BUSY)]
    broker.held.set()
    assert given(0) in await asyncio.gather(*serving)
    assert broker.calls == 1


async def test_the_end_of_a_transaction_is_waited_for(lending: EpochLending, broker: Broker, records: Records) -> None:
    """It takes an epoch, so the claim is for one more."""
    broker.first = [BUSY, BUSY]
    broker.epochs = count(1)
    assert await lending.serve(ID, None, broker.call) == given(1)
    claims = [lent.claim.epochs for _, lent in records.entries if lent is not None and lent.claim is not None]
    assert claims == [1, 2, 2]


async def test_a_transaction_that_does_not_end_is_not_waited_for_for_ever(
    lending: EpochLending, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks again."""
    monkeypatch.setattr(epoch_lending, "END_SECONDS", 0.0)
    broker.first = [BUSY]
    assert await lending.serve(ID, None, broker.call) == LendingAnswer(LendingOutcome.BUSY)


async def test_no_call_is_made_late(lending: EpochLending, broker: Broker, records: Records, kept: InMemory) -> None:
    """Another proxy may have gone on in its place."""

    def slow() -> None:
        records.now += CALL_SECONDS

    kept.on_write = slow
    assert await lending.serve(ID, None, broker.call) == LendingAnswer(LendingOutcome.BUSY)
    assert broker.calls == 0


@pytest.mark.parametrize("code", [Code.INVALID_TRANSACTION_TIMEOUT, Code.NOT_COORDINATOR])
async def test_what_the_broker_refuses_keeps_nobody_waiting(lending: EpochLending, broker: Broker, code: Code) -> None:
    """Its error goes to the client."""
    broker.first = [InitProducerIdResponse(error_code=code)]
    assert await lending.serve(ID, None, broker.call) == LendingAnswer(LendingOutcome.REFUSED, code=code)
    assert await lending.serve(ID, None, broker.call) == given(0)


async def test_after_an_error_that_may_have_taken_an_epoch_the_claim_stands(
    lending: EpochLending, broker: Broker, records: Records
) -> None:
    """What comes of it is seen by the next call."""
    broker.first = [InitProducerIdResponse(error_code=Code.COORDINATOR_NOT_AVAILABLE)]
    refused = LendingAnswer(LendingOutcome.REFUSED, code=Code.COORDINATOR_NOT_AVAILABLE)
    assert await lending.serve(ID, None, broker.call) == refused
    assert await lending.serve(ID, None, broker.call) == LendingAnswer(LendingOutcome.BUSY)
    records.now += TAKE_OVER_SECONDS
    assert await lending.serve(ID, None, broker.call) == given(0)


async def test_a_client_that_goes_leaves_nothing_undone(lending: EpochLending, broker: Broker) -> None:
    """Else its transactional id would be busy for a while when it comes back."""
    broker.held = asyncio.Event()
    serving = asyncio.ensure_future(lending.serve(ID, None, broker.call))
    await broker.called.wait()
    serving.cancel()
    broker.held.set()
    with pytest.raises(asyncio.CancelledError):
        await serving
    for _ in range(20):
        await asyncio.sleep(0)
    assert await lending.serve(ID, ProducerIdentity(7, 0), broker.call) == given(1)


async def test_a_broker_that_does_not_answer(
    lending: EpochLending, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client looks for its coordinator again."""
    monkeypatch.setattr(epoch_lending, "ANSWER_SECONDS", 0.01)
    broker.held = asyncio.Event()
    assert await lending.serve(ID, None, broker.call) == LendingAnswer(LendingOutcome.UNAVAILABLE)


async def test_a_log_that_is_away_is_waited_for(lending: EpochLending, broker: Broker, kept: InMemory) -> None:
    """By the client, which asks again. No epoch is taken meanwhile."""
    kept.is_away = True
    for identity in (None, ProducerIdentity(7, 0)):
        assert await lending.serve(ID, identity, broker.call) == LendingAnswer(LendingOutcome.UNAVAILABLE)
    assert broker.calls == 0


async def test_without_a_log_new_instances_go_on_as_without_kordon(
    lending: EpochLending, broker: Broker, kept: InMemory
) -> None:
    """Others cannot be told from those whom another instance has fenced."""
    kept.problem = "Kordon may not create it"
    assert not lending.is_possible
    assert await lending.serve(ID, None, broker.call) == LendingAnswer(
        LendingOutcome.UNRECORDED, ProducerIdentity(7, 0)
    )
    assert await lending.serve(ID, ProducerIdentity(7, 0), broker.call) == LendingAnswer(LendingOutcome.UNAVAILABLE)
    broker.first = [InitProducerIdResponse(error_code=Code.NOT_COORDINATOR)]
    assert await lending.serve(ID, None, broker.call) == LendingAnswer(
        LendingOutcome.REFUSED, code=Code.NOT_COORDINATOR
    )


async def test_a_full_table_takes_up_no_more(records: Records, broker: Broker) -> None:
    """Ids that are known go on."""
    kept = InMemory(records, most_ids=1)
    lending = lending_of(kept, records)
    assert await lending.serve(ID, None, broker.call) == given(0)
    assert (await lending.serve("other", None, broker.call)).outcome is LendingOutcome.UNRECORDED
    assert await lending.serve("other", ProducerIdentity(7, 1), broker.call) == LendingAnswer(
        LendingOutcome.UNAVAILABLE
    )
    assert len(records.entries) == 2


async def test_what_a_later_version_has_written_is_left_to_it(
    lending: EpochLending, broker: Broker, records: Records
) -> None:
    """While proxies are upgraded, clients ask until they come to a new one."""
    records.entries.append((KEY, None))
    assert await lending.serve(ID, None, broker.call) == LendingAnswer(LendingOutcome.UNAVAILABLE)
    assert broker.calls == 0


async def test_no_more_than_so_many_are_under_way(
    lending: EpochLending, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others come again."""
    monkeypatch.setattr(epoch_lending, "MOST_UNDER_WAY", 1)
    broker.held = asyncio.Event()
    serving = asyncio.ensure_future(lending.serve(ID, None, broker.call))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await lending.serve("other", None, broker.call) == LendingAnswer(LendingOutcome.BUSY)
    broker.held.set()
    assert await serving == given(0)


async def test_who_comes_round_kordon_fences(lending: EpochLending, broker: Broker) -> None:
    """An epoch that nothing explains has gone to somebody else."""
    assert await lending.serve(ID, None, broker.call) == given(0)
    await broker.call()
    assert await lending.serve(ID, ProducerIdentity(7, 0), broker.call) == LendingAnswer(LendingOutcome.FENCED)


async def test_a_claim_of_another_is_taken_over_by_its_own_producer_alone(
    lending: EpochLending, broker: Broker, records: Records
) -> None:
    """A proxy died behind its claim; another instance's identity is not what was claimed for."""
    claim = EpochClaim("another-1", ProducerIdentity(7, 1))
    records.entries.append((KEY, Lent(4, ProducerIdentity(7, 1), ProducerIdentity(7, 0), claim=claim)))
    broker.epochs = count(2)
    assert await lending.serve(ID, ProducerIdentity(7, 1), broker.call) == LendingAnswer(LendingOutcome.BUSY)
    records.now += TAKE_OVER_SECONDS
    assert await lending.serve(ID, ProducerIdentity(7, 0), broker.call) == LendingAnswer(LendingOutcome.FENCED)
    assert await lending.serve(ID, ProducerIdentity(7, 1), broker.call) == given(2)
