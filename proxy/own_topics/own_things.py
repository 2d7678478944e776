"""What is Kordon's own, and that clients find nothing of it: the one predicate, and what it makes of messages.

    topics `__kordon.*`      faces, layouts, positions of groups, lent epochs, decisions; all but faces by id, too
    `ordering.group`         the group of the proxies
    `kordon.layouts`         the transactional id of the controller

A face's id is what clients know as the id of the managed topic, so it is not closed.

A request that names something of it is not taken apart. The name is replaced by a *stand-in* that names nothing: no
topic can have "/" in its name. So the client's broker answers as it answers this client about things that do not
exist, and what the request names besides is done. In the answer stand-ins are what the client had asked for again.

Which fields name something say the tables (`codecs/naming.py`), so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import REQUESTS, RESPONSES
from kordon.codecs.naming import NamingField, entities_at, places
from kordon.codecs.primitives import Entity
from kordon.codecs.row import Row
from kordon.codecs.schema import Message
from kordon.codecs.turns import rows_done
from kordon.proxy.core.verdicts import Route
from kordon.proxy.own_topics.layouts_writer import TRANSACTIONAL_ID
from kordon.proxy.topics.managed_topics import OWN_PREFIX, is_own

ABOUT_RULES: Final = frozenset({apis.DESCRIBE_ACLS, apis.CREATE_ACLS, apis.DELETE_ACLS})
"""Requests that name rules, not things: operators set ACLs on Kordon's own by any admin client (docs/security.md)."""
_NOBODY_IS: Final = "//"
"""In place of the first letters of a topic's name."""
_NOBODY_SAYS: Final = "\0"
"""In front of a group or transactional id."""
_VERSION_BITS: Final = 6
_ALL_BITS: Final = (1 << 128) - 1
_DENIED: Final = {
    Entity.GROUP_ID: Code.GROUP_AUTHORIZATION_FAILED,
    Entity.TRANSACTIONAL_ID: Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_RESOURCES: Final[Mapping[object, Entity]] = {
    2: Entity.TOPIC_NAME,
    3: Entity.GROUP_ID,
    5: Entity.TRANSACTIONAL_ID,
    32: Entity.GROUP_ID,
}
"""By `resource_type`, as ACLs and configs count them."""
_KEYS: Final[Mapping[object, Entity]] = {0: Entity.GROUP_ID, 1: Entity.TRANSACTIONAL_ID}
"""By `key_type` of FindCoordinator."""
_NO_SUCH: Final = "This server does not host this topic-partition."
_RESERVED: Final = f"names that begin with {OWN_PREFIX} are Kordon's own"

_Fields: TypeAlias = dict[str, object]
"""Of a message, or of a row in it."""
_Name: TypeAlias = str | UUID
_Change: TypeAlias = Callable[[Entity, _Fields, _Name], _Name]
"""From what a field names, its row and the name to another name."""


class OwnThings:
    """Knows what is Kordon's own.

    Args:
        group: The proxies' group (`ordering.group`).
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._ids: dict[str, UUID] = {}
        self._asked_for: dict[int, tuple[bytes, ...]] = {}  # by api and version: looked at for each request
        self.refusals = 0
        """Requests that named something of it."""

    def learn(self, ids: Mapping[str, UUID]) -> None:
        """Takes in by which ids brokers know topics of Kordon's own."""
        if any(self._ids.get(name) != topic_id for name, topic_id in ids.items()):
            self._ids.update(ids)
            self._asked_for.clear()

    def owns(self, entity: Entity, value: object) -> bool:
        """Whether a topic name, topic id, group or transactional id is Kordon's own."""
        match entity:
            case Entity.TOPIC_NAME:
                return isinstance(value, str) and is_own(value)
            case Entity.TOPIC_ID:
                return value in self._ids.values()
            case Entity.GROUP_ID:
                return value == self._group
            case Entity.TRANSACTIONAL_ID:
                return value == TRANSACTIONAL_ID
            case _:
                return False

    def asked_for(self, route: Route) -> tuple[bytes, ...]:
        """Returns byte strings of which a request holds at least one if it names something of Kordon's own."""
        found = self._asked_for.get(route.index << _VERSION_BITS | route.version)
        return self._look_up(route) if found is None else found

    def _look_up(self, route: Route) -> tuple[bytes, ...]:
        message = REQUESTS.get(route.api.key)
        found = () if message is None or route.api.key in ABOUT_RULES else self._bytes_of(message, route.version)
        self._asked_for[route.index << _VERSION_BITS | route.version] = found
        return found

    def told_by(self, route: Route) -> tuple[bytes, ...]:
        """Returns byte strings of which an answer holds at least one if it names something of Kordon's own."""
        return self._bytes_of(RESPONSES[route.api.key], route.version)

    def _bytes_of(self, message: Message[Row], version: int) -> tuple[bytes, ...]:
        named = sorted(entities_at(message, version), key=str)
        return tuple(dict.fromkeys(each for entity in named for each in self._names(entity)))

    def _names(self, entity: Entity) -> Iterable[bytes]:
        match entity:
            case Entity.TOPIC_NAME:
                return (OWN_PREFIX.encode(),)
            case Entity.TOPIC_ID:
                return [each.bytes for each in self._ids.values()]
            case Entity.GROUP_ID:
                return (self._group.encode(),)
            case Entity.TRANSACTIONAL_ID:
                return [TRANSACTIONAL_ID.encode()]
            case Entity.RESOURCE_NAME | Entity.COORDINATOR_KEY:
                each_of = (Entity.TOPIC_NAME, Entity.GROUP_ID, Entity.TRANSACTIONAL_ID)
                return [needle for each in each_of for needle in self._names(each)]

    def denial(self, api_key: int, value: _Fields) -> Code | None:
        """Returns why a request as a whole cannot be had: it is about a group or transactional id of Kordon's."""
        for place in places(REQUESTS[api_key]):
            if place.entity is not None and not place.is_list:
                entity = _meant(place.entity, value)
                if entity in _DENIED and self.owns(entity, value.get(place.field)):
                    return _DENIED[entity]
        return None

    def hide(self, api_key: int, value: _Fields) -> bool:
        """Puts stand-ins for what is Kordon's own into a parsed request; returns whether there was any."""

        def stand_in(entity: Entity, row: _Fields, named: _Name) -> _Name:
            meant = _meant(entity, row)
            return _stand_in(meant, named) if meant is not None and self.owns(meant, named) else named

        return _change_all(value, places(REQUESTS[api_key]), stand_in)

    def show(self, api_key: int, value: _Fields) -> None:
        """Takes what is Kordon's own out of a parsed answer, and gives stand-ins the names that clients know."""
        found = places(RESPONSES[api_key])
        self._take_out(value, found)

        def name(entity: Entity, row: _Fields, named: _Name) -> _Name:
            for meant in _KEYS.values() if entity is Entity.COORDINATOR_KEY else (_meant(entity, row),):
                original = _behind(meant, named) if meant is not None else named
                if meant is not None and original != named and self.owns(meant, original):
                    _say_why(api_key, meant, row)
                    return original
            return named

        _change_all(value, found, name)

    def _take_out(self, row: _Fields, found: Sequence[NamingField]) -> None:
        for place in found:
            value = row.get(place.field)
            if not value:
                continue
            if place.entity is not None:
                if isinstance(value, list):
                    row[place.field] = [each for each in value if not self.owns(place.entity, each)]
                elif place.field in _MAY_BE_UNSAID and self.owns(place.entity, value):
                    row[place.field] = None
                continue
            kept: list[_Fields] = []
            for each in _rows_at(row, place):
                rows_done(1)
                if self._is_about_own(each, place.inner):
                    if place.is_list:
                        continue
                    each.update(_PAST_OWN)  # the cursor of DescribeTopicPartitions, which alone names a topic so
                self._take_out(each, place.inner)
                kept.append(each)
            if place.is_list:
                row[place.field] = kept

    def _is_about_own(self, row: _Fields, found: Sequence[NamingField]) -> bool:
        for place in found:
            if place.field in _MAY_BE_UNSAID:
                continue
            meant = _meant(place.entity, row) if place.entity is not None and not place.is_list else None
            if meant is not None and self.owns(meant, row.get(place.field)):
                return True
        return False


_MAY_BE_UNSAID: Final = frozenset({"sink_topic"})
"""Of a node in a description of streams: null says that it is found while they run. Its row is kept: others name it."""
_PAST_OWN: Final = {"topic_name": OWN_PREFIX[:-1] + "/", "partition_index": 0}
"""What follows all names that begin with `OWN_PREFIX`: "/" comes next to "." in the order of names."""


def _meant(entity: Entity, row: _Fields) -> Entity | None:
    """Returns what is named in a row whose other fields say that; None: nothing that Kordon has."""
    if entity is Entity.RESOURCE_NAME:
        return _RESOURCES.get(row.get("resource_type", 0))
    if entity is Entity.COORDINATOR_KEY:
        return _KEYS.get(row.get("key_type", 0))
    return entity


def _rows_at(row: _Fields, place: NamingField) -> Sequence[_Fields]:
    """Returns the rows within a row, one or many, in which something is named."""
    value = row.get(place.field)
    return value if isinstance(value, list) else (value,) if isinstance(value, dict) else ()


def _stand_in(entity: Entity, named: _Name) -> _Name:
    if isinstance(named, UUID):
        return UUID(int=named.int ^ _ALL_BITS)
    return _NOBODY_IS + named[len(_NOBODY_IS) :] if entity is Entity.TOPIC_NAME else _NOBODY_SAYS + named


def _behind(entity: Entity, named: _Name) -> _Name:
    """Returns what a stand-in stands for; what is none may come back as it is."""
    if isinstance(named, UUID):
        return UUID(int=named.int ^ _ALL_BITS)
    if entity is Entity.TOPIC_NAME:
        return OWN_PREFIX[: len(_NOBODY_IS)] + named.removeprefix(_NOBODY_IS)
    return named.removeprefix(_NOBODY_SAYS)


def _change_all(row: _Fields, found: Sequence[NamingField], change: _Change) -> bool:
    """Changes the names in a message; returns whether anything changed."""
    changed = False
    for place in found:
        if place.entity is None:
            for each in _rows_at(row, place):
                rows_done(1)
                changed |= _change_all(each, place.inner, change)
            continue
        value = row.get(place.field)
        new: object = value
        if isinstance(value, (str, UUID)):
            new = change(place.entity, row, value)
        elif isinstance(value, list):
            new = [change(place.entity, row, each) for each in value]
        if new != value:
            row[place.field] = new
            changed = True
    return changed


def _say_why(api_key: int, entity: Entity, row: _Fields) -> None:
    """Makes a row say that the client may not have what is Kordon's own, or that no such topic exists."""
    if entity in _DENIED and "error_code" in row:
        row["error_code"] = _DENIED[entity]
        if "error_message" in row:
            row["error_message"] = None  # the broker's says that it has not found the stand-in
    elif entity is Entity.TOPIC_NAME:
        _say_no_such(row, is_new=api_key == apis.CREATE_TOPICS)


def _say_no_such(row: _Fields, *, is_new: bool) -> None:
    """Has a topic's row, and its partitions' rows, say so in the words that are used of any other name."""
    message = row.get("error_message")
    if isinstance(message, str):
        row["error_message"] = message.replace(_NOBODY_IS + OWN_PREFIX[len(_NOBODY_IS) :], OWN_PREFIX)
    if row.get("error_code") == Code.INVALID_TOPIC:
        row["error_code"] = Code.INVALID_TOPIC if is_new else Code.UNKNOWN_TOPIC_OR_PARTITION
        if "error_message" in row:
            row["error_message"] = _RESERVED if is_new else _NO_SUCH
    for value in row.values():
        for each in value if isinstance(value, list) else ():
            if isinstance(each, dict):
                _say_no_such(each, is_new=is_new)
