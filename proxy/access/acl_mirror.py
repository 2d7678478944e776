"""Keeps the ACLs of faces like those of their topics (FACE-RIGHTS): commits and subscriptions of groups name faces.

A face gets what its topic's ACLs allow of reading and describing, and no more: nobody has to write, change or delete
it. Denials are taken over as they are. ACLs that match every topic match faces by themselves.

    orders   User:alice  Read   Allow    literal, or prefixed ("ord")
    face     User:alice  Read   Allow    literal: a prefix could match topics of Kordon's own
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from kordon.codecs.bodies import (
    CreateAclsRequest,
    CreateAclsRequestCreation,
    CreateAclsResponseResult,
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DeleteAclsResponseFilterResult,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeAclsResponseResource,
)
from kordon.codecs.error_codes import name_of
from kordon.codecs.messages import create_acls, delete_acls, describe_acls
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.topics.managed_topics import face_of

log = structlog.get_logger(__name__)

_VERSIONS: Final = range(1, 4)
_TOPIC: Final = 2
_ANY: Final = 1
_LITERAL: Final = 3
_ALLOW: Final = 3
_ALL: Final = 2
_EVERYTHING: Final = "*"
_READ, _DESCRIBE, _DESCRIBE_CONFIGS = Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS
_ON_FACE: Final[Mapping[int, tuple[int, ...]]] = {
    _ALL: (_READ, _DESCRIBE),
    Operation.READ: (_READ,),
    Operation.WRITE: (_DESCRIBE,),  # these three imply it
    Operation.DELETE: (_DESCRIBE,),
    Operation.ALTER: (_DESCRIBE,),
    Operation.DESCRIBE: (_DESCRIBE,),
}
"""By what is allowed on the topic."""
_NOTHING_MUCH: Final = (_DESCRIBE_CONFIGS,)
"""For all else: with allow.everyone.if.no.acl.found a face without any ACL would be open to all."""


class Acl(NamedTuple):
    """A right or its denial, in numbers as on the wire (AclOperation, AclPermissionType of Kafka 4.3)."""

    principal: str
    host: str
    operation: int
    permission: int


Acls = Mapping[tuple[int, str], frozenset[Acl]]
"""Of topics, by pattern type and name."""


def wanted_of_face(topic: str, acls: Acls) -> frozenset[Acl]:
    """Returns the ACLs that a topic's face is to have."""
    matching = (
        acl
        for (pattern, name), found in acls.items()
        if name != _EVERYTHING and (name == topic if pattern == _LITERAL else topic.startswith(name))
        for acl in found
    )
    return frozenset(each for acl in matching for each in _on_face(acl))


def _on_face(acl: Acl) -> Iterable[Acl]:
    if acl.permission != _ALLOW:
        return (acl,)
    return (acl._replace(operation=each) for each in _ON_FACE.get(acl.operation, _NOTHING_MUCH))


class AclMirror:
    """Mirrors ACLs, for the controller."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._known: frozenset[str] = frozenset()  # topics whose faces have been looked after

    async def mirror(self, topics: Collection[str]) -> None:
        """Makes the ACLs of faces what they should be; those of topics that are managed no more go.

        Raises:
            TopicsRefused: Kordon may not describe or alter the cluster's ACLs.
            UpstreamUnavailable: No broker answers.
        """
        acls = await self._read()
        wanted = {topic: wanted_of_face(topic, acls) for topic in topics}
        wanted |= dict.fromkeys(self._known - wanted.keys(), frozenset[Acl]())
        present = {topic: acls.get((_LITERAL, face_of(topic)), frozenset[Acl]()) for topic in wanted}
        await self._create(_pairs(wanted, present))
        await self._delete(_pairs(present, wanted))
        self._known = frozenset(topics)

    async def add(self, topic: str) -> None:
        """Gives the face of a topic that is about to be managed its ACLs.

        Raises:
            TopicsRefused: Kordon may not describe or alter the cluster's ACLs.
            UpstreamUnavailable: No broker answers.
        """
        await self.mirror(self._known | {topic})

    async def _read(self) -> Acls:
        return {
            (row.pattern_type, row.resource_name): frozenset(
                Acl(acl.principal, acl.host, acl.operation, acl.permission_type) for acl in row.acls
            )
            for row in await read_acls(self._brokers, _TOPIC)
        }

    async def _create(self, changes: Sequence[tuple[str, Acl]]) -> None:
        if changes:
            asked = CreateAclsRequest(creations=[_creation(face_of(topic), acl) for topic, acl in changes])
            answer = await self._brokers.ask_any(create_acls.API, _VERSIONS, asked)
            for told in _done(changes, answer.results):
                log.info("acl_mirrored", **told)

    async def _delete(self, changes: Sequence[tuple[str, Acl]]) -> None:
        if changes:
            asked = DeleteAclsRequest(filters=[_deletion(face_of(topic), acl) for topic, acl in changes])
            answer = await self._brokers.ask_any(delete_acls.API, _VERSIONS, asked)
            for told in _done(changes, answer.filter_results):
                log.info("acl_unmirrored", **told)


def _done(
    changes: Iterable[tuple[str, Acl]], results: Iterable[CreateAclsResponseResult | DeleteAclsResponseFilterResult]
) -> Iterator[dict[str, str | int]]:
    """Yields what the log says of each change; raises TopicsRefused at the first that was refused."""
    for (topic, acl), result in zip(changes, results, strict=True):
        _refuse(f"ACLs of {face_of(topic)}", result)
        yield {"topic": topic, "principal": acl.principal, "host": acl.host, "operation": acl.operation}


async def read_acls(brokers: Brokers, resource_type: int = _ANY) -> Sequence[DescribeAclsResponseResource]:
    """Asks a broker for the cluster's ACLs.

    Args:
        resource_type: The resource type, as its number on the wire; by default all types.

    Returns:
        A row of the answer for each resource, with its ACLs.

    Raises:
        TopicsRefused: Kordon may not describe the cluster's ACLs.
        UpstreamUnavailable: No broker answers.
    """
    asked = DescribeAclsRequest(
        resource_type_filter=resource_type,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = await brokers.ask_any(describe_acls.API, _VERSIONS, asked)
    _refuse("reading ACLs", answer)
    return answer.resources


def _pairs(these: Mapping[str, frozenset[Acl]], without: Mapping[str, frozenset[Acl]]) -> list[tuple[str, Acl]]:
    return [(topic, acl) for topic in sorted(these) for acl in sorted(these[topic] - without[topic])]


def _creation(face: str, acl: Acl) -> CreateAclsRequestCreation:
    return CreateAclsRequestCreation(
        resource_type=_TOPIC,
        resource_name=face,
        resource_pattern_type=_LITERAL,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _deletion(face: str, acl: Acl) -> DeleteAclsRequestFilter:
    return DeleteAclsRequestFilter(
        resource_type_filter=_TOPIC,
        resource_name_filter=face,
        pattern_type_filter=_LITERAL,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _refuse(
    what: str, result: DescribeAclsResponse | CreateAclsResponseResult | DeleteAclsResponseFilterResult
) -> None:
    if result.error_code:
        raise TopicsRefused(what, result.error_code, result.error_message or name_of(result.error_code))
