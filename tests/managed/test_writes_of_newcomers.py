"""Writes to a physical partition that a worker has not heard of yet: without brokers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kordon.codecs.produce import PartitionData, ProduceRequest, TopicData
from kordon.proxy.control.codes import Code
from kordon.proxy.decisions.journal import Client
from kordon.proxy.managed.lanes import Lanes
from kordon.proxy.managed.produce import ProduceService, physical_partition
from kordon.proxy.managed.topics import ManagedTopic, ManagedTopics
from kordon.proxy.ordering.layout import Layout

NOTHING: Any = None
BEFORE = Layout.created("orders", UUID(int=1), 2, 8)
"""What the worker knows, in the layout epoch 0: partitions 0 and 1."""


@pytest.mark.parametrize(
    ("layout_epoch", "error"),
    [
        pytest.param(1, Code.NOT_LEADER_OR_FOLLOWER, id="the client knows of a newer layout"),
        pytest.param(0, Code.INVALID_PARTITION_METADATA, id="the client knows what the worker knows"),
        pytest.param(-1, Code.INVALID_PARTITION_METADATA, id="the client does not say"),
    ],
)
async def test_a_worker_that_is_behind_proves_nothing(layout_epoch: int, error: Code) -> None:
    """2 came with layout 1 and is gone since, and the client asks what became of its batch there (OUTCOME-FIRST).

    INVALID_PARTITION_METADATA would say that it stands nowhere, and its records would be written once more.
    """
    topics = ManagedTopics()
    topics.add(ManagedTopic(BEFORE, UUID(int=2)))
    asked = [TopicData("orders", None, [PartitionData(2, memoryview(b"any"))], 3, layout_epoch)]
    service = ProduceService(topics, Lanes(topics, NOTHING, NOTHING, lambda: True), physical_partition)
    ((_, _, (outcome,)),) = await service.write(9, ProduceRequest(None, -1, 10_000, asked), Client(1))
    assert (outcome.partition, outcome.error_code) == (2, error)
