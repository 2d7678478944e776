"""Who besides Kordon may change its own topics, group and transactional id at the brokers, and what forbids it.

Clients that go through Kordon reach none of them. Those who go round it are held back by ACLs alone, and an ACL on `*`
gives away more than whoever wrote it thought of (docs/security.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final, NamedTuple

from kordon.codecs.bodies import DescribeAclsResponseResource
from kordon.proxy.access.acl_mirror import read_acls
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.own_topics.layouts_writer import TRANSACTIONAL_ID
from kordon.proxy.topics.managed_topics import OWN_PREFIX

_TOPIC, _GROUP, _TRANSACTIONAL_ID = 2, 3, 5
_LITERAL: Final = 3
_ALL: Final = 2
_DENY, _ALLOW = 2, 3
_EVERYTHING: Final = "*"
_EVERYWHERE: Final = "*"
_EVERYBODY: Final = "User:*"
NO_AUTHORIZER: Final = (
    "brokers have no authorizer: whoever reaches them may change Kordon's own topics; let clients reach only Kordon"
)


class AclRow(NamedTuple):
    """One ACL; numbers as on the wire."""

    resource_type: int
    pattern: int
    name: str
    principal: str
    operation: int
    permission: int
    host: str = "*"
    """From where; * is from everywhere."""


@dataclass(frozen=True, slots=True)
class _OwnThing:
    """Something of Kordon's own."""

    resource_type: int
    name: str
    is_prefix: bool
    operations: frozenset[int]
    """The operations that would harm."""
    resource: str
    """The flag of kafka-acls.sh."""

    def covers(self, row: AclRow, *, wholly: bool) -> bool:
        """Whether an ACL is about it, or about some of it; `wholly`: about all of it, from everywhere."""
        if row.resource_type != self.resource_type or (wholly and row.host != _EVERYWHERE):
            return False
        if row.pattern == _LITERAL:
            some = self.is_prefix and not wholly and row.name.startswith(self.name)
            return some or row.name == _EVERYTHING or (row.name == self.name and not self.is_prefix)
        return self.name.startswith(row.name) or (self.is_prefix and not wholly and row.name.startswith(self.name))


def open_rights(rows: Iterable[AclRow], group: str, principal: str | None) -> list[str]:
    """Names a principal, the right that it should not have, and the command that forbids it.

    Args:
        rows: All ACLs of the cluster.
        principal: Kordon's own principal; None: it is not known.
    """
    found = list(rows)
    return [line for own in _owned(group) for line in _open(own, found, principal)]


def _owned(group: str) -> Iterator[_OwnThing]:
    on_topics = frozenset({Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS})
    prefixed = f"--topic {OWN_PREFIX} --resource-pattern-type prefixed"
    yield _OwnThing(_TOPIC, OWN_PREFIX, True, on_topics, prefixed)
    yield _OwnThing(_GROUP, group, False, frozenset({Operation.READ, Operation.DELETE}), f"--group {quote(group)}")
    id_ = f"--transactional-id {TRANSACTIONAL_ID}"
    yield _OwnThing(_TRANSACTIONAL_ID, TRANSACTIONAL_ID, False, frozenset({Operation.WRITE}), id_)


def _open(own: _OwnThing, rows: Collection[AclRow], principal: str | None) -> Iterator[str]:
    allowed = _by_principal(own, (row for row in rows if row.permission == _ALLOW), wholly=False)
    denied = _by_principal(own, (row for row in rows if row.permission == _DENY), wholly=True)
    for who, operations in sorted(allowed.items()):
        left = operations - denied.get(who, frozenset()) - denied.get(_EVERYBODY, frozenset())
        if left and who != principal:
            yield _told(own, who, sorted(left), principal)


def _by_principal(own: _OwnThing, rows: Iterable[AclRow], *, wholly: bool) -> Mapping[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for row in rows:
        if own.covers(row, wholly=wholly):
            operations = own.operations if row.operation == _ALL else own.operations & {row.operation}
            found[row.principal] = found.get(row.principal, frozenset()) | operations
    return found


def _told(own: _OwnThing, who: str, operations: Iterable[int], principal: str | None) -> str:
    words = [Operation(each).word for each in operations]
    options = " ".join(f"--operation {word}" for word in words)
    unless = "" if principal is not None else ", unless that is Kordon itself"
    if who == _EVERYBODY:
        cure = "grant it to the principals that need it, not to everybody"
    else:
        cure = f"kafka-acls.sh --bootstrap-server BROKER --add --deny-principal {quote(who)} {options} {own.resource}"
    return f"{who} may {', '.join(words)} {own.name} at the brokers{unless}; forbid it: {cure}"


class OpenRights:
    """Reads the cluster's ACLs.

    Args:
        principal: Kordon's own principal; None: it is not known.
    """

    def __init__(self, brokers: Brokers, principal: str | None, group: str) -> None:
        self._brokers = brokers
        self._principal = principal
        self._group = group

    async def find(self) -> list[str]:
        """Returns what is open, with what closes it.

        Raises:
            TopicsRefused: Kordon may not describe the cluster's ACLs.
            UpstreamUnavailable: No broker answers.
        """
        return open_rights(_rows(await read_acls(self._brokers)), self._group, self._principal)


def _rows(resources: Sequence[DescribeAclsResponseResource]) -> Iterator[AclRow]:
    for row in resources:
        for acl in row.acls:
            yield AclRow(
                row.resource_type,
                row.pattern_type,
                row.resource_name,
                acl.principal,
                acl.operation,
                acl.permission_type,
                acl.host,
            )
