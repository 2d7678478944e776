"""Decisions as a table of `schema.DECISIONS`: from the topic, by Spark's Kafka source, or from JSON-lines files.

Parsing is `from_json`, a built-in. What is no decision has no kind; the engine counts it and leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import StructType

from kordon.spark_jobs.brokers import Security
from kordon.spark_jobs.schema import DECISIONS

TOPIC: Final = "__kordon.decisions"
MAX_DECISIONS: Final = 500_000
"""In a micro-batch."""
_PLACE: Final = ("log_partition", "log_offset")
_TOLD: Final = StructType([each for each in DECISIONS.fields if each.name not in _PLACE])


def parsed(rows: DataFrame, value: str, log_partition: Column, log_offset: Column) -> DataFrame:
    """Turns records of the decision log into `DECISIONS`."""
    told = F.from_json(F.col(value).cast("string"), _TOLD).alias("told")
    placed = rows.select(told, log_partition.cast("int").alias(_PLACE[0]), log_offset.cast("long").alias(_PLACE[1]))
    return placed.select("told.*", *_PLACE)


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
    return parsed(rows, "value", F.col("partition"), F.col("offset"))


def from_files(spark: SparkSession, folder: Path, options: Mapping[str, str]) -> DataFrame:
    """Returns the stream of decisions of a folder (`files_source.py`, which knows the options)."""
    rows = spark.readStream.format("kordon.decision-files").options(folder=str(folder.absolute()), **options).load()
    return parsed(rows, "value", F.lit(-1), F.lit(None))


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
