"""AlterConfigs: Kordon's topic configs become wishes, the broker gets the others.

Clients need the right to alter the topic's configs. Like a broker, Kordon changes all that is asked of a topic or
nothing.

A request says what all configs are to be: others go back to their defaults, but a topic that it does not name
Kordon's config of stays managed. To let it go is too much to be done by leaving something out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from kordon.codecs import apis
from kordon.codecs.bodies import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsResponse,
)
from kordon.codecs.counted import counted
from kordon.codecs.error_codes import Code
from kordon.codecs.row import Row
from kordon.proxy.handlers.own_configs import (
    JANITOR,
    LEFT_OUT,
    OF_SHARE_GROUPS,
    ORDERED_DELIVERY,
    OWN_CONFIGS,
    SHARE_ORDER,
    SHARE_POISON,
    SOURCE,
    TAKEOVER,
    TRANSITION_MS,
    VIRTUAL_PARTITIONS,
    janitor_wish,
    managed_wish,
    ordered_wish,
    share_wish,
    source_wish,
)
from kordon.proxy.handlers.topic_wishes import AnyWish, TakenOut, WishedApi
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.takeover import MOST_SHARED
from kordon.proxy.ordering.wishes import LeaveOut, Manage, Unmanage, Wish
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

_TOPIC: Final = 2
_SET, _DELETE, _APPEND = 0, 1, 2
_ONLINE, _DELIVERING, _QUIESCED = "online", "delivering", "quiesced"
_WAYS = (_ONLINE, _DELIVERING, _QUIESCED)
_COMPACT: Final = "compact"
_CLEANUP_POLICY: Final = "cleanup.policy"


_Asked: TypeAlias = AlterConfigsRequest | IncrementalAlterConfigsRequest
_Told: TypeAlias = AlterConfigsResponse | IncrementalAlterConfigsResponse
_Config: TypeAlias = AlterConfigsRequestConfig | IncrementalAlterConfigsRequestConfig


class AlterConfigs(WishedApi[_Asked, _Told]):
    """Takes Kordon's configs out of AlterConfigs."""

    key = apis.ALTER_CONFIGS
    right = Operation.ALTER_CONFIGS
    answered = "responses"

    def row(self, name: str) -> Row:
        """Returns the row of the response for a topic that the broker was not asked about."""
        return Row(resource_type=_TOPIC, resource_name=name, error_code=Code.NONE, error_message=None)

    def take(self, value: _Asked, topics: ManagedTopics) -> TakenOut | None:
        """Takes out Kordon's configs, and topics of which nothing may be changed."""
        wishes: dict[str, AnyWish | OutcomeRecord] = {}
        left = []
        for row in value.resources:
            own = [each for each in row.configs if _is_own_config(row.resource_name, each.name, topics)]
            is_topic = row.resource_type == _TOPIC
            if is_topic and own:
                refusal = _unserved(row.resource_name, topics)
                wish = wishes[row.resource_name] = refusal or _wished(row.resource_name, own, topics)
                row["configs"] = [each for each in row.configs if each not in own]
                if isinstance(wish, OutcomeRecord) and wish.error_code:
                    continue
            elif (
                is_topic and any(_compacts(each) for each in row.configs) and _lacks_janitor(row.resource_name, topics)
            ):
                wishes[row.resource_name] = _not_compacted(row.resource_name, topics)
                continue
            if row.configs or not own or "config_operation" not in own[0]:
                left.append(row)
        value.update(resources=left)
        return TakenOut(wishes, bool(left)) if wishes else None


def _is_own_config(topic: str, name: str, topics: ManagedTopics) -> bool:
    return name.startswith(OWN_CONFIGS) or (name == ORDERED_DELIVERY and topics.named(topic) is not None)


def _operation(config: _Config) -> int:
    return config.get("config_operation", _SET)


def _compacts(config: _Config) -> bool:
    return _operation(config) in (_SET, _APPEND) and config.name == _CLEANUP_POLICY and _COMPACT in str(config.value)


def _lacks_janitor(name: str, topics: ManagedTopics) -> bool:
    topic = topics.named(name)
    return topic is not None and not topic.layout.janitor


def _not_compacted(name: str, topics: ManagedTopics) -> OutcomeRecord:
    topic = topics.named(name)
    if topic is not None and topic.layout.has_transactions:
        detail = f"{name} has transactions: compaction would take committed values for the sake of aborted ones"
        return OutcomeRecord(Code.INVALID_CONFIG, detail)
    detail = f"a key's old value could outlive the new one in a partition of {name} that it has left"
    return OutcomeRecord(Code.INVALID_CONFIG, f"{detail}; set {JANITOR}=true before, which has old values removed")


def _reordered(name: str, config: _Config) -> Wish | OutcomeRecord:
    operation = _operation(config)
    if operation not in (_SET, _DELETE):
        return OutcomeRecord(Code.INVALID_CONFIG, f"{ORDERED_DELIVERY} is not a list: it can be set and deleted only")
    return ordered_wish(name, config.value if operation == _SET else None)


def _of_one_kind(name: str, configs: Sequence[_Config]) -> Wish | OutcomeRecord | None:
    """Reads configs of a managed topic that are the janitor's, or those of share groups; None: others are there."""
    if all(each.name == JANITOR for each in configs):
        return janitor_wish(name, configs[-1].value if _operation(configs[-1]) == _SET else None)
    return _shared(name, configs) if all(each.name in OF_SHARE_GROUPS for each in configs) else None


def _shared(name: str, configs: Sequence[_Config]) -> Wish | OutcomeRecord:
    if odd := next((each.name for each in configs if _operation(each) not in (_SET, _DELETE)), None):
        return OutcomeRecord(Code.INVALID_CONFIG, f"{odd} is not a list: it can be set and deleted only")
    return share_wish(name, {each.name: each.value if _operation(each) == _SET else None for each in configs})


def _unserved(name: str, topics: ManagedTopics) -> OutcomeRecord | None:
    """Refuses what concerns a topic that is not served: a lost layout is restored, not made again."""
    why = topics.unserved.get(name)
    return None if why is None else OutcomeRecord(Code.INVALID_REQUEST, f"{name} is not served: {why}")


def _wished(name: str, configs: Sequence[_Config], topics: ManagedTopics) -> AnyWish | OutcomeRecord:
    if all(each.name == SOURCE for each in configs):
        return source_wish(name, configs[-1].value if _operation(configs[-1]) == _SET else None)
    return _changed(name, configs, topics)


def _changed(name: str, configs: Sequence[_Config], topics: ManagedTopics) -> Wish | OutcomeRecord:
    topic = topics.named(name)
    if topic is not None:  # what is so already needs no change, as where a tool writes back what it has read
        configs = [each for each in configs if not _is_so(each, topic)]
    if not configs:
        return OutcomeRecord(Code.NONE, "")
    if all(each.name == ORDERED_DELIVERY for each in configs):
        return _reordered(name, configs[-1])
    if topic is not None and (wished := _of_one_kind(name, configs)) is not None:
        return wished
    by_name = {each.name: each for each in configs}
    if list(by_name) == [LEFT_OUT] and (groups := (by_name[LEFT_OUT].value or "").split(",")):
        return LeaveOut(name, tuple(group.strip() for group in groups if group.strip()))
    config = by_name.pop(VIRTUAL_PARTITIONS, None)
    told = {each.name: each.value for each in by_name.values()}
    if config is None or told.keys() - {TAKEOVER, TRANSITION_MS, JANITOR}:
        others = ", ".join(sorted(told))
        return OutcomeRecord(Code.INVALID_CONFIG, f"{others}: cannot be set; {VIRTUAL_PARTITIONS} can")
    if _operation(config) == _DELETE:
        return Unmanage(name)
    if _operation(config) != _SET:
        return OutcomeRecord(Code.INVALID_CONFIG, f"{VIRTUAL_PARTITIONS} is not a list: it can be set and deleted only")
    if topic is not None:
        detail = (
            f"{name} has {counted(topic.layout.v_count, 'virtual partition')} for good; grow or shrink it within them"
        )
        return OutcomeRecord(Code.INVALID_CONFIG, detail)
    wish = managed_wish(name, config.value, -1)
    return _with_takeover(wish, told) if isinstance(wish, Manage) else wish


def _with_takeover(wish: Manage, told: Mapping[str, str | None]) -> Wish | OutcomeRecord:
    """Says how a topic with data is taken over."""
    how, transition_ms = told.get(TAKEOVER) or _ONLINE, told.get(TRANSITION_MS)
    if how not in _WAYS:
        return OutcomeRecord(Code.INVALID_CONFIG, f"{TAKEOVER} is one of {', '.join(_WAYS)}, not {how!r}")
    if how == _DELIVERING and wish.virtual_partitions > MOST_SHARED:
        detail = f"{TAKEOVER}={_DELIVERING} goes with at most {MOST_SHARED} virtual partitions: use {_ONLINE}"
        return OutcomeRecord(Code.INVALID_PARTITIONS, detail)
    if transition_ms is not None and not transition_ms.isdigit():
        return OutcomeRecord(Code.INVALID_CONFIG, f"{TRANSITION_MS} is a number of milliseconds, not {transition_ms!r}")
    janitor = janitor_wish(wish.topic, told.get(JANITOR))
    if isinstance(janitor, OutcomeRecord):
        return janitor
    kind: Literal["manage", "manage delivering"] = "manage delivering" if how == _DELIVERING else "manage"
    wish = replace(wish, quiesced=how == _QUIESCED, janitor=janitor.on, kind=kind)
    return wish if transition_ms is None else replace(wish, transition_ms=int(transition_ms))


def _is_so(config: _Config, topic: ManagedTopic) -> bool:
    layout = topic.layout
    is_so = {
        VIRTUAL_PARTITIONS: str(layout.v_count),
        JANITOR: str(layout.janitor).lower(),
        SHARE_ORDER: layout.share.order,
        SHARE_POISON: layout.share.poison,
    }
    return _operation(config) == _SET and is_so.get(config.name) == config.value
