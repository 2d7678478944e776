"""CreatePartitions: of a managed topic it is the wish for a resize, to more or fewer physical partitions.

Clients need the right to alter the topic. Refused are counts that N and V do not allow, and topics that are not served.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import CreatePartitionsRequest as Request
from kordon.codecs.bodies import CreatePartitionsResponse as Response
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.topic_wishes import TakenOut, WishedApi
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.hashing import why_not
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.wishes import Resize, Wish
from kordon.proxy.topics.managed_topics import ManagedTopics


class CreatePartitions(WishedApi[Request, Response]):
    """Takes managed topics that are to be resized."""

    key = apis.CREATE_PARTITIONS
    right = Operation.ALTER
    answered = "results"

    def take(self, value: Request, topics: ManagedTopics) -> TakenOut | None:
        """Takes out managed topics."""
        wishes: dict[str, Wish | OutcomeRecord] = {}
        left = []
        for row in value.topics:
            managed = topics.named(row.name)
            if row.name in topics.unserved:
                wishes[row.name] = OutcomeRecord(Code.INVALID_REQUEST, topics.unserved[row.name])
            elif managed is None:
                left.append(row)
            else:
                problem = why_not(managed.layout.n, row.count, managed.layout.v_count)
                refused = OutcomeRecord(Code.INVALID_PARTITIONS, problem) if problem else None
                wishes[row.name] = refused or Resize(row.name, row.count)
        value.topics = left
        return TakenOut(wishes, bool(left)) if wishes else None
