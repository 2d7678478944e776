"""The SDK: aiokafka's clients, speaking Kordon's dialect (KIP-253) where a Kordon answers, and plain Kafka elsewhere.

docs/sdk.md tells how to use it, and `examples/` shows it. `producer.py` is one way in: `homes.py` is its pure core,
and `outbox.py` holds its records. `consumer.py` is the other: `moves.py` is its pure core, and `key_move_driver.py`
performs what that asks for. Both stand on the connections of `dialect_client.py` and on what Metadata tells of managed
topics (`layouts.py`). `cooperative/` is a third way in, for many records at a time, and `sources/` a fourth, for
producers that share a source. tests/client/test_aiokafka_parts.py lists what the SDK uses of aiokafka's inside.
"""

from kordon.client.consumer import OrderedConsumer
from kordon.client.cooperative.consumer import CooperativeConsumer
from kordon.client.cooperative.entry import Progress
from kordon.client.cooperative.settings import AcknowledgeType
from kordon.client.errors import (
    InvalidPartitionMetadataError,
    OutcomeUnknownError,
    TransactionAbortableError,
    TransactionRefusedError,
)
from kordon.client.group import MixedGroupError
from kordon.client.listener import PartitionKeyRebalanceListener
from kordon.client.producer import OrderedProducer
from kordon.client.sources.errors import SourceCountError, SourceLeftError, SourcePointError, SourceRebalancedError
from kordon.client.sources.listener import SourceRebalanceListener
from kordon.client.sources.producer import SourceProducer

__all__ = [
    "AcknowledgeType",
    "CooperativeConsumer",
    "InvalidPartitionMetadataError",
    "MixedGroupError",
    "OrderedConsumer",
    "OrderedProducer",
    "OutcomeUnknownError",
    "PartitionKeyRebalanceListener",
    "Progress",
    "SourceCountError",
    "SourceLeftError",
    "SourcePointError",
    "SourceProducer",
    "SourceRebalanceListener",
    "SourceRebalancedError",
    "TransactionAbortableError",
    "TransactionRefusedError",
]
