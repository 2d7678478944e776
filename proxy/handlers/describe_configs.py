"""DescribeConfigs: what Kordon knows of a topic stands among its configs, in both views.

    kordon.virtual.partitions            V; setting it has the topic managed, deleting it lets it go
    kordon.undeleted.partition.count     U, read-only: CreatePartitions changes it
    kordon.initial.partition.count       N, read-only
    kordon.layout.epoch                  read-only
    kordon.state                         what happens with the topic, in words, read-only
    enable.ordered.delivery              KIP-253's
    kordon.source                        true for a source topic, which is not managed
    kordon.share.order                   in which order share groups get the records
    kordon.share.poison                  what becomes of a record that a share group was given as often as may be
    kordon.janitor                       whether a compacted topic's old values are taken out of former partitions

Read-only configs are left alone by what copies configs from cluster to cluster (MirrorMaker, tools of operators).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import DescribeConfigsRequest as Request
from kordon.codecs.bodies import DescribeConfigsResponse as Response
from kordon.codecs.bodies import DescribeConfigsResponseConfig as Config
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.handlers.own_configs import (
    INITIAL_PARTITION_COUNT,
    JANITOR,
    LAYOUT_EPOCH,
    ORDERED_DELIVERY,
    SHARE_ORDER,
    SHARE_POISON,
    SOURCE,
    STATE,
    UNDELETED_PARTITION_COUNT,
    VIRTUAL_PARTITIONS,
)
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.share.policy import DEFAULT
from kordon.proxy.topics.managed_topics import ManagedTopics

_TOPIC: Final = 2
_DYNAMIC_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5
_BOOLEAN, _STRING, _INT = 1, 2, 3
"""ConfigType of DescribeConfigs (KIP-569)."""
_ORDERED: Final = "Whether a key's record is delivered only after all its earlier records, wherever they are."
_STATE: Final = "The topic's state, what it waits for, and for how long at most."
_SOURCE: Final = "Whether the topic takes no records: its partitions stand for those of a source of producers."
_CLEANED: Final = "Whether old values of keys are removed from partitions that the keys have left; compaction needs it."
_SHARED: Final = "What share groups get in order: nothing, the records of a key or those of a virtual partition."
_POISONED: Final = "Whether a record that a share group was given the most times counts as done, or holds others up."


class DescribeConfigs(TranslatedApi[Request, Response]):
    """Adds rows to the answers to DescribeConfigs.

    Args:
        state_of: Says in words what happens with a topic; None: nothing that Kordon knows of.
    """

    key = apis.DESCRIBE_CONFIGS
    answers_always = True
    concerns_sources = True

    def __init__(self, state_of: Callable[[str], str | None]) -> None:
        self._state_of = state_of

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Adds Kordon's configs to managed topics."""
        keys = {row.resource_name: row.configuration_keys for row in asked.resources if row.resource_type == _TOPIC}
        for row in value.results:
            if row.resource_type == _TOPIC and not row.error_code:
                wanted = keys.get(row.resource_name)
                found = self._configs(row.resource_name, topics)
                row.configs = [*row.configs, *(each for each in found if wanted is None or each.name in wanted)]

    def _configs(self, name: str, topics: ManagedTopics) -> list[Config]:
        if name in topics.sources:
            return [_boolean(SOURCE, True, _SOURCE, default=False)]
        topic, state = topics.named(name), self._state_of(name)
        told = [] if state is None else [_config(STATE, state, _STATE, _STRING, read_only=True)]
        return told if topic is None else [*_configs(topic.layout), *told]


def _configs(layout: Layout) -> list[Config]:
    return [
        _config(VIRTUAL_PARTITIONS, layout.v_count, "Partitions that clients see.", read_only=False),
        _config(UNDELETED_PARTITION_COUNT, layout.u, "The brokers' partitions that get writes.", read_only=True),
        _config(INITIAL_PARTITION_COUNT, layout.n, "The partitions at first, which are the least.", read_only=True),
        _config(LAYOUT_EPOCH, layout.epoch, "The number of changes of the layout.", read_only=True),
        _boolean(ORDERED_DELIVERY, layout.ordered_delivery, _ORDERED, default=True),
        _boolean(JANITOR, layout.janitor, _CLEANED, default=False),
        _word(SHARE_ORDER, layout.share.order, _SHARED, default=DEFAULT.order),
        _word(SHARE_POISON, layout.share.poison, _POISONED, default=DEFAULT.poison),
    ]


def _boolean(name: str, value: bool, documentation: str, *, default: bool) -> Config:
    return _word(name, str(value).lower(), documentation, _BOOLEAN, default=str(default).lower())


def _word(name: str, value: str, documentation: str, config_type: int = _STRING, *, default: str) -> Config:
    config = _config(name, value, documentation, config_type, read_only=False)
    config.is_default = value == default
    config.config_source = _DEFAULT_CONFIG if value == default else _DYNAMIC_TOPIC_CONFIG
    return config


def _config(name: str, value: object, documentation: str, config_type: int = _INT, *, read_only: bool) -> Config:
    return Config(
        name=name,
        value=str(value),
        read_only=read_only,
        is_default=read_only,
        config_source=_DEFAULT_CONFIG if read_only else _DYNAMIC_TOPIC_CONFIG,
        is_sensitive=False,
        synonyms=[],
        config_type=config_type,
        documentation=documentation,
    )
