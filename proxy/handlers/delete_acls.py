"""DeleteAcls: the answer does not tell of the ACLs of faces, in both views.

What a filter takes from a face comes again if the topic still has it.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import DeleteAclsRequest as Request
from kordon.codecs.bodies import DeleteAclsResponse as Response
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.handlers.describe_acls import is_of_face
from kordon.proxy.topics.managed_topics import ManagedTopics


class DeleteAcls(TranslatedApi[Request, Response]):
    """Shortens the answers to DeleteAcls."""

    key = apis.DELETE_ACLS
    answers_always = True

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Does not tell of the ACLs of faces."""
        for result in value.filter_results:
            result.matching_acls = [row for row in result.matching_acls if not is_of_face(row, topics)]
