"""Who may change Kordon's own topics at the brokers: said with the command that forbids it."""

import pytest

from kordon.proxy.access.open_rights import AclRow, open_rights

TOPIC, GROUP, ID = 2, 3, 5
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, DELETE, ALTER, DESCRIBE, ALTER_CONFIGS = 2, 3, 4, 6, 7, 8, 11
DENY, ALLOW = 2, 3


def found(*rows: AclRow) -> list[str]:
    """Returns what is open where Kordon is User:kordon."""
    return open_rights(rows, "kordon", "User:kordon")


def acl(kind: int, name: str, operation: int, *, pattern: int = LITERAL, who: str = "User:app") -> AclRow:
    """Makes an ACL that allows something."""
    return AclRow(kind, pattern, name, who, operation, ALLOW)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (acl(TOPIC, "*", WRITE), "--operation Write --topic __kordon. --resource-pattern-type prefixed"),
        (acl(TOPIC, "__kordon.layouts", DELETE), "--operation Delete --topic __kordon."),
        (acl(TOPIC, "__", WRITE, pattern=PREFIXED), "--operation Write"),
        (acl(TOPIC, "__kordon.lay", ALTER_CONFIGS, pattern=PREFIXED), "--operation AlterConfigs"),
        (acl(GROUP, "*", READ), "--operation Read --group kordon"),
        (acl(GROUP, "kor", READ, pattern=PREFIXED), "--group kordon"),
        (acl(ID, "kordon.layouts", WRITE), "--operation Write --transactional-id kordon.layouts"),
        (acl(ID, "*", ALL), "--transactional-id kordon.layouts"),
    ],
)
def test_what_is_open_is_said_with_what_closes_it(row: AclRow, says: str) -> None:
    """By the principal's name."""
    (line,) = found(row)
    assert line.startswith("User:app may ")
    assert "--deny-principal User:app " in line
    assert says in line


@pytest.mark.parametrize(
    "row",
    [
        acl(TOPIC, "*", READ),
        acl(TOPIC, "orders", WRITE),
        acl(TOPIC, "__consumer", WRITE, pattern=PREFIXED),
        acl(TOPIC, "__kordon.orders", READ),  # a face, as the controller mirrors it
        acl(TOPIC, "__kordon.orders", DESCRIBE),
        acl(GROUP, "billing", READ),
        acl(GROUP, "*", DESCRIBE),
        acl(ID, "billing-1", WRITE),
        acl(TOPIC, "*", ALL, who="User:kordon"),
    ],
)
def test_what_clients_need_is_not_said(row: AclRow) -> None:
    """Nor what Kordon itself needs."""
    assert found(row) == []


def test_what_is_denied_is_closed() -> None:
    """Wholly, by the commands that were said; a denial of less leaves the rest open."""
    everything = acl(TOPIC, "*", ALL)
    denials = [
        AclRow(TOPIC, PREFIXED, "__kordon.", "User:app", operation, DENY)
        for operation in (WRITE, DELETE, ALTER, ALTER_CONFIGS)
    ]
    assert found(everything, *denials) == []
    (line,) = found(everything, *denials[1:])
    assert "may Write __kordon." in line
    of_one = AclRow(TOPIC, LITERAL, "__kordon.layouts", "User:app", ALL, DENY)
    assert len(found(everything, of_one)) == 1
    assert len(found(everything, *(each._replace(principal="User:other") for each in denials))) == 1


def test_a_denial_from_one_host_closes_nothing() -> None:
    """He comes from another one."""
    everything = acl(TOPIC, "*", ALL)
    assert len(found(everything, AclRow(TOPIC, PREFIXED, "__kordon.", "User:app", ALL, DENY, "10.0.0.1"))) == 1
    assert len(found(everything._replace(host="10.0.0.1"))) == 1


def test_a_command_can_be_typed_whatever_the_principal_is_called() -> None:
    """Names from certificates have blanks in them."""
    (line,) = found(acl(GROUP, "*", READ, who="User:CN=app,O=Acme Inc"))
    assert "--deny-principal 'User:CN=app,O=Acme Inc' --operation Read --group kordon" in line


def test_everybodys_right_is_not_denied_to_everybody() -> None:
    """That would be Kordon, too."""
    (line,) = found(acl(TOPIC, "*", WRITE, who="User:*"))
    assert "--deny-principal" not in line
    assert "not to everybody" in line


def test_where_kordons_name_is_not_known_it_is_left_open_whose_right_it_is() -> None:
    """Its certificate's name stands in no file."""
    (line,) = open_rights([acl(TOPIC, "*", WRITE)], "kordon", None)
    assert "unless that is Kordon itself" in line
