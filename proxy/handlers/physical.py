"""Admin requests about partitions as they lie on brokers, and what becomes of them on managed topics.

    DescribeLogDirs               tells of physical partitions: theirs are the bytes on disk
    ListPartitionReassignments    tells of physical partitions: these are what is moved
    AlterPartitionReassignments   refused: a client that was shown virtual partitions would move others than it means;
    AlterReplicaLogDirs           at the brokers themselves nothing stands in the way of either
    ElectLeaders                  elects the leader of the physical partition on which a virtual one lives
    DescribeProducers             tells of those who wrote to a virtual partition in its present home, as they know
                                  themselves: by their own producer ids and sequences

The broker is asked even where nothing of a request is left for it: whether the client may ask at all is its to say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.identity import MOVES, untag
from kordon.proxy.ordering.images import Written, sequence_of_client
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

_UNKNOWN: Final = {"error_code": Code.UNKNOWN_TOPIC_OR_PARTITION, "error_message": "There is no such partition."}


_NO_LOG_DIR: Final = ""
_NO_SUCH_LOG_DIR: Final = frozenset({Code.KAFKA_STORAGE_ERROR, Code.LOG_DIR_NOT_FOUND})


class AlterPartitionReassignments:
    """Refuses to move partitions of managed topics; moves the others."""

    answers_always = False

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Asks for the others only."""
        left = [row for row in value.topics if _why_not(row.name, topics) is None]
        changed = len(left) < len(value.topics)
        value["topics"] = left
        return changed

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Says of each partition why it is not moved: for the broker's reason, where it does nothing for the client."""
        refused = {name: value[name] for name in ("error_code", "error_message")} if value.error_code else None
        for topic in asked.topics:
            if (reason := _why_not(topic.name, topics)) is not None:
                partitions = [
                    {"partition_index": row.partition_index, **(refused or reason)} for row in topic.partitions
                ]
                value.responses.append({"name": topic.name, "partitions": partitions})
        return True


class AlterReplicaLogDirs:
    """Refuses to move replicas of managed topics to other log dirs; moves the others.

    There is no error of the whole answer, so the broker is asked to move them where nothing can be: it looks at the
    client's rights first.
    """

    answers_always = False

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Replaces the log dir by one that does not exist, for replicas that may not be moved."""
        withheld: list[Any] = []
        for log_dir in value.dirs:
            withheld += [row for row in log_dir.topics if _why_not(row.name, topics) is not None]
            log_dir["topics"] = [row for row in log_dir.topics if _why_not(row.name, topics) is None]
        if withheld:
            value["dirs"] = [*value.dirs, {"path": _NO_LOG_DIR, "topics": withheld}]
        return bool(withheld)

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Sets the error, unless the broker has a reason of its own; there is no room for a message."""
        for topic in value.results:
            reason = _why_not(topic.topic_name, topics)
            for row in topic.partitions if reason is not None else ():
                if row.error_code in _NO_SUCH_LOG_DIR:
                    row.update(reason)
        return True


def _why_not(name: str, topics: ManagedTopics) -> dict[str, Any] | None:
    if topics.named(name) is None:
        return None
    message = f"{name} is a managed topic, its partitions are virtual: move the physical ones at the brokers themselves"
    return {"error_code": Code.INVALID_REQUEST, "error_message": message}


class ElectLeaders:
    """Has the leaders of physical partitions elected where a client names virtual ones."""

    answers_always = True

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Names the homes of virtual partitions, each once."""
        before = list(value.topic_partitions or ())
        rows = [_at_home(row, "topic", "partitions", topics) for row in before]
        if value.topic_partitions is not None:
            value["topic_partitions"] = rows
        return rows != before

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Answers for the virtual partitions that were named, or for all that live where something was done."""
        wanted = {row.topic: row.partitions for row in asked.topic_partitions or ()}
        rows = value.replica_election_results
        for row in rows:
            topic = topics.named(row.topic)
            if topic is not None:
                virtual = wanted.get(row.topic, range(topic.layout.v_count))
                row["partition_result"] = _spread(row.partition_result, "partition_id", virtual, topic)
        return True


class DescribeProducers:
    """Tells who writes to virtual partitions."""

    answers_always = False

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Names the homes of virtual partitions, each once."""
        before = list(value.topics)
        value["topics"] = [_at_home(row, "name", "partition_indexes", topics) for row in before]
        return list(value.topics) != before

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Gives each virtual partition its own producers."""
        wanted = {row.name: row.partition_indexes for row in asked.topics}
        for row in value.topics:
            topic = topics.named(row.name)
            if topic is not None:
                rows = _spread(row.partitions, "partition_index", wanted[row.name], topic)
                row["partitions"] = [
                    {**each, "active_producers": _of(each.get("active_producers", ()), each["partition_index"], topic)}
                    for each in rows
                ]
        return True


def _at_home(row: Any, name: str, field: str, topics: ManagedTopics) -> Any:
    topic = topics.named(row[name])
    if topic is None:
        return row
    return {**row, field: sorted({_home(topic, v) for v in row[field]})}


def _home(topic: ManagedTopic, v: int) -> int:
    """Returns where a virtual partition lives; one that does not exist is the broker's to know nothing of."""
    home = topic.layout.homes[v] if 0 <= v < topic.layout.v_count else None
    return v if home is None else home


def _spread(rows: Iterable[Any], index: str, virtual: Iterable[int], topic: ManagedTopic) -> list[dict[str, Any]]:
    """Gives what was said of physical partitions to the virtual ones that live there."""
    residents: defaultdict[int, list[int]] = defaultdict(list)
    for v in virtual:
        residents[_home(topic, v)].append(v)
    return [{**row, index: v} for row in rows for v in residents.get(row[index], ())]


def _of(producers: Iterable[Any], v: int, topic: ManagedTopic) -> list[dict[str, Any]]:
    """Returns those who wrote to a virtual partition since its last move, as they know themselves."""
    home = topic.layout.chains[v].home if 0 <= v < topic.layout.v_count else None
    found: list[dict[str, Any]] = []
    for producer in producers:
        identity = untag(producer.producer_id)
        if home is None or identity is None or (identity.v, identity.move) != (v, home.move % MOVES):
            continue
        written: Written | None = topic.images.get(v, {}).get(identity.client_id)
        sequence = sequence_of_client(written, producer.producer_epoch, producer.last_sequence)
        found.append({**producer, "producer_id": identity.client_id, "last_sequence": sequence})
    return found


TRANSLATIONS: Final[Mapping[int, Any]] = {
    apis.ALTER_REPLICA_LOG_DIRS: AlterReplicaLogDirs(),
    apis.ELECT_LEADERS: ElectLeaders(),
    apis.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignments(),
    apis.DESCRIBE_PRODUCERS: DescribeProducers(),
}
"""By api key."""
