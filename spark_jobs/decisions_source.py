"""Decisions as shipments: from the topic, by Spark's Kafka source, or from JSON-lines files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from kordon.spark_jobs.brokers import Security
from kordon.spark_jobs.judging.intake import of_decisions
from kordon.spark_jobs.judging.shipments import RecordBatch, together
from kordon.spark_jobs.session import parts_of
from kordon.spark_jobs.tasks import COLUMNS, forget_archives

TOPIC: Final = "__kordon.decisions"
MAX_DECISIONS: Final = 200_000
"""In a micro-batch."""


def from_topic(
    spark: SparkSession, bootstrap: str, security: Security, *, topic: str = TOPIC, most: int = MAX_DECISIONS
) -> DataFrame:
    """Returns the stream of decisions of a topic."""
    options: dict[str, Any] = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": most,
        # what retention took is a gap in workers' numbers: a finding, not the end of the job
        "failOnDataLoss": "false",
    }
    rows = spark.readStream.format("kafka").options(**options, **java_security(security)).load()
    return rows.select("value", "partition", "offset").mapInArrow(_reader(parts_of(spark)), COLUMNS)


def _reader(parts: int) -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    def read(tables: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for table in tables:
            if table.num_rows:
                values, partitions, offsets = (column.to_pylist() for column in table.columns)
                name, first = str(partitions[0]), int(offsets[0])
                yield from together(of_decisions(values, partitions, offsets, name=name, first=first, parts=parts))
        forget_archives()

    return read


def from_files(spark: SparkSession, folder: Path, options: Mapping[str, str]) -> DataFrame:
    """Returns the stream of decisions of a folder (`files_source.py`, which knows the options)."""
    return spark.readStream.format("kordon.decision-files").options(folder=str(folder.absolute()), **options).load()


def java_security(security: Security) -> dict[str, str]:
    """Returns how brokers are reached in the words of Java's client, as options of Spark's Kafka source and sink."""
    found = {"security.protocol": security.security_protocol}
    if security.ssl_cafile:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": security.ssl_cafile}
    if security.ssl_certfile and security.ssl_keyfile:
        chain, key = (Path(each).read_text() for each in (security.ssl_certfile, security.ssl_keyfile))
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    if not security.ssl_check_hostname:
        found["ssl.endpoint.identification.algorithm"] = ""
    if security.security_protocol.startswith("SASL"):
        module = "scram.ScramLoginModule" if "SCRAM" in security.sasl_mechanism else "plain.PlainLoginModule"
        name, password = _quoted(security.sasl_plain_username), _quoted(security.sasl_plain_password)
        jaas = f"org.apache.kafka.common.security.{module} required username={name} password={password};"
        found |= {"sasl.mechanism": security.sasl_mechanism, "sasl.jaas.config": jaas}
    return {f"kafka.{name}": value for name, value in found.items()}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
