"""A backup of the layouts: what is in it, and that a file is believed no more than the log."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from kordon.proxy.commands.cli import main
from kordon.proxy.ordering.images import ImageRecord, Written
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import (
    AckRecord,
    FenceRecord,
    FindingRecord,
    GoneRecord,
    JanitorRecord,
    OutcomeRecord,
    TopicRecord,
    Value,
    dump,
)
from kordon.proxy.own_topics.layouts_backup import Backup, BackupUnreadable, kept_of, load_backup

CREATED = Layout.created("orders", UUID(int=1), 3, 12)
ORDERS = CREATED.changed(CREATED.next_epoch(4), {0: 7, 1: 8, 2: 9, 3: 0})
FENCE = FenceRecord("f1", "orders", ORDERS.next_epoch(5), ORDERS.change_to(ORDERS.next_epoch(5)).sealed)
IMAGE = ImageRecord({5: Written(0, 11)}, 1_700_000_000_000)
AHEAD = ImageRecord({6: Written(0, 3)}, 1_700_000_000_000, begins=2)
KEPT: dict[str, Value] = {
    "topic/orders": TopicRecord(ORDERS, UUID(int=2)),
    "image/orders/3/0": IMAGE,
    "janitor/orders": JanitorRecord({0: 5}),
    "finding/orders": FindingRecord("records_lost", "orders", "lost", 5),
}
PASSING: dict[str, Value] = {
    "image/orders/4/0": AHEAD,
    "image/gone/0/0": IMAGE,
    "finding/gone": FindingRecord("topic_deleted", "gone", "gone", 5),
    "fence/orders": FENCE,
    "ack/f1/me": AckRecord("f1", "me"),
    "gone/me": GoneRecord("me"),
    "outcome/1": OutcomeRecord(0, ""),
}


def a_backup(records: dict[str, Value] | None = None) -> Backup:
    """A backup of what stands in a log."""
    dumped = [(key, dump(value)) for key, value in (records or KEPT).items()]
    kept, left_out = kept_of(dumped)
    assert left_out == {}
    return Backup("a-cluster", UUID(int=9), 77, "2026-11-24T00:00:00+00:00", {"orders": {0: 9, 3: 4}}, kept)


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A file that somebody has changed, and whose checksum he has put right."""
    fields = json.loads(a_backup().dump())
    del fields["sha256"]
    change(fields)
    rest = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return json.dumps({**fields, "sha256": sha256(rest.encode()).hexdigest()}).encode()


def test_a_backup_has_what_outlives_proxies_and_is_read_as_it_was_written() -> None:
    """Leases, fences, acknowledgements, wishes and images ahead of their layout are of proxies that are gone."""
    backup = a_backup({**KEPT, **PASSING})
    assert backup.records.keys() == KEPT.keys()
    assert load_backup(backup.dump()) == backup
    assert backup.topics["orders"].layout == ORDERS
    assert backup.keys_of("orders")[-1] == "topic/orders", "who reads a layout has read what goes with it"
    for key, value in KEPT.items():
        assert json.loads(backup.value(key)) == json.loads(dump(value))


def test_a_topic_of_which_records_cannot_be_read_is_left_out_and_named() -> None:
    """All others are saved."""
    other = TopicRecord(Layout.created("other", UUID(int=3), 3, 12), UUID(int=4))
    kept, left_out = kept_of(
        [("topic/orders", b"junk"), ("image/orders/1/0", dump(IMAGE)), ("topic/other", dump(other))]
    )
    assert kept.keys() == {"topic/other"}
    assert left_out.keys() == {"orders"}


def test_a_later_versions_optional_fields_stay_in_a_backup() -> None:
    """Who restores it may be of that version."""
    raw = json.loads(dump(KEPT["topic/orders"]))
    kept, _ = kept_of([("topic/orders", json.dumps({**raw, "colour": "red", "optional": ["colour"]}).encode())])
    assert kept["topic/orders"]["colour"] == "red"


def unsound(fields: dict[str, Any]) -> None:
    fields["records"]["topic/orders"]["layout"]["epochs"][1]["number"] = 7


def named_otherwise(fields: dict[str, Any]) -> None:
    fields["records"]["topic/others"] = fields["records"].pop("topic/orders")


def of_no_topic(fields: dict[str, Any]) -> None:
    fields["records"]["image/nobody/0/0"] = fields["records"]["image/orders/3/0"]


def of_no_stream(fields: dict[str, Any]) -> None:
    fields["records"]["image/orders/12/0"] = fields["records"]["image/orders/3/0"]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "EOF"),
        (b"\xff\xfe", "expected"),
        (b"[]", "no backup"),
        (b"{}", "no backup"),
        (b"[" * 100_000, "recursion"),
        (a_backup().dump()[:-200], "EOF"),
        (a_backup().dump().replace(b'"u": 4', b'"u": 5'), "checksum"),
        (changed(lambda fields: fields.update(format=2)), "format 2"),
        (changed(lambda fields: fields.update(more=1)), "more"),
        (changed(lambda fields: fields.update(offset=-1)), "offset"),
        (b'{"format":1,"offset":1' + b"0" * 5_000 + b',"sha256":""}', "number|digits|limit"),
        (changed(lambda fields: fields.update(log_ends={"orders": {"x": 1}})), "log_ends"),
        (changed(lambda fields: fields["records"].update({"fence/orders": json.loads(dump(FENCE))})), "no backup has"),
        (changed(lambda fields: fields["records"].update({"topic/x": {}})), "topic/x"),
        (changed(lambda fields: fields["records"].update({"": {}})), "no backup has"),
        (changed(unsound), "its epochs are not numbered upwards"),
        (changed(named_otherwise), "it is about orders"),
        (changed(of_no_topic), "no layout of its topic"),
        (changed(of_no_stream), "knows no such stream"),
    ],
)
def test_a_file_that_is_no_sound_backup_is_refused_with_one_line(raw: bytes, says: str) -> None:
    """Whatever it holds, and whoever has put its checksum right."""
    with pytest.raises(BackupUnreadable, match=says) as refused:
        load_backup(raw)
    assert len(str(refused.value)) < 1_000


def test_commands_say_in_one_line_what_is_wrong_with_a_file() -> None:
    """Before anybody is asked; exit code 1."""
    for command in ("verify", "import"):
        runner = CliRunner()
        result = runner.invoke(
            main, ["layouts", command, "-", "--bootstrap", "127.0.0.1:1", "--topic", "x"], input="{}"
        )
        if command == "import":
            assert (result.exit_code, "--yes" in result.output) == (2, True)
            continue
        assert (result.exit_code, result.output) == (1, "- cannot be used: it is no backup of kordon layouts export\n")
    result = CliRunner().invoke(main, ["layouts", "verify", "/nowhere/file", "--bootstrap", "127.0.0.1:1"])
    assert (result.exit_code, result.output) == (1, "/nowhere/file: No such file or directory\n")
    result = CliRunner().invoke(main, ["layouts", "export", "-"], env={"KORDON_CONFIG": ""})
    assert result.exit_code == 2
    assert "name a broker" in result.output
