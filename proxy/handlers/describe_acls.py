"""DescribeAcls: the ACLs of faces, which the controller keeps, are left out, in both views.

A tool that makes ACLs what a file says would otherwise take them away with each run, and they would come again.
"""

from __future__ import annotations

from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import DeleteAclsResponseMatchingAcl, DescribeAclsResponseResource
from kordon.codecs.bodies import DescribeAclsRequest as Request
from kordon.codecs.bodies import DescribeAclsResponse as Response
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.topics.managed_topics import ManagedTopics, face_of

_TOPIC: Final = 2
_LITERAL: Final = 3


class DescribeAcls(TranslatedApi[Request, Response]):
    """Shortens the answers to DescribeAcls."""

    key = apis.DESCRIBE_ACLS
    answers_always = True

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Leaves out the ACLs of faces."""
        value.resources = [row for row in value.resources if not is_of_face(row, topics)]


def is_of_face(row: DescribeAclsResponseResource | DeleteAclsResponseMatchingAcl, topics: ManagedTopics) -> bool:
    """Whether a row is about the face of a managed topic."""
    is_literal = row.resource_type == _TOPIC and row.get("pattern_type", _LITERAL) == _LITERAL
    return is_literal and any(row.resource_name == face_of(topic.name) for topic in topics)
