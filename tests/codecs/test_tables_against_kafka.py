"""The tables say, field for field, what Kafka's own schemas say; the judge is the JSON inside of its jar."""

import copy
import dataclasses
import re
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kordon.codecs import messages
from kordon.codecs.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from kordon.codecs.dialect import is_private
from kordon.codecs.headers import REQUEST_HEADER, RESPONSE_HEADER, request_header_version, response_header_version
from kordon.codecs.messages import REQUESTS, RESPONSES
from kordon.codecs.primitives import Primitive
from kordon.codecs.records import CONTROL_KEY, END_TXN_MARKER
from kordon.codecs.schema import Array, Field, Message, Struct, versions_of
from kordon.proxy.core.verdicts import API_BY_KEY, APIS, Verdict
from kordon.testing.jars import DEFAULT, NEWEST, VERSIONS, kafka_clients_jar
from kordon.testing.known import known

pytestmark = pytest.mark.slow

TABLES: list[tuple[Message[Any], tuple[int | str, str]]] = [
    *((REQUESTS[key], (key, "request")) for key in REQUESTS if not is_private(key)),
    *((RESPONSES[key], (key, "response")) for key in RESPONSES if not is_private(key)),
    (REQUEST_HEADER, ("RequestHeader", "header")),
    (RESPONSE_HEADER, ("ResponseHeader", "header")),
    (SUBSCRIPTION, ("ConsumerProtocolSubscription", "data")),
    (ASSIGNMENT, ("ConsumerProtocolAssignment", "data")),
    (CONTROL_KEY, ("ControlRecordTypeSchema", "data")),
    (END_TXN_MARKER, ("EndTxnMarker", "data")),
]
LEFT_OUT = {
    (f"Share{name}{kind}", 0)
    for name in ("Fetch", "Acknowledge", "GroupHeartbeat", "GroupDescribe")
    for kind in ("Request", "Response")
}
"""Kafka 3.9 and 4.0 had share groups in version 0 as a trial that no client may use; 4.1 dropped it."""
NOT_OFFERED = {(name.removesuffix("Request"), version) for name, version in LEFT_OUT} | {("SaslHandshake", 0)}
"""Versions of which `apis.py` says why it leaves them out."""
RENAMED_APIS = {"ListOffset": "ListOffsets", "ListClientMetricsResources": "ListConfigResources"}
"""Api keys that the newest Kafka calls otherwise than older ones."""
LEFT_OUT |= {("RequestHeader", 0)}
"""Without a client id; ControlledShutdown v0 alone had it, and no client sends that."""
RENAMED = {
    "ListClientMetricsResourcesResponse": {
        "client_metrics_resources": "config_resources",
        "client_metrics_resources.name": "config_resources.resource_name",
    },
    "StreamsGroupHeartbeatResponse": {"acceptable_recovery_lag": "acceptable_recovery_lag_legacy"},
    "TxnOffsetCommitRequest": {"generation_id": "generation_id_or_member_epoch"},
}
"""Fields that the newest Kafka calls otherwise than older ones, by the name of the message there."""
Row = dict[str, Any]
Key = tuple[int | str, str]
ReadSchemas = Callable[[str], dict[Key, Row]]


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def expected_rows(fields: list[Row], common: dict[str, list[Row]], version: int, path: str = "") -> Iterator[Row]:
    """Yields the fields of a schema that a version has, nested ones behind their parents."""
    for field in fields:
        if version not in versions_of(field["versions"]):
            continue
        type_ = field["type"].removeprefix("[]")
        nested = field.get("fields") or common.get(type_)
        where = f"{path}{snake_case(field['name'])}"
        tagged = version in versions_of(field.get("taggedVersions"))
        yield {
            "field": where,
            "type": ("[]" if field["type"].startswith("[]") else "") + ("struct" if nested else type_),
            "nullable": version in versions_of(field.get("nullableVersions")),
            "tag": field["tag"] if tagged else None,
            "flexible": field.get("flexibleVersions"),
            "default": expected_default(field, type_, nested=bool(nested)),
            "entity": expected_entity(field, type_, where),
        }
        yield from expected_rows(nested or [], common, version, f"{where}.")


def expected_entity(field: Row, type_: str, where: str) -> str | None:
    """Returns what a field names: as Kafka says (entityType), or by its own name where Kafka says nothing."""
    if field.get("entityType") in {"topicName", "groupId", "transactionalId"}:
        return str(field["entityType"])
    if type_ == "uuid":
        return "topicId" if field["name"] == "TopicId" else None
    if type_ != "string":
        return None
    if where in {"key", "coordinator_keys", "coordinators.key"}:  # of FindCoordinator
        return "coordinatorKey"
    named = {"TopicName": "topicName", "ResourceName": "resourceName", "ResourceNameFilter": "resourceName"}
    return named.get(field["name"])


def expected_default(field: Row, type_: str, *, nested: bool) -> Any:
    default = field.get("default")
    if default == "null":
        return None
    if field["type"].startswith("[]") or nested:
        return "empty"
    match type_:
        case "bool":
            return str(default).lower() == "true"
        case "string":
            return default or ""
        case "bytes" | "records":
            return default or b""
        case "float64":
            return float(default or 0)
        case "uuid":
            return "zero"
        case _:
            return int(str(default or 0), 0)


def actual_rows(fields: tuple[Field, ...], version: int, path: str = "") -> Iterator[Row]:
    """Yields the rows of a table that a version has, in the same shape, but for those of Kordon's dialect."""
    for row in fields:
        if version not in row.versions or is_private(row.tag):
            continue
        inner = row.type.of if isinstance(row.type, Array) else row.type
        default = row.new_default()
        yield {
            "field": f"{path}{row.name}",
            "type": ("[]" if isinstance(row.type, Array) else "")
            + (inner.name if isinstance(inner, Primitive) else "struct"),
            "nullable": version in row.nullable,
            "tag": row.tag if version in row.tagged else None,
            "flexible": None if row.flexible is None else "none" if not row.flexible else str(row.flexible),
            "default": "empty" if default in ([], {}) else "zero" if default == uuid.UUID(int=0) else default,
            "entity": inner.entity.value if isinstance(inner, Primitive) and inner.entity else None,
        }
        if isinstance(inner, Struct):
            yield from actual_rows(inner.fields, version, f"{path}{row.name}.")


def differences(
    message: Message[Any], schema: dict[str, Any], *, defaults: bool, renamed: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Returns what a table and a schema do not agree on, in the versions that both have."""
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    found: list[str] = []
    for version in versions_of(schema["validVersions"]):
        where = f"{schema['name']} v{version}"
        if version not in message.versions:
            if (schema["name"], version) not in LEFT_OUT:
                found.append(f"{where}: the table has no such version")
            continue
        expected = list(expected_rows(schema["fields"], common, version))
        actual = list(actual_rows(message.fields, version))
        for row in expected:
            row["field"] = renamed.get(row["field"], row["field"])
        if not defaults:
            for row in expected + actual:
                row.pop("default")
                row.pop("entity")  # Kafka 2.4 says it of few
        if (version in versions_of(schema["flexibleVersions"])) != (version in message.flexible_versions):
            found.append(f"{where}: one is flexible, the other is not")
        found += [f"{where}: Kafka has {row}" for row in expected if row not in actual]
        found += [f"{where}: the table has {row}" for row in actual if row not in expected]
        if not found and [row["field"] for row in expected] != [row["field"] for row in actual]:
            found.append(f"{where}: the fields are in another order")
    return found


@pytest.mark.parametrize(("message", "key"), TABLES, ids=lambda value: getattr(value, "name", ""))
def test_table_equals_the_schema_of_the_newest_kafka(
    message: Message[Any], key: Key, kafka_schemas: ReadSchemas
) -> None:
    """Name, type, versions, null, tags, flexibility, default and order of every field."""
    assert differences(message, kafka_schemas(NEWEST)[key], defaults=True) == []


@pytest.mark.parametrize("kafka", [DEFAULT, "3.9.2"])
@pytest.mark.parametrize(("message", "key"), TABLES, ids=lambda value: getattr(value, "name", ""))
def test_table_equals_the_schema_of_an_older_kafka(
    message: Message[Any], key: Key, kafka: str, kafka_schemas: ReadSchemas
) -> None:
    """Also in the versions that Kafka 4.0 dropped. Some defaults have changed since, none of them on the wire."""
    schema = kafka_schemas(kafka).get(key)
    if schema is not None:
        assert differences(message, schema, defaults=False, renamed=RENAMED.get(schema["name"], {})) == []


@pytest.mark.parametrize(("message", "key"), TABLES, ids=lambda value: getattr(value, "name", ""))
def test_table_has_the_shape_of_the_schema_of_kafka_2_4(
    message: Message[Any], key: Key, kafka_schemas: ReadSchemas
) -> None:
    """Several fields have been renamed since, and tagged ones added to versions that exist: the rest is equal."""
    schema = kafka_schemas("2.4.1").get(key)
    if schema is None or schema["name"] == "RequestHeader":
        return
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    for version in versions_of(schema["validVersions"]):
        expected = shape(expected_rows(schema["fields"], common, version))
        assert shape(actual_rows(message.fields, version)) == expected, f"v{version}"


def shape(rows: Iterator[Row]) -> list[tuple[int, str, bool]]:
    """Depth, type and nullability of the fields that are not tagged, nor inside of such."""
    untagged, tagged = [], "-"
    for row in rows:
        if row["tag"] is not None:
            tagged = row["field"]
        elif not row["field"].startswith(f"{tagged}."):
            type_ = row["type"].replace("records", "bytes")  # the same on the wire
            untagged.append((row["field"].count("."), type_, row["nullable"]))
    return untagged


def test_a_field_that_kafka_adds_is_named(kafka_schemas: ReadSchemas) -> None:
    """The day a newer Kafka adds a field, the failure says which one, where."""
    schema = copy.deepcopy(kafka_schemas(NEWEST)[1, "response"])
    partition = next(field for field in schema["fields"] if field["name"] == "Responses")["fields"][-1]
    partition["fields"].append({"name": "LeaderAddress", "type": "string", "versions": "18+"})
    (difference,) = differences(RESPONSES[1], schema, defaults=True)
    assert "FetchResponse v18" in difference
    assert "responses.partitions.leader_address" in difference


def test_a_field_of_kordons_own_must_be_a_private_tag(kafka_schemas: ReadSchemas) -> None:
    """Only tags from 16384 up are left out of the comparison: a field with any other is a difference."""
    rows = tuple(dataclasses.replace(row, tag=16383) if row.name == "group_id" else row for row in REQUESTS[1].fields)
    table = dataclasses.replace(REQUESTS[1], fields=rows)
    assert any("group_id" in row for row in differences(table, kafka_schemas(NEWEST)[1, "request"], defaults=True))


def test_kafka_has_not_come_near_the_private_numbers(kafka_schemas: ReadSchemas) -> None:
    """Neither api keys nor tags of the newest Kafka reach 16384."""
    text = str(kafka_schemas(NEWEST))
    tags = [int(tag) for tag in re.findall(r"'tag': (\d+)", text)]
    assert tags
    assert not any(map(is_private, tags))
    assert not any(is_private(key) for key, _ in kafka_schemas(NEWEST) if isinstance(key, int))


def test_a_version_that_kafka_adds_is_named(kafka_schemas: ReadSchemas) -> None:
    """A new version alone is a difference too: nobody knows what it changes without looking."""
    schema = copy.deepcopy(kafka_schemas(NEWEST)[3, "request"])
    schema["validVersions"] = "0-14"
    assert differences(REQUESTS[3], schema, defaults=True) == ["MetadataRequest v14: the table has no such version"]


def undecided(schemas: Mapping[Key, Row]) -> list[str]:
    """Returns the requests of Kafka's schemas, by version, of which `apis.py` does not say what becomes of them."""
    found: list[str] = []
    for (api_key, type_), schema in schemas.items():
        if not isinstance(api_key, int) or type_ != "request":
            continue
        name, row = schema["name"].removesuffix("Request"), API_BY_KEY.get(api_key)
        if row is None or row.name != RENAMED_APIS.get(name, name):
            found.append(f"{name}: api key {api_key} has no row")
        elif row.verdict is not Verdict.REFUSE:
            missing = [each for each in versions_of(schema["validVersions"]) if each not in row.versions]
            found += [f"{name} v{each}: its row leaves it out" for each in missing if (name, each) not in NOT_OFFERED]
    return found


@pytest.mark.parametrize("kafka", VERSIONS.values())
def test_every_request_of_kafka_has_its_row(kafka: str, kafka_schemas: ReadSchemas) -> None:
    """Somebody has decided on each api key and each version of it: what nobody has looked at is not let through."""
    assert undecided(kafka_schemas(kafka)) == []


def test_no_row_lets_a_version_through_that_no_kafka_has(kafka_schemas: ReadSchemas) -> None:
    """A version is in the table because it has been looked at in some Kafka."""
    known = {
        (api_key, version)
        for kafka in VERSIONS.values()
        for (api_key, type_), schema in kafka_schemas(kafka).items()
        if type_ == "request"
        for version in versions_of(schema["validVersions"])
    }
    assert [(api.name, each) for api in APIS for each in api.versions if (api.key, each) not in known] == [
        (name, 0) for name in ("ConsumerGroupPosition", "PartitionLeaderEpochsForPartitions")
    ]


def test_an_api_key_and_a_version_that_nobody_has_decided_on_are_named(kafka_schemas: ReadSchemas) -> None:
    """As they will be when the next Kafka is taken in."""
    schemas = copy.deepcopy(kafka_schemas(NEWEST))
    schemas[999, "request"] = {"name": "TurnBackTimeRequest", "validVersions": "0-1"}
    schemas[42, "request"]["validVersions"] = "0-4"
    assert undecided(schemas) == ["DeleteGroups v4: its row leaves it out", "TurnBackTime: api key 999 has no row"]


def test_all_versions_that_the_proxy_reads_have_tables() -> None:
    """Every api that is observed or rewritten can be parsed in every version that is let through."""
    for api in APIS:
        if api.verdict in (Verdict.REWRITE, Verdict.ANSWER) or api.key in REQUESTS:
            assert set(api.versions) <= set(REQUESTS[api.key].versions), api
            assert set(api.versions) <= set(RESPONSES[api.key].versions), api


@pytest.mark.parametrize("kafka", [NEWEST, "3.9.2"])
def test_header_versions_follow_the_schemas(kafka: str, kafka_schemas: ReadSchemas) -> None:
    """The header of every api key and version, also of those that are never read."""
    for (api_key, type_), schema in kafka_schemas(kafka).items():
        if isinstance(api_key, int) and type_ in ("request", "response") and schema["validVersions"] != "none":
            flexible = versions_of(schema["flexibleVersions"])
            for version in versions_of(schema["validVersions"]):
                expected = 1 if version in flexible else 0
                assert request_header_version(api_key, version) == expected + 1, schema["name"]
                assert response_header_version(api_key, version) == (0 if api_key == 18 else expected), schema["name"]


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def test_no_comment_is_kafkas() -> None:
    """Its schemas are facts; what they are explained with is a work of others."""
    with zipfile.ZipFile(kafka_clients_jar(NEWEST)) as archive:
        schemas = [archive.read(name).decode() for name in archive.namelist() if name.startswith("common/message/")]
    told = re.findall(r'//(.*)$|"about":\s*"(.*)"', "\n".join(schemas), re.MULTILINE)
    theirs = _words(" ".join(comment or about for comment, about in told))
    assert "starting in version 3 brokers can send authorized operations" in theirs
    tables = known(messages.__file__)
    ours = [
        line for file in Path(tables).parent.glob("*.py") for line in re.findall(r"# (.*)$", file.read_text(), re.M)
    ]
    assert [line for line in ours if len(line.split()) > 3 and _words(line) in theirs] == []
