"""Brokers that do not speak what Kordon asks for: they are old, and not down."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from kordon.codecs import apis
from kordon.codecs.messages import api
from kordon.proxy.core.errors import NoCommonVersion, UpstreamUnavailable
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.fake_broker import FakeBroker
from kordon.testing.managed_clients import create_managed
from kordon.testing.proxy_process import ProxyProcess

LATER = range(90, 91)


async def test_a_broker_that_lacks_a_version_is_not_down() -> None:
    """Kafka 2.4 has no topic ids, which Kordon asks for every few seconds: operators still see the broker as it is."""
    broker = FakeBroker()
    broker.topology.tried(1, None)
    with pytest.raises(NoCommonVersion, match="no common version of Metadata"):
        await broker.ask_any("test", api(apis.METADATA), LATER, {})
    assert broker.topology.nodes[1].error is None


async def test_a_broker_that_cannot_be_reached_is_down() -> None:
    """With the reason."""
    broker = FakeBroker()
    broker.is_away = True
    with pytest.raises(UpstreamUnavailable) as down:
        await broker.ask_any("test", api(apis.METADATA), range(9), {})
    assert not isinstance(down.value, NoCommonVersion)
    assert broker.topology.nodes[1].error == "nobody answers"


@pytest.mark.broker
@pytest.mark.skipif(not DESCRIBED_PRODUCERS.is_missing, reason="topics can be managed since Kafka 2.8")
def test_whoever_wants_a_managed_topic_is_told_which_brokers_can(kordon: ProxyProcess) -> None:
    """At once, in place of waiting for what does not come."""
    with pytest.raises(KafkaException, match="need brokers of Kafka") as refused:
        create_managed(kordon.bootstrap, "too-new")
    assert refused.value.args[0].code() == KafkaError.UNSUPPORTED_VERSION
