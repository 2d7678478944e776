"""The SDK: aiokafka's clients, speaking Kordon's dialect (KIP-253) where a Kordon answers, and plain Kafka elsewhere.

docs/sdk.md tells how to use it, `examples/` shows it. `producer.py` is a way in, with `homes.py` as its pure core and
`outbox.py` as what holds records; `consumer.py` is the other, with `moves.py` as its pure core and `keeper.py` as what
performs. `dialect_client.py` has the connections that all clients stand on, `layouts.py` what Metadata tells of a
managed topic. What is used of aiokafka beyond its documentation is listed in tests/client/test_aiokafka_parts.py.
"""

from kordon.client.consumer import OrderedConsumer
from kordon.client.errors import InvalidPartitionMetadataError, OutcomeUnknownError
from kordon.client.group import MixedGroupError
from kordon.client.listener import PartitionKeyRebalanceListener
from kordon.client.producer import OrderedProducer

__all__ = [
    "InvalidPartitionMetadataError",
    "MixedGroupError",
    "OrderedConsumer",
    "OrderedProducer",
    "OutcomeUnknownError",
    "PartitionKeyRebalanceListener",
]
