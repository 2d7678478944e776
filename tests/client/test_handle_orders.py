"""The example of a CooperativeConsumer: orders of each customer are handled in order, also by two members."""

from __future__ import annotations

import asyncio

import pytest

from kordon.client.examples.handle_orders import Orders, handle_orders
from kordon.client.examples.send_orders import send_orders
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker


async def test_orders_are_handled_in_order_and_once(open_cluster: Cluster) -> None:
    """As docs/sdk.md runs it, with two members one after the other."""
    with ProxyProcess.start(open_cluster.bootstrap()) as proxy:
        topic = "orders-of-the-example"
        create_managed(proxy.bootstrap, topic)
        handled: list[Orders] = []
        for _ in range(2):
            await send_orders(proxy.bootstrap, topic, 300)
            handled.append(await asyncio.wait_for(handle_orders(proxy.bootstrap, topic, 300), 120))
    assert [(each.handled, each.customers, each.out_of_order) for each in handled] == [(300, 100, 0)] * 2
