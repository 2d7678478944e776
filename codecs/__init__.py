"""Bytes to values and back: primitives, one table per Kafka message, record batches.

Begin with `schema`, the language of the tables, and with one of `messages/`, which hold a module per api key. `headers`
says what stands in front of messages, `records` and `consumer_protocol` what is inside of their bytes. `look` and
`skim` read on the hot path, without construct, what the tables define; tests prove them equal. `unpack` is the one
place where records are opened, within a bound.

Knows nothing of connections, policy or Spark.
"""
