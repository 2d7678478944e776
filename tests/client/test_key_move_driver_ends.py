"""A consumer's driver of key moves ends when it is told to, whatever happens in the same moment."""

import asyncio
from typing import Any

from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.structs import TopicPartition

from kordon.client.calls import Calls
from kordon.client.dialect_client import DialectClient
from kordon.client.key_move_driver import KeyMoveDriver


async def test_a_driver_that_is_woken_while_it_is_ended_ends() -> None:
    """asyncio.wait_for forgets a cancellation that comes together with what it waits for (Python before 3.12)."""
    untyped: Any = SubscriptionState
    subscription = untyped()
    subscription.assign_from_user([TopicPartition("nobody-knows", 0)])
    driver = KeyMoveDriver(
        DialectClient(),
        subscription,
        calls=Calls(1.0),
        heartbeat_seconds=60,
        resume=lambda: None,
        withhold=lambda _: None,
    )
    driver.take(subscription.subscription.assignment, None, {})
    await asyncio.sleep(0.1)  # it waits until it is time to look again
    driver.look()
    ending = asyncio.ensure_future(driver.close())
    _, late = await asyncio.wait({ending}, timeout=60)
    assert not late
