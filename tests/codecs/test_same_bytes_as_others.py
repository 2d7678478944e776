"""Equal byte for byte with two libraries that others wrote: kio 0.6 and kafka-python 3."""

import contextlib
import datetime
import enum
import importlib
import io
import pkgutil
import uuid
import warnings
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from kio.index import UnknownAPIKey, UnknownEntity, load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kordon.codecs.messages import REQUESTS, RESPONSES
from kordon.codecs.schema import Message
from kordon.testing.values import Values

MESSAGES = [*REQUESTS.values(), *RESPONSES.values()]
SEEDS = range(6)
UNKNOWN_TO_KAFKA_PYTHON = {
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ShareGroupHeartbeat",
    "ShareFetch",
    "ShareAcknowledge",
    "StreamsGroupHeartbeat",
}


def kio_class(message: Message, version: int) -> Any:
    kind: Any = EntityType.request if message.name.endswith("Request") else EntityType.response
    return getattr(load_payload_module(message.api_key, version, kind), message.name)


def kio_versions(message: Message) -> list[int]:
    """The versions of a message that kio has."""
    known = []
    for version in message.versions:
        with contextlib.suppress(UnknownEntity, UnknownAPIKey):
            kio_class(message, version)
            known.append(version)
    return known


def plain(value: Any) -> Any:
    """Turns kio's precise types into what is on the wire."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value


def assert_same(ours: Any, theirs: Any, path: str) -> None:
    """Compares our value of a field with kio's."""
    theirs = plain(theirs)
    if isinstance(ours, dict):
        for name, value in ours.items():
            if name != "_tagged":
                short = name if hasattr(theirs, name) else name.removesuffix("_ms")  # kio has types for times
                assert_same(value, getattr(theirs, short), f"{path}.{name}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), path
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other, f"{path}[]")
    elif isinstance(ours, uuid.UUID) and theirs is None:
        assert ours.int == 0, path
    elif theirs is None and isinstance(ours, int):
        assert ours == -1, path  # kio shows a time of -1 as none
    else:
        assert ours == theirs, path


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_kio_reads_and_writes_the_same_bytes(message: Message) -> None:
    """What we build, kio reads to the same values by the same names, and writes to the same bytes; so do we."""
    versions = kio_versions(message)
    assert versions
    for version in versions:
        cls = kio_class(message, version)
        for seed in SEEDS:
            value = Values(Random(seed), plausible=True).message(message, version)
            data = message.build(version, value)
            entity, size = entity_reader(cls)(data, 0)
            assert size == len(data)
            written = io.BytesIO()
            entity_writer(cls)(written, entity)
            assert written.getvalue() == data
            ours = message.parse(version, data)
            assert_same(ours, entity, f"{message.name} v{version}")
            assert message.build(version, ours) == data


@pytest.fixture(scope="module")
def kafka_python_classes() -> dict[str, Any]:
    """The message classes of kafka-python by the schema's name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 regrets
        protocol = importlib.import_module("kafka.protocol")
        for module in pkgutil.walk_packages(protocol.__path__, "kafka.protocol."):
            if ".old" not in module.name and "generate" not in module.name:
                importlib.import_module(module.name)
        base = importlib.import_module("kafka.protocol.api_message").ApiMessage
    found: dict[str, Any] = {}
    for cls in subclasses(base):
        found.setdefault(cls.__name__, cls)
    return found


def kafka_python_versions(message: Message, cls: Any) -> range:
    """The versions of a message that kafka-python has."""
    return range(message.versions[0], min(message.versions[-1], cls.max_version) + 1)


def subclasses(cls: Any) -> Iterator[Any]:
    for child in cls.__subclasses__():
        yield child
        yield from subclasses(child)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_kafka_python_reads_and_writes_the_same_bytes(message: Message, kafka_python_classes: dict[str, Any]) -> None:
    """It has all the old versions too, back to 0, that Kafka 4 and kio have dropped."""
    cls = kafka_python_classes.get(message.name)
    if cls is None:
        assert message.name.removesuffix("Request").removesuffix("Response") in UNKNOWN_TO_KAFKA_PYTHON
        return
    for version in kafka_python_versions(message, cls):
        for seed in SEEDS:
            value = Values(Random(seed), plausible=True).message(message, version)
            if message.name == "ApiVersionsResponse":
                value["error_code"] = 0  # it takes an answer with an error for one of version 0 (KIP-511)
            data = message.build(version, value)
            theirs = cls.decode(data, version=version)
            theirs._header = None  # it forgets to, and then cannot encode
            assert bytes(theirs.encode(version=version)) == data, f"{message.name} v{version}"


def test_every_version_is_compared_with_one_of_the_two(kafka_python_classes: dict[str, Any]) -> None:
    """So that the tests above cannot come to compare nothing."""
    compared: set[tuple[str, int]] = set()
    for message in MESSAGES:
        compared.update((message.name, version) for version in kio_versions(message))
        if message.name in kafka_python_classes:
            versions = kafka_python_versions(message, kafka_python_classes[message.name])
            compared.update((message.name, version) for version in versions)
    assert {(message.name, version) for message in MESSAGES for version in message.versions} - compared == set()
