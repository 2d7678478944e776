"""DescribeConfigs: what Kordon knows of a managed topic stands among its configs.

    kordon.virtual.partitions            V; setting it has the topic managed, deleting it lets it go
    kordon.undeleted.partition.count     U, read-only: CreatePartitions changes it
    kordon.initial.partition.count       N, read-only
    kordon.layout.epoch                  read-only
    enable.ordered.delivery              KIP-253's
    kordon.janitor                       whether a compacted topic's old values are taken out of former partitions

Read-only configs are left alone by what copies configs from cluster to cluster (MirrorMaker, tools of operators).
"""

from __future__ import annotations

from typing import Any, Final

from kordon.proxy.handlers.admin_requests import JANITOR, ORDERED_DELIVERY, VIRTUAL_PARTITIONS
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import ManagedTopics

UNDELETED_PARTITION_COUNT: Final = "kordon.undeleted.partition.count"
INITIAL_PARTITION_COUNT: Final = "kordon.initial.partition.count"
LAYOUT_EPOCH: Final = "kordon.layout.epoch"
_TOPIC: Final = 2
_DYNAMIC_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5
_BOOLEAN, _INT = 1, 3
"""ConfigType of DescribeConfigs (KIP-569)."""
_ORDERED: Final = "Whether a key is delivered only after all that was written of it before, wherever that is."

_CLEANED: Final = "Whether old values of keys are taken out of partitions that they have left; compaction needs it."


class DescribeConfigsTranslation:
    """Translates DescribeConfigs."""

    answers_always = True

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Asks what the client asks."""
        return False

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Adds Kordon's configs to managed topics."""
        keys = {row.resource_name: row.configuration_keys for row in asked.resources if row.resource_type == _TOPIC}
        for row in value.results:
            topic = topics.named(row.resource_name) if row.resource_type == _TOPIC and not row.error_code else None
            if topic is not None:
                wanted = keys.get(row.resource_name)
                row["configs"] = [
                    *row.configs,
                    *(config for config in _configs(topic.layout) if wanted is None or config["name"] in wanted),
                ]
        return True


def _configs(layout: Layout) -> list[dict[str, Any]]:
    return [
        _config(VIRTUAL_PARTITIONS, layout.v_count, "Partitions that clients see.", read_only=False),
        _config(UNDELETED_PARTITION_COUNT, layout.u, "Partitions of the brokers that are written to.", read_only=True),
        _config(INITIAL_PARTITION_COUNT, layout.n, "Partitions at first, and at least.", read_only=True),
        _config(LAYOUT_EPOCH, layout.epoch, "How often the layout has changed.", read_only=True),
        _boolean(ORDERED_DELIVERY, layout.ordered_delivery, _ORDERED, default=True),
        _boolean(JANITOR, layout.janitor, _CLEANED, default=False),
    ]


def _boolean(name: str, value: bool, documentation: str, *, default: bool) -> dict[str, Any]:
    return {
        **_config(name, str(value).lower(), documentation, read_only=False),
        "is_default": value == default,
        "config_source": _DEFAULT_CONFIG if value == default else _DYNAMIC_TOPIC_CONFIG,
        "config_type": _BOOLEAN,
    }


def _config(name: str, value: object, documentation: str, *, read_only: bool) -> dict[str, Any]:
    return {
        "name": name,
        "value": str(value),
        "read_only": read_only,
        "is_default": read_only,
        "config_source": _DEFAULT_CONFIG if read_only else _DYNAMIC_TOPIC_CONFIG,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": _INT,
        "documentation": documentation,
    }
