"""Bytes to values and back: primitives, one table per Kafka message, record batches.

Knows nothing of connections, policy or Spark.
"""
