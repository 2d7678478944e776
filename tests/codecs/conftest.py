"""What the tests of the codecs share: Kafka's own schemas."""

from collections.abc import Callable
from functools import cache

import pytest

from kordon.testing.jars import kafka_clients_jar
from kordon.testing.messages.kafka_schemas import Schemas, read_schemas


@pytest.fixture(scope="session")
def kafka_schemas() -> Callable[[str], Schemas]:
    """Returns what reads the message schemas out of the kafka-clients jar of a version."""

    @cache
    def read(version: str) -> Schemas:
        return read_schemas(kafka_clients_jar(version))

    return read
