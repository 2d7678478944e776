"""The SDK: aiokafka's clients, speaking Kordon's dialect (KIP-253) where a Kordon answers, and plain Kafka elsewhere.

`OrderedProducer` is the way in; docs/sdk.md tells how to use it. `dialect_client.py` holds the connections that both
kinds of clients stand on, `layouts.py` what Metadata tells of a managed topic, tests/client/test_aiokafka_parts.py what is relied upon
of aiokafka beyond what it documents.
"""

from kordon.client.errors import InvalidPartitionMetadataError

__all__ = ["InvalidPartitionMetadataError"]
