"""Managing topics through any Kafka admin client: what concerns managed topics becomes a wish, the rest goes on.

Whoever asks is answered when the wish has come true, or with the reason why it cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.handlers.metadata import NO_ID
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.ordering.hashing import why_not
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.wishes import (
    Delete,
    LeaveOut,
    LookAgain,
    Manage,
    OrderDelivery,
    Resize,
    SetJanitor,
    Unmanage,
    Wish,
)
from kordon.proxy.topics.managed_topics import OWN_NAMES, ManagedTopic, ManagedTopics, face_of
from kordon.proxy.topics.names import with_real_id

VIRTUAL_PARTITIONS: Final = "kordon.virtual.partitions"
"""Topic config: managed, with so many virtual partitions."""
TAKEOVER: Final = "kordon.takeover"
"""Given with `VIRTUAL_PARTITIONS` for a topic with data: online (the default) or quiesced (TAKEOVER-WAITS)."""
TRANSITION_MS: Final = "kordon.takeover.transition.ms"
"""Given with them: how long clients may have the old view."""
LEFT_OUT: Final = "kordon.takeover.left.out"
"""Groups, with commas, that a takeover does not wait for."""
_ONLINE, _QUIESCED = "online", "quiesced"
ORDERED_DELIVERY: Final = "enable.ordered.delivery"
"""Topic config of KIP-253; only managed topics have it."""
JANITOR: Final = "kordon.janitor"
"""Topic config: old values of keys are taken out of partitions that they have left; compacted topics need it."""
_COMPACT: Final = "compact"
_CLEANUP_POLICY: Final = "cleanup.policy"
_OWN_CONFIGS: Final = "kordon."
_TOPIC: Final = 2
_SET, _DELETE, _APPEND = 0, 1, 2
_AT_ONCE: Final = 32
"""Wishes of one request that come true side by side; each of them waits for all proxies to know of it."""
_OF_MANAGED: Final = frozenset({VIRTUAL_PARTITIONS, ORDERED_DELIVERY, JANITOR})
"""Topic configs that brokers do not hear of."""
Fulfil = Callable[[Wish], Awaitable[OutcomeRecord]]


@dataclass(frozen=True, slots=True)
class TopicWishes:
    """What of an admin request is Kordon's.

    Attributes:
        wishes: What is wished, by the name of the topic; a refusal where it cannot be.
        rest: The body of what the broker is asked; None: nothing.
        only_checked: Nothing is to be changed (validate_only).
        ids: Of topics that are named by an id: by the one that the broker knows, their name and the id that was said.
    """

    wishes: Mapping[str, Wish | OutcomeRecord]
    rest: bytes | None
    only_checked: bool
    ids: Mapping[UUID, tuple[str, UUID]] = field(default_factory=dict[UUID, tuple[str, UUID]])


class AdminRequests:
    """Answers the requests by which topics are managed.

    Args:
        topics: What is managed.
        fulfil: Has a wish come true.
    """

    KEYS: Final = frozenset(
        {
            apis.CREATE_TOPICS,
            apis.DELETE_TOPICS,
            apis.ALTER_CONFIGS,
            apis.CREATE_PARTITIONS,
            apis.INCREMENTAL_ALTER,
        }
    )

    def __init__(self, topics: ManagedTopics, fulfil: Fulfil) -> None:
        self._topics = topics
        self._fulfil = fulfil

    def take(self, api_key: int, version: int, value: Any) -> TopicWishes | None:
        """Takes out of a request what is Kordon's; None: nothing is.

        Args:
            api_key: One of `KEYS`.
            version: Of the request.
            value: Parsed; changed.
        """
        found = _TAKERS[api_key](value, self._topics)
        if found is None:
            return None
        rest = request(api_key).build(version, value) if found.has_rest else None
        return TopicWishes(found.wishes, rest, bool(value.get("validate_only", False)), found.ids)

    async def answer(self, api_key: int, asked: TopicWishes, part: Any) -> dict[str, Any]:
        """Has the wishes come true, after the broker has done its part; returns the response's fields."""
        rows_field = _ROWS[api_key]
        fields = dict(part) if part is not None else {rows_field: []}
        rows = dict(_by_name(row, asked.ids) for row in fields[rows_field])
        mine = {name: rows.setdefault(name, _row(api_key, name)) for name in asked.wishes}
        room = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for name, wish in asked.wishes.items():
                if not mine[name]["error_code"]:
                    group.create_task(self._answer_one(mine[name], wish, room, only_checked=asked.only_checked))
        fields[rows_field] = list(rows.values())
        return fields

    async def _answer_one(
        self, row: dict[str, Any], wish: Wish | OutcomeRecord, room: asyncio.Semaphore, *, only_checked: bool
    ) -> None:
        async with room:
            outcome = await self._outcome(wish, only_checked=only_checked)
        row |= {"error_code": outcome.error_code, "error_message": outcome.message or None}
        if "num_partitions" in row and isinstance(wish, Manage) and not outcome.error_code:
            row["num_partitions"] = wish.virtual_partitions  # what its clients see from now on

    async def _outcome(self, wish: Wish | OutcomeRecord, *, only_checked: bool) -> OutcomeRecord:
        if isinstance(wish, OutcomeRecord):
            return wish
        if only_checked:
            return OutcomeRecord(Code.NONE, "")
        try:
            return await self._fulfil(wish)
        except TopicsRefused as error:
            return OutcomeRecord(error.code, str(error))
        except UpstreamUnavailable as error:
            return OutcomeRecord(Code.REQUEST_TIMED_OUT, str(error))


class TakenOut(NamedTuple):
    """What is taken out of a request."""

    wishes: Mapping[str, Wish | OutcomeRecord]
    """By topic."""
    has_rest: bool
    """Whether anything is left for the broker."""
    ids: Mapping[UUID, tuple[str, UUID]] = MappingProxyType({})
    """As of `TopicWishes`."""


def _take_creations(value: Any, topics: ManagedTopics) -> TakenOut | None:
    wishes: dict[str, Wish | OutcomeRecord] = {}
    left = []
    for topic in value.topics:
        told = {config.name: config.value for config in topic.configs}
        if VIRTUAL_PARTITIONS in told:
            wish = wishes[topic.name] = _created(topic.name, told, topic.num_partitions)
            kept = [each for each in topic.configs if each.name not in _OF_MANAGED]
            topic.update({"configs": kept})
            if isinstance(wish, OutcomeRecord):
                continue
        elif topics.named(topic.name) is not None:
            wishes[topic.name] = LookAgain(topic.name)  # if brokers create it, that one was deleted (SAME-TOPIC)
        left.append(topic)
    value.update({"topics": left})
    return TakenOut(wishes, bool(left)) if wishes else None


def _take_deletions(value: Any, topics: ManagedTopics) -> TakenOut | None:
    wishes: dict[str, Wish | OutcomeRecord] = {}
    ids: dict[UUID, tuple[str, UUID]] = {}
    for row in value.get("topics") or ():
        managed = _by_any_id(row.topic_id, topics) if row.name is None else _by_name_alone(row, topics)
        if managed is not None:
            wishes[managed.name] = Delete(managed.name)
            if row.name is None:
                ids[managed.layout.topic_id] = managed.name, row.topic_id
                row["topic_id"] = managed.layout.topic_id
    for name in value.get("topic_names") or ():
        if topics.named(name) is not None:
            wishes[name] = Delete(name)
    return TakenOut(wishes, True, ids) if wishes else None


def _by_any_id(topic_id: UUID, topics: ManagedTopics) -> ManagedTopic | None:
    """Finds a topic by the id that clients know, or by its id from before it was managed."""
    return topics.with_face_id(topic_id) or with_real_id(topics, topic_id)


def _by_name_alone(row: Any, topics: ManagedTopics) -> ManagedTopic | None:
    """Finds a topic by its name; with an id beside it the broker refuses it."""
    return topics.named(row.name) if row.topic_id == NO_ID else None


def _take_partitions(value: Any, topics: ManagedTopics) -> TakenOut | None:
    wishes: dict[str, Wish | OutcomeRecord] = {}
    left = []
    for row in value.topics:
        managed = topics.named(row.name)
        if row.name in topics.unserved:
            wishes[row.name] = OutcomeRecord(Code.INVALID_REQUEST, topics.unserved[row.name])
        elif managed is None:
            left.append(row)
        else:
            problem = why_not(managed.layout.n, row.count, managed.layout.v_count)
            refused = OutcomeRecord(Code.INVALID_PARTITIONS, problem) if problem else None
            wishes[row.name] = refused or Resize(row.name, row.count)
    value.update({"topics": left})
    return TakenOut(wishes, bool(left)) if wishes else None


def _take_configs(value: Any, topics: ManagedTopics) -> TakenOut | None:
    """Takes Kordon's configs out; like a broker, changes all that is asked of a topic or nothing.

    AlterConfigs says what all configs are to be: others go back to their defaults, but a topic that it does not name
    Kordon's config of stays managed. To let it go is too much to be done by leaving something out.
    """
    wishes: dict[str, Wish | OutcomeRecord] = {}
    left = []
    for row in value.resources:
        own = [each for each in row.configs if _is_own_config(row.resource_name, each.name, topics)]
        is_topic = row.resource_type == _TOPIC
        if is_topic and own:
            wish = wishes[row.resource_name] = _changed(row.resource_name, own, topics)
            row["configs"] = [each for each in row.configs if each not in own]
            if isinstance(wish, OutcomeRecord) and wish.error_code:
                continue
        elif is_topic and any(_compacts(each) for each in row.configs) and _lacks_janitor(row.resource_name, topics):
            wishes[row.resource_name] = _not_compacted(row.resource_name)
            continue
        if row.configs or not own or "config_operation" not in own[0]:
            left.append(row)
    value.update({"resources": left})
    return TakenOut(wishes, bool(left)) if wishes else None


_TAKERS: Final[Mapping[int, Callable[[Any, ManagedTopics], TakenOut | None]]] = {
    apis.CREATE_TOPICS: _take_creations,
    apis.DELETE_TOPICS: _take_deletions,
    apis.CREATE_PARTITIONS: _take_partitions,
    apis.ALTER_CONFIGS: _take_configs,
    apis.INCREMENTAL_ALTER: _take_configs,
}
_ROWS: Final = {
    apis.CREATE_TOPICS: "topics",
    apis.DELETE_TOPICS: "responses",
    apis.CREATE_PARTITIONS: "results",
    apis.ALTER_CONFIGS: "responses",
    apis.INCREMENTAL_ALTER: "responses",
}


def _row(api_key: int, name: str) -> dict[str, Any]:
    if api_key in {apis.ALTER_CONFIGS, apis.INCREMENTAL_ALTER}:
        return {"resource_type": _TOPIC, "resource_name": name, "error_code": 0, "error_message": None}
    return {"name": name, "error_code": 0, "error_message": None}


def _by_name(row: Any, ids: Mapping[UUID, tuple[str, UUID]]) -> tuple[Any, dict[str, Any]]:
    """Returns a row of the broker's answer as the client sees it, and what it is about: a name, or an unknown id."""
    name = row["name"] if "name" in row else row["resource_name"]
    topic_id = row.get("topic_id")
    if topic_id not in ids:
        return (name if name is not None else topic_id), dict(row)
    name, shown_id = ids[topic_id]
    return name, {**row, "topic_id": shown_id}


def _is_own_config(topic: str, name: str, topics: ManagedTopics) -> bool:
    return name.startswith(_OWN_CONFIGS) or (name == ORDERED_DELIVERY and topics.named(topic) is not None)


def _compacts(config: Any) -> bool:
    is_set: bool = config.get("config_operation", _SET) in (_SET, _APPEND)
    return is_set and config.name == _CLEANUP_POLICY and _COMPACT in str(config.value)


def _lacks_janitor(name: str, topics: ManagedTopics) -> bool:
    topic = topics.named(name)
    return topic is not None and not topic.layout.janitor


def _not_compacted(name: str) -> OutcomeRecord:
    detail = f"a key's old value could outlive the new one in a partition of {name} that it has left"
    return OutcomeRecord(Code.INVALID_CONFIG, f"{detail}; set {JANITOR}=true before, which has old values removed")


def _managed(name: str, value: str | None, partitions: int) -> Wish | OutcomeRecord:
    if name in OWN_NAMES:
        return OutcomeRecord(Code.INVALID_TOPIC, f"{name} cannot be managed: {face_of(name)} is Kordon's own")
    if value is None or not value.isdigit():
        return OutcomeRecord(Code.INVALID_CONFIG, f"{VIRTUAL_PARTITIONS} is a number of partitions, not {value!r}")
    problem = why_not(partitions, partitions, int(value)) if partitions > 0 else None
    return OutcomeRecord(Code.INVALID_PARTITIONS, problem) if problem else Manage(name, int(value))


def _created(name: str, told: Mapping[str, str | None], partitions: int) -> Wish | OutcomeRecord:
    wish = _managed(name, told[VIRTUAL_PARTITIONS], partitions)
    ordered = _ordered(name, told.get(ORDERED_DELIVERY))
    janitor = _janitor(name, told.get(JANITOR))
    refusal = next((each for each in (wish, ordered, janitor) if isinstance(each, OutcomeRecord)), None)
    if refusal is None and isinstance(wish, Manage):
        is_ordered, has_janitor = ordered == OrderDelivery(name, ordered=True), janitor == SetJanitor(name, on=True)
        return replace(wish, ordered_delivery=is_ordered, janitor=has_janitor)
    return refusal or wish


def _reordered(name: str, config: Any) -> Wish | OutcomeRecord:
    operation = config.get("config_operation", _SET)
    if operation not in (_SET, _DELETE):
        return OutcomeRecord(Code.INVALID_CONFIG, f"{ORDERED_DELIVERY} is no list")
    return _ordered(name, config.value if operation == _SET else None)


def _ordered(name: str, value: str | None) -> OrderDelivery | OutcomeRecord:
    """Reads enable.ordered.delivery as brokers read a boolean; None: the default."""
    told = _boolean(ORDERED_DELIVERY, "true" if value is None else value)
    return told if isinstance(told, OutcomeRecord) else OrderDelivery(name, told)


def _janitor(name: str, value: str | None) -> SetJanitor | OutcomeRecord:
    told = _boolean(JANITOR, "false" if value is None else value)
    return told if isinstance(told, OutcomeRecord) else SetJanitor(name, told)


def _boolean(config: str, value: str) -> bool | OutcomeRecord:
    told = value.strip().lower()
    if told not in ("true", "false"):
        detail = f"Invalid value {value} for configuration {config}: Expected value to be either true or false"
        return OutcomeRecord(Code.INVALID_CONFIG, detail)
    return told == "true"


def _changed(name: str, configs: list[Any], topics: ManagedTopics) -> Wish | OutcomeRecord:
    topic = topics.named(name)
    if topic is not None:  # what is so already needs no change, as where a tool writes back what it has read
        configs = [each for each in configs if not _is_so(each, topic)]
    if not configs:
        return OutcomeRecord(Code.NONE, "")
    if all(each.name == ORDERED_DELIVERY for each in configs):
        return _reordered(name, configs[-1])
    if topic is not None and all(each.name == JANITOR for each in configs):
        return _janitor(name, configs[-1].value if configs[-1].get("config_operation", _SET) == _SET else None)
    by_name = {each.name: each for each in configs}
    if list(by_name) == [LEFT_OUT] and (groups := (by_name[LEFT_OUT].value or "").split(",")):
        return LeaveOut(name, tuple(group.strip() for group in groups if group.strip()))
    config = by_name.pop(VIRTUAL_PARTITIONS, None)
    told = {each.name: each.value for each in by_name.values()}
    if config is None or told.keys() - {TAKEOVER, TRANSITION_MS, JANITOR}:
        others = ", ".join(sorted(told))
        return OutcomeRecord(Code.INVALID_CONFIG, f"{others}: cannot be set; {VIRTUAL_PARTITIONS} can")
    operation = config.get("config_operation", _SET)
    if operation == _DELETE:
        return Unmanage(name)
    if operation != _SET:
        return OutcomeRecord(Code.INVALID_CONFIG, f"{VIRTUAL_PARTITIONS} is no list")
    if topic is not None:
        detail = f"{name} has {topic.layout.v_count} virtual partitions for good; grow or shrink it within them"
        return OutcomeRecord(Code.INVALID_CONFIG, detail)
    wish = _managed(name, config.value, -1)
    return _with_takeover(wish, told) if isinstance(wish, Manage) else wish


def _with_takeover(wish: Manage, told: Mapping[str, str | None]) -> Wish | OutcomeRecord:
    """Says how a topic with data is taken over."""
    how, transition_ms = told.get(TAKEOVER) or _ONLINE, told.get(TRANSITION_MS)
    if how not in (_ONLINE, _QUIESCED):
        return OutcomeRecord(Code.INVALID_CONFIG, f"{TAKEOVER} is {_ONLINE} or {_QUIESCED}, not {how!r}")
    if transition_ms is not None and not transition_ms.isdigit():
        return OutcomeRecord(Code.INVALID_CONFIG, f"{TRANSITION_MS} is a number of milliseconds, not {transition_ms!r}")
    janitor = _janitor(wish.topic, told.get(JANITOR))
    if isinstance(janitor, OutcomeRecord):
        return janitor
    wish = replace(wish, quiesced=how == _QUIESCED, janitor=janitor.on)
    return wish if transition_ms is None else replace(wish, transition_ms=int(transition_ms))


def _is_so(config: Any, topic: ManagedTopic) -> bool:
    is_set = config.get("config_operation", _SET) == _SET
    is_so = {VIRTUAL_PARTITIONS: str(topic.layout.v_count), JANITOR: str(topic.layout.janitor).lower()}
    return bool(is_set and is_so.get(config.name) == config.value)
