"""AlterReplicaLogDirs: refused for managed topics, done by the broker for the others.

A client that was shown virtual partitions would move others than it means. In the dialect it passes, as DescribeLogDirs
does in both views: the bytes on disk are those of physical partitions.
"""

from __future__ import annotations

from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import AlterReplicaLogDirsRequest as Request
from kordon.codecs.bodies import AlterReplicaLogDirsRequestDir as RequestDir
from kordon.codecs.bodies import AlterReplicaLogDirsRequestTopic as RequestTopic
from kordon.codecs.bodies import AlterReplicaLogDirsResponse as Response
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.alter_partition_reassignments import record_not_moved, why_not_moved
from kordon.proxy.handlers.api_handler import HeldRequest, TranslatedApi
from kordon.proxy.topics.managed_topics import ManagedTopics

_NO_LOG_DIR: Final = ""
_NO_SUCH_LOG_DIR: Final = frozenset({Code.KAFKA_STORAGE_ERROR, Code.LOG_DIR_NOT_FOUND})


class AlterReplicaLogDirs(TranslatedApi[Request, Response]):
    """Refuses to move replicas of managed topics to other log dirs; moves the others.

    There is no error of the whole answer, so the broker is asked to move them where nothing can be: it looks at the
    client's rights first.
    """

    key = apis.ALTER_REPLICA_LOG_DIRS

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Replaces the log dir by one that does not exist, for replicas that may not be moved."""
        withheld: list[RequestTopic] = []
        for log_dir in value.dirs:
            withheld += [row for row in log_dir.topics if why_not_moved(row.name, topics) is not None]
            log_dir.topics = [row for row in log_dir.topics if why_not_moved(row.name, topics) is None]
        if withheld:
            value.dirs.append(RequestDir(path=_NO_LOG_DIR, topics=withheld))
        return bool(withheld)

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Sets the error, unless the broker has a reason of its own; there is no room for a message."""
        for topic in value.results:
            reason = why_not_moved(topic.topic_name, topics)
            for row in topic.partitions:
                if reason is not None and row.error_code in _NO_SUCH_LOG_DIR:
                    row.error_code = reason[0]

    def record(self, held: HeldRequest, answer: Response) -> None:
        """Records what Kordon has refused."""
        record_not_moved(held, answer, ((row.topic_name, row.partitions) for row in answer.results))
