"""What the tests of the codecs share: Kafka's own schemas, and how many examples Hypothesis draws."""

import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("quick", derandomize=True, deadline=None, max_examples=60, database=None)
settings.register_profile("deep", deadline=None, max_examples=5_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

Schemas = dict[tuple[int | str, str], dict[str, Any]]
"""Schemas by (api key or name, type)."""


def _jar(version: str) -> Path:
    try:
        from kordon.testing.jars import kafka_clients_jar  # noqa: PLC0415
    except ImportError:
        return Path.home() / f".m2/repository/org/apache/kafka/kafka-clients/{version}/kafka-clients-{version}.jar"
    return Path(kafka_clients_jar(version))


@pytest.fixture(scope="session")
def kafka_schemas() -> Callable[[str], Schemas]:
    """Returns what reads the message schemas out of the kafka-clients jar of a version."""
    cache: dict[str, Schemas] = {}

    def read(version: str) -> Schemas:
        if version not in cache:
            cache[version] = _read(_jar(version))
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
