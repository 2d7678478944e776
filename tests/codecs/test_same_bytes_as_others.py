"""Equal byte for byte with what others wrote: kio 0.6, kafka-python 3, and the classes of the newest Kafka itself."""

import contextlib
import datetime
import enum
import importlib
import io
import pkgutil
import subprocess
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kio.index import UnknownAPIKey, UnknownEntity, load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kordon.codecs.dialect import is_private
from kordon.codecs.messages import REQUESTS, RESPONSES, request, response
from kordon.codecs.row import Row
from kordon.codecs.schema import Array, Field, Message, Struct, versions_of
from kordon.testing.jars import NEWEST, kafka_clients_jar, need
from kordon.testing.messages.values import Values

pytestmark = pytest.mark.slow

MESSAGES = [message for message in (*REQUESTS.values(), *RESPONSES.values()) if not is_private(message.api_key)]
"""All but those that only Kordon's dialect has."""
SEEDS = range(6)
NEWER_THAN_KIO = {"StreamsGroupTopologyDescriptionUpdate"}
RENAMED = {
    "generation_id_or_member_epoch": "generation_id",
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
}
"""What kio calls fields that Kafka has given other names since."""
UNKNOWN_TO_KAFKA_PYTHON = {
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ShareGroupHeartbeat",
    "ShareFetch",
    "ShareAcknowledge",
    "StreamsGroupHeartbeat",
    "ShareGroupDescribe",
    "StreamsGroupDescribe",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
    "StreamsGroupTopologyDescriptionUpdate",
}
ReadSchemas = Callable[[str], dict[tuple[int | str, str], dict[str, Any]]]
JAVA = Path(__file__).parent / "java" / "Messages.java"


def short_name(message: Message[Row]) -> str:
    return message.name.removesuffix("Request").removesuffix("Response")


def kio_class(message: Message[Row], version: int) -> Any:
    kind: Any = EntityType.request if message.name.endswith("Request") else EntityType.response
    return getattr(load_payload_module(message.api_key, version, kind), message.name)


def kio_versions(message: Message[Row]) -> list[int]:
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
                short = name if hasattr(theirs, name) else RENAMED.get(name, name.removesuffix("_ms"))  # it has times
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
def test_kio_reads_and_writes_the_same_bytes(message: Message[Row]) -> None:
    """What we build, kio reads to the same values by the same names, and writes to the same bytes; so do we."""
    versions = kio_versions(message)
    assert versions or short_name(message) in NEWER_THAN_KIO
    for version in versions:
        cls = kio_class(message, version)
        for seed in SEEDS:
            value = Values(Random(seed), plausible=True, private=False).message(message, version)
            data = message.build(version, value)
            entity, size = entity_reader(cls)(data, 0)
            assert size == len(data)
            written = io.BytesIO()
            entity_writer(cls)(written, entity)
            assert written.getvalue() == data
            ours = message.parse(version, data)
            assert_same(without_private(message.fields, ours), entity, f"{message.name} v{version}")
            assert message.build(version, ours) == data


def without_private(fields: tuple[Field, ...], value: dict[str, Any]) -> dict[str, Any]:
    """Leaves of a message's value what Kafka has of it."""
    left: dict[str, Any] = {}
    for row in fields:
        if row.name not in value or is_private(row.tag):
            continue
        inner = row.type.of if isinstance(row.type, Array) else row.type
        left[row.name] = value[row.name]
        nested = value[row.name]
        if isinstance(inner, Struct) and nested is not None:
            many = isinstance(nested, list)
            rows = [without_private(inner.fields, each) for each in (nested if many else [nested])]
            left[row.name] = rows if many else rows[0]
    return left


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


def kafka_python_versions(message: Message[Row], cls: Any) -> range:
    return range(message.versions[0], min(message.versions[-1], cls.max_version) + 1)


def subclasses(cls: Any) -> Iterator[Any]:
    for child in cls.__subclasses__():
        yield child
        yield from subclasses(child)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_kafka_python_reads_and_writes_the_same_bytes(
    message: Message[Row], kafka_python_classes: dict[str, Any]
) -> None:
    """It has all the old versions too, back to 0, that Kafka 4 and kio have dropped."""
    cls = kafka_python_classes.get(message.name)
    if cls is None:
        assert short_name(message) in UNKNOWN_TO_KAFKA_PYTHON
        return
    for version in kafka_python_versions(message, cls):
        for seed in SEEDS:
            value = Values(Random(seed), plausible=True, private=False).message(message, version)
            if message.name == "ApiVersionsResponse":
                value["error_code"] = 0  # it takes an answer with an error for one of version 0 (KIP-511)
            data = message.build(version, value)
            theirs = cls.decode(data, version=version)
            theirs._header = None  # it forgets to, and then cannot encode
            assert bytes(theirs.encode(version=version)) == data, f"{message.name} v{version}"


def kafka_versions(message: Message[Row], kafka_schemas: ReadSchemas) -> list[int]:
    schema = kafka_schemas(NEWEST)[message.api_key, "request" if message.name.endswith("Request") else "response"]
    return [version for version in versions_of(schema["validVersions"]) if version in message.versions]


def test_kafka_reads_and_writes_the_same_bytes(kafka_schemas: ReadSchemas) -> None:
    """Kafka's own classes leave no byte unread of what we build, and write the same: every version they have."""
    sent: list[tuple[str, str]] = []
    for message in MESSAGES:
        kind = "Request" if message.name.endswith("Request") else "Response"
        for version in kafka_versions(message, kafka_schemas):
            for seed in SEEDS:
                value = Values(Random(seed), plausible=True, private=False).message(message, version)
                sent.append((f"{message.api_key} {kind} {version}", message.build(version, value).hex()))
    command = [need("java"), "-XX:TieredStopAtLevel=1", "-cp", str(kafka_clients_jar(NEWEST)), str(JAVA)]
    asked = "".join(f"{what} {body}\n" for what, body in sent)
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=120, check=True)
    written = done.stdout.splitlines()
    different = [(what, body, theirs) for (what, body), theirs in zip(sent, written, strict=True) if body != theirs]
    assert different == []


EXTENDED = [(request(18), 3), (request(18), 4), (response(3), 9), (request(0), 9), (request(1), 12)]
"""Messages that carry fields of the dialect, in the versions that its clients use."""


@pytest.mark.parametrize(("message", "version"), EXTENDED, ids=lambda value: getattr(value, "name", f"v{value}"))
def test_kafka_python_skips_the_fields_of_the_dialect(
    message: Message[Row], version: int, kafka_python_classes: dict[str, Any]
) -> None:
    """Who does not know them reads all else as if they were not there (KIP-482); kio reads no unknown tags at all."""
    cls = kafka_python_classes[message.name]
    with_fields = 0
    for seed in SEEDS:
        extended = Values(Random(seed), plausible=True).message(message, version)
        bare = message.build(version, without_private(message.fields, extended))
        data = message.build(version, extended)
        with_fields += data != bare
        assert cls.decode(data, version=version).to_dict() == cls.decode(bare, version=version).to_dict()
    assert with_fields


def test_every_version_is_compared_with_one_of_the_three(
    kafka_python_classes: dict[str, Any], kafka_schemas: ReadSchemas
) -> None:
    """So that the tests above cannot come to compare nothing."""
    compared: set[tuple[str, int]] = set()
    for message in MESSAGES:
        compared.update((message.name, version) for version in kafka_versions(message, kafka_schemas))
        compared.update((message.name, version) for version in kio_versions(message))
        if message.name in kafka_python_classes:
            versions = kafka_python_versions(message, kafka_python_classes[message.name])
            compared.update((message.name, version) for version in versions)
    assert {(message.name, version) for message in MESSAGES for version in message.versions} - compared == set()
