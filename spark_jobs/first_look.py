"""Whether an audit can begin, and whether the brokers answer: causes and cures in the words of whoever runs it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from pyspark.sql import SparkSession

from kordon.spark_jobs import findings
from kordon.spark_jobs.brokers import BrokersUnavailable, Cluster, NotAllowed
from kordon.spark_jobs.errors import CannotCheck, cause_of
from kordon.spark_jobs.findings import Sinks
from kordon.spark_jobs.sources import Reading

log: Final = logging.getLogger("kordon.audit")


def look(spark: SparkSession, reading: Reading, sinks: Sinks, cluster: Cluster | None) -> None:
    """Looks whether all can be reached that an audit reads and writes, and makes the topic for findings.

    Raises:
        CannotCheck: Something cannot be reached.
    """
    if sinks.table is not None:
        sinks.table.check(spark)
    if reading.folder is not None and not reading.folder.is_dir():
        raise CannotCheck(f"{reading.folder} is no folder of decision files")
    if cluster is None:
        return
    if not _has_decisions(reading, cluster):
        raise CannotCheck(
            f"there is no topic {reading.decisions_topic}: Kordon writes it if `decisions.to` is `topic`, and "
            f"hides it from its clients, so --bootstrap must name brokers"
        )
    if sinks.topic is not None:
        _make(cluster, sinks.topic.name)


def see(cluster: Cluster | None, topics: Iterable[str]) -> None:
    """Looks whether topics may be seen: what cannot be read would be judged as if it did not stand there.

    Raises:
        CannotCheck: A topic may not be seen.
    """
    try:
        if cluster is not None:
            cluster.partitions(topics)
    except BrokersUnavailable as error:
        raise CannotCheck(cause_of(str(error))) from error


def _has_decisions(reading: Reading, cluster: Cluster) -> bool:
    """Returns whether there are decisions; asks the brokers also if decisions are in files."""
    try:
        return bool(cluster.partitions([reading.decisions_topic])) or reading.folder is not None
    except NotAllowed as error:
        if reading.folder is None:
            raise CannotCheck(cause_of(str(error))) from error
        return True
    except BrokersUnavailable as error:
        raise CannotCheck(f"the auditor cannot ask any broker of --bootstrap {reading.bootstrap}: {error}") from error


def _make(cluster: Cluster, topic: str) -> None:
    """Makes the topic for findings, if it is not there; who may not make topics may write to one all the same."""
    try:
        if not _sees(cluster, topic):
            cluster.make_topic(topic, findings.TOPIC_CONFIGS)
    except BrokersUnavailable as error:
        log.warning(
            "the auditor cannot create the topic %s (%s): create it with cleanup.policy=compact and allow the "
            "auditor's user (--config) to write it, or do without it by --findings-topic ''",
            topic,
            error,
        )


def _sees(cluster: Cluster, topic: str) -> bool:
    try:
        return bool(cluster.partitions([topic]))
    except NotAllowed:
        return False


class BrokersAway:
    """Says once that brokers are away, and once that they are back.

    Args:
        cluster: The brokers; None: there are none to ask, which counts as an answer.
        topic: The topic that is asked for.
    """

    def __init__(self, cluster: Cluster | None, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._is_missed = False

    def do_answer(self) -> bool:
        """Asks the brokers, and returns whether they answer."""
        if self._cluster is None:
            return True
        try:
            self._cluster.partitions([self._topic])
        except BrokersUnavailable as error:
            self.miss(error)
            return False
        self.meet()
        return True

    def miss(self, error: BrokersUnavailable) -> None:
        """Notes that they have not answered."""
        if not self._is_missed:
            log.warning("the audit waits for the brokers: %s", cause_of(str(error)))
        self._is_missed = True

    def meet(self) -> None:
        """Notes that they have."""
        if self._is_missed:
            log.info("the brokers answer again")
        self._is_missed = False
