"""A share group's config as brokers tell it: what they leave out has Kafka's default, and it is kept for seconds."""

import time
from typing import Any, cast

import pytest

from kordon.codecs.bodies import (
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
)
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.share_group_configs import KEPT_SECONDS, ShareGroupConfig, ShareGroupConfigs
from kordon.proxy.ordering.lookups import EARLIEST, LATEST

NOW_MS = 10_000_000_000


class Brokers:
    """Tell what they are told."""

    def __init__(self) -> None:
        self.values: dict[str, str | None] = {}
        self.asked = 0

    async def ask_any(self, api: Any, versions: range, body: Any) -> DescribeConfigsResponse:
        self.asked += 1
        configs = [DescribeConfigsResponseConfig(name=name, value=value) for name, value in self.values.items()]
        return DescribeConfigsResponse(results=[DescribeConfigsResponseResult(error_code=0, configs=configs)])


async def told(**values: str) -> ShareGroupConfig:
    brokers = Brokers()
    brokers.values = {f"share.{name.replace('_', '.')}": value for name, value in values.items()}
    return await ShareGroupConfigs(cast("Any", brokers)).of("g")


async def test_what_brokers_leave_out_is_as_kafka_has_it() -> None:
    """Brokers before 4.3 know fewer configs."""
    assert await told() == ShareGroupConfig()
    found = await told(record_lock_duration_ms="15000", delivery_count_limit="3", isolation_level="read_committed")
    assert found == ShareGroupConfig(lock_ms=15_000, most_tries=3, is_committed=True)
    with pytest.raises(UpstreamUnavailable):
        await told(delivery_count_limit="many")


@pytest.mark.parametrize(
    ("reset", "begins_at"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("by_duration:PT1H", NOW_MS - 3_600_000),
        ("by_duration:P1DT2M3.5S", NOW_MS - 86_523_000),
        ("by_duration:P20000D", 0),
    ],
)
async def test_a_group_begins_where_its_config_says(reset: str, begins_at: int) -> None:
    """A duration is as Java writes it."""
    assert (await told(auto_offset_reset=reset)).begins_at(NOW_MS) == begins_at


async def test_a_config_is_believed_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request needs it."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    brokers = Brokers()
    configs = ShareGroupConfigs(cast("Any", brokers))
    await configs.of("g")
    await configs.of("g")
    now[0] += KEPT_SECONDS
    brokers.values["share.delivery.count.limit"] = "9"
    assert ((await configs.of("g")).most_tries, brokers.asked) == (9, 2)
