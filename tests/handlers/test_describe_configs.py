"""DescribeConfigs through Kordon: managed topics have Kordon's configs, Kordon's own topics do not exist."""

from typing import Any
from uuid import UUID

import pytest

from kordon.codecs.messages import request, response
from kordon.proxy.handlers.describe_configs import DescribeConfigs
from kordon.proxy.handlers.own_configs import OF_MANAGED
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.messages.as_read import as_read

KEY, VERSION = 32, 4
STATES = {"orders": "serving 4 of 12, settled", "coming": "coming under management with 6 virtual partitions"}
RETENTION = {
    "name": "retention.ms",
    "value": "1000",
    "read_only": False,
    "config_source": 1,
    "is_sensitive": False,
    "synonyms": [],
    "config_type": 5,
    "documentation": None,
}


def topics() -> ManagedTopics:
    """`orders`, with 4 partitions for 12 virtual ones."""
    layout = Layout.created("orders", UUID(int=7), 3, 12)
    managed = ManagedTopics()
    managed.add(ManagedTopic(layout.changed(layout.next_epoch(4), {0: 120, 3: 0}), UUID(int=8)))
    return managed


def asked(*resources: tuple[int, str, list[str] | None], version: int = VERSION) -> Any:
    """A request as the proxy has parsed it."""
    rows = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name, keys in resources
    ]
    return as_read(request(KEY), version, {"resources": rows})


def answered(ask: Any, *, error_code: int = 0, version: int = VERSION) -> dict[str, dict[str, str]]:
    """What the client gets when the broker knows `retention.ms` of every resource it was asked for."""
    table, translation = response(KEY), DescribeConfigs(STATES.get)
    for_broker = as_read(request(KEY), version, ask)
    translation.request(version, for_broker, topics())
    rows = [
        {
            "error_code": error_code,
            "error_message": None,
            "resource_type": row.resource_type,
            "resource_name": row.resource_name,
            "configs": [] if error_code else [RETENTION],
        }
        for row in for_broker.resources
    ]
    answer = as_read(table, version, {"results": rows})
    translation.response(version, answer, topics(), ask)
    seen = as_read(table, version, answer)
    return {row.resource_name: {each.name: each.value for each in row.configs} for row in seen.results}


@pytest.mark.parametrize("version", range(1, 5))
def test_a_managed_topic_says_so(version: int) -> None:
    """V, U, N and the layout epoch stand beside what the broker knows, in every version."""
    assert answered(asked((2, "orders", None), version=version), version=version) == {
        "orders": {
            "retention.ms": "1000",
            "kordon.virtual.partitions": "12",
            "kordon.undeleted.partition.count": "4",
            "kordon.initial.partition.count": "3",
            "kordon.layout.epoch": "1",
            "kordon.state": "serving 4 of 12, settled",
            "enable.ordered.delivery": "true",
            "kordon.janitor": "false",
            "kordon.share.order": "key",
            "kordon.share.poison": "archive",
        }
    }


def test_only_what_is_asked_for_is_told() -> None:
    """Whoever names the configs he wants gets no others of Kordon's."""
    got = answered(asked((2, "orders", ["kordon.layout.epoch"])))
    assert got["orders"] == {"retention.ms": "1000", "kordon.layout.epoch": "1"}


def test_a_topic_that_somebody_wants_managed_has_a_state() -> None:
    """Whoever has asked for it sees what that waits for, as any admin client can."""
    told = {"retention.ms": "1000", "kordon.state": "coming under management with 6 virtual partitions"}
    assert answered(asked((2, "coming", None))) == {"coming": told}
    assert answered(asked((2, "coming", None)), error_code=29) == {"coming": {}}


@pytest.mark.parametrize(("kind", "name"), [(2, "other"), (4, "orders")])
def test_other_resources_stay_as_they_are(kind: int, name: str) -> None:
    """An ordinary topic, or a broker that is called like a topic, has none of Kordon's configs."""
    assert answered(asked((kind, name, None))) == {name: {"retention.ms": "1000"}}


def test_a_refusal_stays_a_refusal() -> None:
    """Whoever may not see a topic's configs is not told how many partitions it has."""
    assert answered(asked((2, "orders", None)), error_code=29) == {"orders": {}}


def test_each_config_that_can_be_set_is_shown() -> None:
    """A config that brokers do not hear of would be seen nowhere else."""
    assert answered(asked((2, "orders", None)))["orders"].keys() >= OF_MANAGED


def test_what_copies_configs_leaves_the_counts_alone() -> None:
    """All but V are read-only defaults, which MirrorMaker and the like do not carry to another cluster."""
    row: dict[str, Any] = {
        "error_code": 0,
        "error_message": None,
        "resource_type": 2,
        "resource_name": "orders",
        "configs": [],
    }
    answer = as_read(response(KEY), VERSION, {"results": [row]})
    DescribeConfigs(STATES.get).response(VERSION, answer, topics(), asked((2, "orders", None)))
    told = {each["name"]: (each["read_only"], each["config_source"]) for each in answer.results[0].configs}
    assert told.pop("kordon.virtual.partitions") == (False, 1)
    assert told.pop("enable.ordered.delivery") == (False, 5)
    for name in ("kordon.janitor", "kordon.share.order", "kordon.share.poison"):
        assert told.pop(name) == (False, 5)
    assert set(told.values()) == {(True, 5)}
