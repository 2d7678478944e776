"""What the tests of the codecs share: Kafka's own schemas."""

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kordon.testing.jars import kafka_clients_jar

Schemas = dict[tuple[int | str, str], dict[str, Any]]
"""Schemas by (api key or name, type)."""


@pytest.fixture(scope="session")
def kafka_schemas() -> Callable[[str], Schemas]:
    """Returns what reads the message schemas out of the kafka-clients jar of a version."""
    cache: dict[str, Schemas] = {}

    def read(version: str) -> Schemas:
        if version not in cache:
            cache[version] = _read(kafka_clients_jar(version))
        return cache[version]

    return read


def _read(jar: Path) -> Schemas:
    schemas: Schemas = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                text = re.sub(r'^\s*//.*$|\s//[^"\n]*$', "", archive.read(name).decode(), flags=re.MULTILINE)
                schema = json.loads(text)
                schemas[schema.get("apiKey", schema["name"]), schema["type"]] = schema
    return schemas
