"""The ACLs of faces follow those of their topics, whatever was there before."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kordon.codecs.apis import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from kordon.proxy.access.acl_mirror import Acl, AclMirror
from kordon.proxy.access.authorizer import Authorizer
from kordon.proxy.access.own_rights import Missing
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.kafka.operations import Operation
from kordon.testing.fake_broker import Answer, Asked, FakeBroker

READ, DESCRIBE, WRITE, ALLOW, LITERAL, PREFIXED, TOPIC = 3, 8, 4, 3, 3, 4, 2
CLUSTER_AUTHORIZATION_FAILED = 31
ALICE, BOB = Acl("User:alice", "*", READ, ALLOW), Acl("User:bob", "*", DESCRIBE, ALLOW)


class Broker(FakeBroker):
    """A broker's ACLs of topics."""

    def __init__(self) -> None:
        changing = dict.fromkeys((CREATE_ACLS, DELETE_ACLS), self._change)
        super().__init__(handlers={DESCRIBE_ACLS: self._tell, **changing})
        self.acls: set[tuple[int, str, Acl]] = set()
        self.changes = 0
        self.refuses = 0

    def _tell(self, _: Asked) -> Answer:
        names = [(pattern, name) for pattern, name, _ in self.acls]
        assert len(names) == len(set(names)), "this broker has one ACL for each pattern"
        rows = [
            {
                "resource_type": TOPIC,
                "pattern_type": pattern,
                "resource_name": name,
                "acls": [acl._asdict() | {"permission_type": acl.permission}],
            }
            for pattern, name, acl in sorted(self.acls)
        ]
        return {"error_code": self.refuses, "resources": rows}

    def _change(self, asked: Asked) -> Answer:
        self.changes += 1
        creates = asked.api_key == CREATE_ACLS
        rows, of_filter = (asked.body.creations, "") if creates else (asked.body.filters, "_filter")
        for row in rows:
            acl = Acl(row[f"principal{of_filter}"], row[f"host{of_filter}"], row.operation, row.permission_type)
            entry = (LITERAL, row[f"resource_name{of_filter}"], acl)
            self.acls.add(entry) if creates else self.acls.remove(entry)
        done = [{"error_code": 0}] * len(rows)
        return {"results": done, "filter_results": done}

    def on_face(self) -> set[Acl]:
        """Returns those of the face of `orders`."""
        return {acl for _, name, acl in self.acls if name == "__kordon.orders"}


async def test_a_face_follows_its_topic() -> None:
    """What is new is added, what was revoked or put there by others goes; nothing is written where nothing changes."""
    broker = Broker()
    mirror = AclMirror(Brokers(broker))
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
    mirror = AclMirror(Brokers(broker))
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
    await AclMirror(Brokers(broker)).mirror({"orders"})
    assert broker.acls == own


async def test_what_kordon_may_not_read_is_an_error_and_no_empty_list() -> None:
    """Else all ACLs of faces would be taken away."""
    broker = Broker()
    mirror = AclMirror(Brokers(broker))
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
