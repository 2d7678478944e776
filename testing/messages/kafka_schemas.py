"""Kafka's own schemas of its messages, out of the kafka-clients jar, and what one version has changed in them.

By hand: `python -m kordon.testing.messages.kafka_schemas 4.3 4.4` prints what is new in 4.4.
"""

from __future__ import annotations

import argparse
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from kordon.testing.jars import VERSIONS, kafka_clients_jar

Schema: TypeAlias = dict[str, Any]
Schemas: TypeAlias = dict[tuple[int | str, str], Schema]
"""By api key, or name where there is none, and type."""

_COMMENT: Final = re.compile(r'^\s*//.*$|\s//[^"\n]*$', re.MULTILINE)


def read_schemas(jar: Path) -> Schemas:
    """Reads the schemas of all messages."""
    found: Schemas = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                schema = json.loads(_COMMENT.sub("", archive.read(name).decode()))
                found[schema.get("apiKey", schema["name"]), schema["type"]] = schema
    return found


def changes(before: Schemas, after: Schemas) -> Iterator[str]:
    """Yields what the later schemas have changed, a line for each message and each field, by the messages' names."""
    for key, schema in sorted(after.items(), key=lambda each: str(each[1]["name"])):
        former = before.get(key)
        api_key = f"api key {key[0]}, " if isinstance(key[0], int) else ""
        if former is None:
            yield f"{schema['name']}: new, {api_key}versions {schema['validVersions']}"
            continue
        rows = list(_changed_fields(_fields(former), _fields(schema)))
        versions = [each["validVersions"] for each in (former, schema)]
        if rows or versions[0] != versions[1]:
            yield f"{schema['name']}: {api_key}versions {' → '.join(dict.fromkeys(versions))}"
            yield from rows
    yield from (f"{schema['name']}: gone" for key, schema in before.items() if key not in after)


def _changed_fields(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for path in dict.fromkeys((*before, *after)):
        if before.get(path) != after.get(path):
            if path in before:
                yield f"  - {path} {before[path]}"
            if path in after:
                yield f"  + {path} {after[path]}"


def _fields(schema: Schema) -> dict[str, str]:
    """Returns what is on the wire of each field, by its path."""
    common = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
    return dict(_rows(schema.get("fields", []), common, ""))


def _rows(fields: list[Schema], common: Mapping[str, list[Schema]], path: str) -> Iterator[tuple[str, str]]:
    for field in fields:
        where = f"{path}{field['name']}"
        words = [field["type"], field["versions"]]
        words += [f"null in {field['nullableVersions']}"] if "nullableVersions" in field else []
        words += [f"tag {field['tag']}"] if "tag" in field else []
        words += [f"names a {field['entityType']}"] if "entityType" in field else []
        yield where, " ".join(words)
        yield from _rows(field.get("fields") or common.get(field["type"].removeprefix("[]"), []), common, f"{where}.")


def main() -> None:
    """Prints what one Kafka has changed against another."""
    parser = argparse.ArgumentParser(prog="python -m kordon.testing.messages.kafka_schemas", description=main.__doc__)
    for name in ("before", "after"):
        parser.add_argument(name, metavar=name.upper(), help=f"{', '.join(VERSIONS)}, or a version in full")
    told = parser.parse_args()
    asked: list[str] = [told.before, told.after]
    former, later = (read_schemas(kafka_clients_jar(VERSIONS.get(each, each))) for each in asked)
    print(*changes(former, later), sep="\n")


if __name__ == "__main__":
    main()
