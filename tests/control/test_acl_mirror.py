"""The ACLs of faces follow those of their topics, whatever was there before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kordon.proxy.control.acl_mirror import CREATE_ACLS, DESCRIBE_ACLS, Acl, AclMirror
from kordon.proxy.control.authorizer import Authorizer
from kordon.proxy.control.ends import TopicsRefused
from kordon.proxy.control.operations import Operation
from kordon.proxy.control.own_rights import Missing

READ, DESCRIBE, WRITE, ALLOW, LITERAL, PREFIXED = 3, 8, 4, 3, 3, 4
CLUSTER_AUTHORIZATION_FAILED = 31
ALICE, BOB = Acl("User:alice", "*", READ, ALLOW), Acl("User:bob", "*", DESCRIBE, ALLOW)


class Broker:
    """A broker's ACLs of topics."""

    def __init__(self) -> None:
        self.acls: set[tuple[int, str, Acl]] = set()
        self.changes = 0
        self.refuses = 0

    async def ask_any(self, api_key: int, versions: range, fields: dict[str, Any]) -> Any:
        """Tells or changes them."""
        if api_key == DESCRIBE_ACLS:
            rows = [
                SimpleNamespace(
                    pattern_type=pattern,
                    resource_name=name,
                    acls=[SimpleNamespace(**acl._asdict() | {"permission_type": acl.permission})],
                )
                for pattern, name, acl in self._grouped()
            ]
            return SimpleNamespace(error_code=self.refuses, error_message=None, resources=rows)
        self.changes += 1
        rows = fields["creations" if api_key == CREATE_ACLS else "filters"]
        for row in rows:
            name = row.get("resource_name") or row["resource_name_filter"]
            principal = row.get("principal") or row["principal_filter"]
            host = row.get("host") or row["host_filter"]
            entry = (LITERAL, name, Acl(principal, host, row["operation"], row["permission_type"]))
            self.acls.add(entry) if api_key == CREATE_ACLS else self.acls.remove(entry)
        done = [SimpleNamespace(error_code=0, error_message=None)] * len(rows)
        return {"results": done, "filter_results": done}

    def _grouped(self) -> list[tuple[int, str, Acl]]:
        names = [(pattern, name) for pattern, name, _ in self.acls]
        assert len(names) == len(set(names)), "this broker has one ACL for each pattern"
        return sorted(self.acls)

    def on_face(self) -> set[Acl]:
        """Returns those of the face of `orders`."""
        return {acl for _, name, acl in self.acls if name == "__kordon.orders"}


async def test_a_face_follows_its_topic() -> None:
    """What is new is added, what was revoked or put there by others goes; nothing is written where nothing changes."""
    broker = Broker()
    mirror = AclMirror(cast("Any", broker))
    broker.acls = {(LITERAL, "orders", ALICE), (LITERAL, "__kordon.orders", BOB), (LITERAL, "other", BOB)}
    await mirror.mirror({"orders"})
    assert broker.on_face() == {ALICE}
    changes = broker.changes
    await mirror.mirror({"orders"})
    assert broker.changes == changes
    broker.acls -= {(LITERAL, "orders", ALICE)}
    await mirror.mirror({"orders"})
    assert broker.on_face() == set()


async def test_a_topic_that_is_managed_no_more_leaves_none_behind() -> None:
    """Kafka keeps ACLs of topics that are deleted: the next topic of this name would have them."""
    broker = Broker()
    mirror = AclMirror(cast("Any", broker))
    broker.acls = {(PREFIXED, "ord", ALICE)}
    await mirror.mirror({"orders"})
    assert broker.on_face() == {ALICE}
    await mirror.mirror(set())
    assert broker.on_face() == set()


async def test_acls_of_kordons_own_are_left_alone() -> None:
    """What an operator gives on `__kordon.` or on the layouts is none of the mirror's."""
    broker = Broker()
    own = {(PREFIXED, "__kordon.", ALICE), (LITERAL, "__kordon.layouts", BOB)}
    broker.acls = set(own)
    await AclMirror(cast("Any", broker)).mirror({"orders"})
    assert broker.acls == own


async def test_what_kordon_may_not_read_is_an_error_and_no_empty_list() -> None:
    """Else all ACLs of faces would be taken away."""
    broker = Broker()
    mirror = AclMirror(cast("Any", broker))
    broker.acls = {(LITERAL, "orders", ALICE)}
    await mirror.mirror({"orders"})
    broker.refuses = CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(TopicsRefused):
        await mirror.mirror({"orders"})
    assert broker.on_face() == {ALICE}


@pytest.mark.parametrize("present", [True, False])
async def test_a_topic_is_not_managed_while_kordon_lacks_a_right_for_it(*, present: bool) -> None:
    """Where there is an authorizer; where there is none nothing is asked."""

    async def has_authorizer() -> bool:
        return present

    async def missing(topics: list[str]) -> list[Missing]:
        return [Missing([Operation.WRITE], f"--topic {topics[0]}", "User:kordon")]

    access = SimpleNamespace(has_authorizer=has_authorizer, missing=missing)
    authorizer = Authorizer(cast("Any", access), AclMirror(cast("Any", None)))
    assert authorizer.present, "as long as nothing is known"
    if present:
        with pytest.raises(TopicsRefused, match="--operation Write --topic orders"):
            await authorizer.admit("orders")
    else:
        await authorizer.admit("orders")
    assert authorizer.present == present
