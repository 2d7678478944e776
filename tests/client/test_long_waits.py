"""Whoever waits for long says so once, with where to look."""

import logging

import pytest
from aiokafka.structs import TopicPartition

from kordon.client.long_waits import LongWaits

FIRST, SECOND = TopicPartition("orders", 1), TopicPartition("orders", 2)


def test_who_waits_for_long_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """And again when it waits for long another time."""
    waits = LongWaits(10)
    for now in (0, 9.9, 10, 11, 50):
        waits.look([FIRST], now)
    assert [record.getMessage()[:24] for record in caplog.records] == ["Held for 10 s: orders-1."]
    waits.look([], 51)
    for now in (52, 70):
        waits.look([FIRST], now)
    assert len(caplog.records) == 2


def test_all_that_have_waited_for_long_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It says what to ask."""
    waits = LongWaits(10)
    with caplog.at_level(logging.WARNING):
        waits.look([SECOND, FIRST], 0)
        waits.look([SECOND, FIRST], 10)
    (record,) = caplog.records
    assert "orders-1, orders-2" in record.getMessage()
    assert "`kordon topics describe orders`" in record.getMessage()
