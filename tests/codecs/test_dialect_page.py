"""docs/dialect.md says what goes over the wire: its tables are held against the codecs and the layout record."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest

from kordon.codecs.dialect import COOPERATIVE, INVALID_PARTITION_METADATA, ORDERED, VERSION, is_private
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import REQUESTS, RESPONSES
from kordon.codecs.primitives import Primitive
from kordon.codecs.row import Row
from kordon.codecs.schema import Array, Field, Message, Struct, versions_of
from kordon.proxy.ordering.records import TopicRecord

PAGE = Path(__file__).parents[2] / "docs" / "dialect.md"
MESSAGES = {message.name: message for message in (*REQUESTS.values(), *RESPONSES.values())}
RECORDS = ("/brokers/topics/[topic]", "/brokers/topics/[topic]/partitions/[partition]/state")
BROKERS_ARE_NOT_TOLD = ("LeaderAndIsrRequest", "UpdateMetadataRequest")


class Told(NamedTuple):
    """One field as the page or a table has it."""

    path: str
    type: str
    versions: range
    tag: int | None


def sections(text: str) -> dict[str, list[list[str]]]:
    """The rows of the table under each heading of the third level, as cells without their marks."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.removeprefix("### ") if line.startswith("### ") else ""
        elif heading and line.startswith("|"):
            cells = [cell.strip().strip("`*") for cell in line.strip().strip("|").split("|")]
            found.setdefault(heading, []).append(cells)
    return {heading: rows[2:] for heading, rows in found.items()}


def told_by_page(rows: list[list[str]]) -> list[Told]:
    """What the page says of a message; rows of the proposal's that have nothing on the wire are left out."""
    return [
        Told(path, type_, versions_of(versions), int(tag) if tag else None)
        for _, _, path, type_, versions, tag in rows
        if path
    ]


def told_by_table(fields: tuple[Field, ...], message: Message[Row], path: str = "") -> Iterator[Told]:
    """All fields of a message; those inside of others behind these."""
    for row in fields:
        inner = row.type.of if isinstance(row.type, Array) else row.type
        name = inner.name if isinstance(inner, Primitive) else "struct"
        type_ = f"[]{name}" if isinstance(row.type, Array) else name
        yield Told(f"{path}{row.name}", type_, row.versions, row.tag)
        if isinstance(inner, Struct):
            yield from told_by_table(inner.fields, message, f"{path}{row.name}.")


def differences(text: str) -> list[str]:
    """What the page says of messages and the codecs do not, and what they have of the dialect and it does not say."""
    found: list[str] = []
    page = {name: rows for name, rows in sections(text).items() if name in MESSAGES}
    for name, message in MESSAGES.items():
        told = told_by_page(page.get(name, []))
        table = list(told_by_table(message.fields, message))
        found += [f"{name}: the page has {row}" for row in told if row not in table]
        own = table if is_private(message.api_key) else [row for row in table if is_private(row.tag)]
        found += [f"{name}: the page lacks {row}" for row in own if row not in told]
    return found


def test_the_page_says_what_the_codecs_send() -> None:
    """Path, type, versions and tag of each field; every field of the dialect is there."""
    text = PAGE.read_text()
    assert differences(text) == []
    assert len(sections(text).keys() & MESSAGES.keys()) == 12


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("| int32 | 9+ | 16385 |", "| int32 | 9+ | 16389 |"),
        ("`topics.layout_epoch` | int32", "`topics.layout_epoch` | int64"),
        ("`topics.positions.position` | int64 | 12+", "`topics.positions.position` | int64 | 13+"),
        ("| | | `member_id` | string | 12+ | 16386 |\n", ""),
        ("| need_position | boolean | `topics.partitions.need_position` | bool | 0+ | |\n", ""),
        ("`topic_data.name`", "`topic_data.topic`"),
    ],
)
def test_a_page_that_says_something_else_is_found_out(before: str, after: str) -> None:
    """Another tag, type, version or name, or a field that is not there any more."""
    text = PAGE.read_text()
    assert before in text
    assert differences(text.replace(before, after)) != []


def test_the_page_names_the_numbers_that_are_no_fields() -> None:
    """Api keys, the error code, the feature and the client's version."""
    text = PAGE.read_text()
    for message in MESSAGES.values():
        if is_private(message.api_key) and message.name.endswith("Request"):
            name = message.name.removesuffix("Request")
            assert re.search(rf"## {name}\n\nApi key {message.api_key}\.", text)
            assert message.versions == range(1)
    assert f"{INVALID_PARTITION_METADATA} {Code.INVALID_PARTITION_METADATA.name}" in text
    assert f"`{ORDERED}` in versions {VERSION} to {VERSION}" in text
    assert f"`kordon_client` = {VERSION}" in text
    assert f"`{COOPERATIVE}` in versions 1 to 1" in text
    codes = (Code.INDIVIDUAL_COMMIT_NOT_ALLOWED, Code.INDIVIDUAL_COMMIT_TOO_OLD, Code.MAX_INDIVIDUAL_COMMIT_REACHED)
    assert all(f"{code} {code.name}" in text for code in codes)


def field_type(cls: Any, path: str) -> Any:
    """Follows a path through dataclasses; raises KeyError where it leads nowhere."""
    for name in path.split("."):
        cls = next((each for each in (cls, *get_args(cls)) if dataclasses.is_dataclass(each)), None)
        cls = get_type_hints(cls)[name]
    return cls


def test_state_stands_in_the_layout_record_where_the_page_says() -> None:
    """Each field of the record that is named exists; KIP-253's new ones have one each."""
    page = sections(PAGE.read_text())
    for name in (*RECORDS, *BROKERS_ARE_NOT_TOLD):
        assert page[name]
        for cells in page[name]:
            if cells[2]:
                assert field_type(TopicRecord, cells[2])


def test_a_field_that_the_record_does_not_have_is_found_out() -> None:
    """Renamed in the layout, it would have to be renamed on the page."""
    with pytest.raises(KeyError):
        field_type(TopicRecord, "layout.epochs.undeleted")
