"""An application that goes to another offset: what it got until then is known, however soon it goes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest
from aiokafka.consumer.fetcher import OffsetResetStrategy
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.structs import TopicPartition

from kordon.client.calls import Calls
from kordon.client.dialect_client import DialectClient
from kordon.client.fetching import OrderedFetcher
from kordon.client.key_move_driver import KeyMoveDriver
from kordon.client.moves_events import Assigned, TopicGate
from kordon.proxy.ordering.gate import Gate
from kordon.proxy.ordering.layout import Layout

TP = TopicPartition("orders", 0)


class Consumer:
    """What an OrderedConsumer is made of, with one partition of a managed topic and no broker."""

    def __init__(self) -> None:
        untyped: Any = SubscriptionState
        subscription, client = untyped(), DialectClient()
        subscription.assign_from_user([TP])
        assignment = subscription.subscription.assignment
        self.state = assignment.state_value(TP)
        self.state.seek(0)
        self.driver = KeyMoveDriver(
            client,
            subscription,
            calls=Calls(1.0),
            heartbeat_seconds=60,
            resume=lambda: None,
            withhold=lambda _: None,
        )
        self.fetcher = OrderedFetcher(client, subscription, driver=self.driver, known_to_group=None)
        gates = {TP.topic: TopicGate(Gate.of(Layout.created(TP.topic, UUID(int=1), 1, 4)))}
        driver: Any = self.driver
        driver._assignment = assignment
        driver._do(Assigned(0.0, [TP], gates))
        self.driver.goes_elsewhere()

    async def close(self) -> None:
        await self.fetcher.close()
        await self.driver.close()


@pytest.fixture
async def consumer() -> AsyncIterator[Consumer]:
    """Stands at the beginning."""
    made = Consumer()
    yield made
    await made.close()


def seek(consumer: Consumer) -> None:
    consumer.fetcher.seek_to(TP, 0)


def seek_to_beginning(consumer: Consumer) -> None:
    reset = consumer.fetcher.request_offset_reset([TP], OffsetResetStrategy.EARLIEST)
    consumer.state.reset_to(0)
    asyncio.ensure_future(reset).cancel()


@pytest.mark.parametrize("goes_back", [seek, seek_to_beginning])
async def test_what_was_delivered_is_to_be_flushed_though_the_application_goes_back_at_once(
    consumer: Consumer, goes_back: Callable[[Consumer], None]
) -> None:
    """FLUSH-BEFORE-LOAD: nobody has looked at where the member stood in between."""
    consumer.state.consumed_to(7)
    goes_back(consumer)
    consumer.driver.goes_elsewhere()
    assert consumer.driver.moves.unflushed == {TP}


async def test_who_got_nothing_owes_nothing(consumer: Consumer) -> None:
    """Going to where one stands is no reason to call the application."""
    seek(consumer)
    consumer.driver.goes_elsewhere()
    assert consumer.driver.moves.unflushed == set()
