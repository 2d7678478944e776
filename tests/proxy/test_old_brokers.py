"""Brokers that do not speak what Kordon asks for: they are old, and not down."""

import pytest

from kordon.codecs import apis
from kordon.codecs.messages import api
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.testing.fake_broker import FakeBroker

LATER = range(90, 91)


async def test_a_broker_that_lacks_a_version_is_not_down() -> None:
    """Kafka 2.4 has no topic ids, which Kordon asks for every few seconds: operators still see the broker as it is."""
    broker = FakeBroker()
    broker.topology.tried(1, None)
    with pytest.raises(UpstreamUnavailable, match="no common version of Metadata"):
        await broker.ask_any("test", api(apis.METADATA), LATER, {})
    assert broker.topology.nodes[1].error is None


async def test_a_broker_that_cannot_be_reached_is_down() -> None:
    """With the reason."""
    broker = FakeBroker()
    broker.is_away = True
    with pytest.raises(UpstreamUnavailable):
        await broker.ask_any("test", api(apis.METADATA), range(9), {})
    assert broker.topology.nodes[1].error == "nobody answers"
