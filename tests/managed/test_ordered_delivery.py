"""enable.ordered.delivery of managed topics, set and shown by real admin clients (KIP-253)."""

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed, create_ordinary
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker
CONFIG = "enable.ordered.delivery"


def shown(admin: AdminClient, topic: str) -> tuple[str, bool]:
    """Returns the value that DescribeConfigs tells, and whether it is the default."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entry = admin.describe_configs([resource])[resource].result(60)[CONFIG]
    return entry.value, entry.is_default


def change(admin: AdminClient, topic: str, value: str | None) -> None:
    """Sets it, or (None) lets it be the default again, as kafka-configs.sh does."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(CONFIG, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def test_it_is_true_until_it_is_set_and_after_it_is_deleted(open_cluster: Cluster, proxy: ProxyProcess) -> None:
    """Seen by any client, and by kafka-configs.sh; what is no boolean changes nothing."""
    admin = create_managed(proxy.bootstrap, "ordered")
    assert shown(admin, "ordered") == ("true", True)
    change(admin, "ordered", "false")
    assert shown(admin, "ordered") == ("false", False)
    with pytest.raises(KafkaException, match="true or false"):
        change(admin, "ordered", "perhaps")
    tool = ("--bootstrap-server", proxy.bootstrap, "--describe", "--topic", "ordered")
    assert f"{CONFIG}=false" in open_cluster.tool("kafka-configs", *tool).stdout
    change(admin, "ordered", None)
    assert shown(admin, "ordered") == ("true", True)


def test_a_topic_is_created_without(proxy: ProxyProcess) -> None:
    """CreateTopics takes it beside kordon.virtual.partitions; the page of the topic tells it."""
    config = {"kordon.virtual.partitions": "12", CONFIG: "false"}
    admin = create_ordinary(proxy.bootstrap, "unordered", config=config)
    assert shown(admin, "unordered") == ("false", False)
    assert proxy.topic("unordered")["ordered_delivery"] is False


def test_an_ordinary_topic_has_no_such_config(proxy: ProxyProcess) -> None:
    """The broker says so itself."""
    admin = create_ordinary(proxy.bootstrap, "ordinary")
    with pytest.raises(KafkaException, match="Unknown topic config"):
        change(admin, "ordinary", "false")
