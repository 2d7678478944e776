"""ACLs as clients see them: those of faces, which the controller keeps, are hidden.

A tool that makes ACLs what a file says would otherwise take them away with each run, and they would come again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kordon.codecs import apis
from kordon.proxy.topics.managed_topics import ManagedTopics, face_of

_TOPIC: Final = 2
_LITERAL: Final = 3


class DescribeAcls:
    """Translates DescribeAcls."""

    answers_always = True

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Asks what the client asks."""
        return False

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Leaves out the ACLs of faces."""
        value["resources"] = [row for row in value.resources if not _is_of_face(row, topics)]
        return True


class DeleteAcls:
    """Translates DeleteAcls; what a filter takes from a face comes again if the topic still has it."""

    answers_always = True

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Asks what the client asks."""
        return False

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Does not tell of the ACLs of faces."""
        for result in value.filter_results:
            result["matching_acls"] = [row for row in result.matching_acls if not _is_of_face(row, topics)]
        return True


def _is_of_face(row: Any, topics: ManagedTopics) -> bool:
    is_literal = row.resource_type == _TOPIC and row.get("pattern_type", _LITERAL) == _LITERAL
    return is_literal and any(row.resource_name == face_of(topic.name) for topic in topics)


TRANSLATIONS: Final[Mapping[int, Any]] = {apis.DESCRIBE_ACLS: DescribeAcls(), apis.DELETE_ACLS: DeleteAcls()}
"""By api key."""
