"""What a worker does before the first transaction of a topic: it asks the controller once, and waits for the layout."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.member import transactions_allowed as module
from kordon.proxy.member.transactions_allowed import TransactionsAllowed, TransactionsRefused
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.transactions.adds import Announcement
from kordon.proxy.ordering.wishes import AllowTransactions, Wish
from kordon.proxy.topics.managed_topics import ManagedTopic

LAYOUT = Layout.created("orders", UUID(int=1), 1, 4)
DONE = OutcomeRecord(Code.NONE, "")
OLD = OutcomeRecord(Code.UNSUPPORTED_VERSION, "the proxies at old-1 do not know transactions")


class Control:
    """The controller, as wishes reach it."""

    def __init__(self, *outcomes: OutcomeRecord | Exception) -> None:
        self.topic = ManagedTopic(LAYOUT, UUID(int=2))
        self.wishes: list[Wish] = []
        self._outcomes = list(outcomes)
        self.allowed = TransactionsAllowed(self.wish)

    async def wish(self, wish: Wish) -> OutcomeRecord:
        self.wishes.append(wish)
        await asyncio.sleep(0)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def write(self) -> None:
        """Has the worker read the layout, and then the announcement that all proxies know it."""
        self.topic.adopt(replace(LAYOUT, has_transactions=True), {})
        self.topic.announce(Announcement(1))


async def test_clients_that_come_together_share_a_wish_and_wait_for_the_layout() -> None:
    """Whoever wrote before would write to a topic that former versions may serve."""
    control = Control(DONE)
    waiting = [asyncio.ensure_future(control.allowed.allow(control.topic)) for _ in range(5)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert control.wishes == [AllowTransactions("orders")]
    assert not any(each.done() for each in waiting)
    control.write()
    await asyncio.gather(*waiting)
    await control.allowed.allow(control.topic)
    assert control.wishes == [AllowTransactions("orders")], "who has read the layout asks nobody"


async def test_a_layout_alone_is_not_enough() -> None:
    """A former version may have joined before it was written, and serve the topic for a moment more."""
    control = Control(DONE, DONE)
    control.topic.adopt(replace(LAYOUT, has_transactions=True), {})
    waiting = asyncio.ensure_future(control.allowed.allow(control.topic))
    for _ in range(5):
        await asyncio.sleep(0)
    assert control.wishes == [AllowTransactions("orders")]
    assert not waiting.done()
    control.write()
    await waiting


async def test_a_layout_that_was_read_before_the_outcome_is_enough() -> None:
    control = Control(DONE)
    waiting = asyncio.ensure_future(control.allowed.allow(control.topic))
    await asyncio.sleep(0)
    control.write()
    await waiting


async def test_a_refusal_is_told_and_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction of a client would be a record in the layouts otherwise."""
    control = Control(OLD, DONE)
    for _ in range(3):
        with pytest.raises(TransactionsRefused, match="old-1") as refused:
            await control.allowed.allow(control.topic)
        assert refused.value.code == Code.UNSUPPORTED_VERSION
    assert len(control.wishes) == 1
    monkeypatch.setattr(module, "REFUSED_SECONDS", 0.0)
    control.allowed._refused.clear()
    control.write()
    await control.allowed.allow(control.topic)


async def test_what_the_cluster_refuses_is_a_refusal_and_silence_is_none() -> None:
    control = Control(TopicsRefused("transactions", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no right"))
    with pytest.raises(TransactionsRefused, match="no right"):
        await control.allowed.allow(control.topic)
    silent = Control(UpstreamUnavailable("no answer"), DONE)
    with pytest.raises(UpstreamUnavailable, match="no answer"):
        await silent.allowed.allow(silent.topic)
    silent.write()
    await silent.allowed.allow(silent.topic)


async def test_a_topic_that_is_not_served_is_not_waited_for() -> None:
    control = Control(DONE)
    waiting = asyncio.ensure_future(control.allowed.allow(control.topic))
    for _ in range(5):
        await asyncio.sleep(0)
    control._outcomes.append(DONE)
    control.topic.serve("its layout cannot be read")
    with pytest.raises(UpstreamUnavailable, match="cannot be read"):
        await waiting
