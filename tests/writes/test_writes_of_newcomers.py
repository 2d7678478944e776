"""Writes to a physical partition that a worker has not heard of yet: without brokers."""

from uuid import UUID

import pytest

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.views import PHYSICAL
from kordon.testing.managed_writes import a_batch
from kordon.testing.random_logs import NAME
from kordon.testing.writes_in_memory import WritesInMemory


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
    async with WritesInMemory(Layout.created(NAME, UUID(int=1), 2, 8), view=PHYSICAL) as lanes:
        assert await lanes.write(2, a_batch("any"), count=3, layout_epoch=layout_epoch) == error
