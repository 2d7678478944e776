"""What is changed in responses: brokers' addresses become the proxy's, ApiVersions becomes what Kordon lets through.

Only the section of a response that holds addresses is parsed. Which one that is says `EDITS`, a row per api key:

- WHOLE: small answers (FindCoordinator, DescribeCluster, DescribeQuorum; ApiVersions, an `Offer`);
- HEAD: Metadata names the brokers before the topics, so the topics stream on unread;
- TAIL: Produce, Fetch and their share counterparts name new leaders behind all data (KIP-951). The data is walked,
  not kept. Where the frame's size has been sent on already, the new tail is fitted into the room of the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from kordon.codecs import apis
from kordon.codecs.bodies import (
    ApiVersionsResponseApiKey,
    ApiVersionsResponseSupportedFeature,
    DescribeClusterResponse,
    FetchResponse,
    FindCoordinatorResponse,
    MetadataResponse,
    ProduceResponse,
)
from kordon.codecs.dialect import COOPERATIVE, ORDERED, VERSION, is_private
from kordon.codecs.messages import (
    api_versions,
    describe_cluster,
    describe_quorum,
    fetch,
    find_coordinator,
    metadata,
    produce,
    response,
    share_acknowledge,
    share_fetch,
)
from kordon.codecs.row import Row
from kordon.codecs.schema import Message
from kordon.codecs.skim import Skim
from kordon.codecs.turns import rows_done
from kordon.proxy.core import verdicts
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.verdicts import LENT_VERSIONS, WITH_IDENTITY, Route

_Answer = TypeVar("_Answer", bound=Row)

Nodes = dict[int, tuple[str, int]]
"""Host and port of brokers as the cluster knows them, by node id."""

_UNSUPPORTED_VERSION: Final = 35
SMALLEST_ENDPOINTS: Final = 12
"""A tail shorter than this has no room for an endpoint (node id, host, port, rack, tags)."""
_PADDING_TAGS: Final = (127, 16383)
"""Tags that no Kafka message knows; readers skip them (KIP-482). One of one byte, one of two."""


class Section(Enum):
    """Which part of a response's body is taken out and changed."""

    WHOLE = "whole"
    HEAD = "head"
    TAIL = "tail"


TakeAnswer: TypeAlias = Callable[[Any], None]
"""Takes a broker's answer, parsed; only whoever asked knows of what type it is."""


class _Broker(Protocol):
    """A row with the address of a broker."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Edit(Generic[_Answer]):
    """The way in which the responses of one api key are changed."""

    message: Message[_Answer]
    section: Section
    change: Callable[[_Answer, Advertised], Nodes]
    """Changes the parsed section in place; returns the brokers it named, as the cluster knows them."""
    since: int = 0
    """First version that carries addresses."""
    last: str = ""
    """HEAD: the field that ends the section; TAIL: the field behind which it begins."""
    until: str = ""
    """HEAD: the field that follows the section in the newest version."""

    def skim(self, version: int) -> Skim:
        """Returns what finds the section's border in a stream of chunks."""
        return Skim(self.message, version, after=self.last)

    def apply(self, version: int, section: bytes, advertised: Advertised, *, fit: bool = False) -> tuple[bytes, Nodes]:
        """Changes the section of a response.

        Returns:
            The section as it goes to the client, and the brokers it names.

        Raises:
            WireError: The response cannot be read.
        """
        match self.section:
            case Section.WHOLE:
                return self._whole(version, section, advertised)
            case Section.HEAD:
                return self._head(version, section, advertised)
            case Section.TAIL:
                return self._tail(version, section, advertised, fit=fit)

    def _head(self, version: int, section: bytes, advertised: Advertised) -> tuple[bytes, Nodes]:
        codec = self.message.prefix(version, until=self.until)
        value, consumed = codec.parse(section)
        nodes = self.change(value, advertised)
        return codec.build(value) + section[consumed:], nodes

    def _whole(self, version: int, body: bytes, advertised: Advertised) -> tuple[bytes, Nodes]:
        value = self.message.parse(version, body)
        nodes = self.change(value, advertised)
        return self.message.build_last(version, value), nodes

    def _tail(self, version: int, tail: bytes, advertised: Advertised, *, fit: bool) -> tuple[bytes, Nodes]:
        codec = self.message.suffix(version, after=self.last)
        value, _ = codec.parse(tail)
        nodes = self.change(value, advertised)
        if not nodes:
            return tail, nodes
        if not fit:
            return codec.build(value), nodes
        return next(built for built in _fitting(codec.build, value, len(tail)) if len(built) == len(tail)), nodes


class Offer:
    """How ApiVersions is changed: it offers what broker and table both have, and names nobody.

    Args:
        features: The features of Kordon's own that are served here (`codecs/dialect.py`).
        private: Whether the answer lists the api keys of Kordon's own.
        lends_epochs: Whether InitProducerId with id and epoch is offered, too, where the broker does not have that.
        told: Called with the newest version of InitProducerId that the broker offers.
    """

    section = Section.WHOLE

    def __init__(
        self,
        *,
        features: tuple[str, ...] = (),
        private: bool = False,
        lends_epochs: bool = False,
        told: Callable[[int], None] | None = None,
    ) -> None:
        self._features = features
        self._private = private
        self._lends_epochs = lends_epochs
        self._told = told

    def apply(self, version: int, section: bytes, advertised: Advertised, *, fit: bool = False) -> tuple[bytes, Nodes]:
        """Does what `Edit.apply` does."""
        body, newest = _clamped(
            version, section, features=self._features, private=self._private, lends_epochs=self._lends_epochs
        )
        if self._told is not None and newest is not None:
            self._told(newest)
        return body, {}


class Translated:
    """An answer that is changed as a whole because its request was: its addresses first, then what `back` does.

    Args:
        edit: The edit of such answers that happens anyway.
        back: Changes the parsed answer in place.
        only_with: If given, the bytes that an answer holds if `back` has something to change. Other answers are not
            read for it.
        streams: If given, it returns whether `back` has nothing to change. It is called when the answer begins.
    """

    section = Section.WHOLE

    def __init__(
        self,
        route: Route,
        edit: Change | None,
        back: TakeAnswer,
        only_with: tuple[bytes, ...] = (),
        streams: Callable[[], bool] | None = None,
    ) -> None:
        self._message = response(route.api.key)
        self._edit = edit
        self._back = back
        self._only_with = only_with
        self._streams = streams

    def begun(self) -> Change | None:
        """Returns how an answer that begins now is changed."""
        return self._edit if self._streams is not None and self._streams() else self

    def parse(self, version: int, body: bytes, advertised: Advertised) -> tuple[Row, Nodes]:
        """Returns the answer with the proxy's addresses, and the brokers it names.

        Raises:
            WireError: The response cannot be read.
        """
        value = self._message.parse(version, body)
        nodes = self._edit.change(value, advertised) if isinstance(self._edit, Edit) else {}
        self._back(value)
        return value, nodes

    def apply(self, version: int, section: bytes, advertised: Advertised, *, fit: bool = False) -> tuple[bytes, Nodes]:
        """Does what `Edit.apply` does."""
        if self._only_with and not any(each in section for each in self._only_with):
            return (section, {}) if self._edit is None else self._edit.apply(version, section, advertised)
        value, nodes = self.parse(version, section, advertised)
        return self._message.build_last(version, value), nodes


Change: TypeAlias = Edit[Any] | Offer | Translated
"""What is changed in one response."""


def _fitting(build: Callable[[Row], bytes], value: Row, room: int) -> Iterator[bytes]:
    """Yields a tail in forms that may take exactly `room` bytes, the most telling first.

    Padded it is; or racks are left out, and at last the endpoints: a client without them asks for Metadata, as
    before KIP-951.
    """
    tagged = value.get("_tagged", dict[int, bytes]())
    for shorten in (_keep, _drop_racks, _drop_endpoints):
        shorten(value)
        bare = len(build(value))
        if bare == room:
            yield build(value)
        for tag in _PADDING_TAGS:
            for overhead in (2, 3, 4, 5):
                if room - bare - overhead >= 0:
                    tagged[tag] = bytes(room - bare - overhead)
                    yield build(value)
                    del tagged[tag]


def _keep(value: object) -> None:
    """Nothing is left out yet."""


def _drop_endpoints(value: Row) -> None:
    value["node_endpoints"] = []


def _drop_racks(value: Row) -> None:
    for endpoint in value.get("node_endpoints", list[Row]()):
        endpoint["rack"] = None


def _move(node_id: int, broker: _Broker, advertised: Advertised, nodes: Nodes) -> None:
    """Gives one broker the proxy's address; those without one (errors: node id -1, port -1) stay as they are."""
    if node_id >= 0 and broker.port > 0:
        nodes[node_id] = (broker.host, broker.port)
        broker.host, broker.port = advertised.of(node_id)


def _brokers(value: MetadataResponse, advertised: Advertised) -> Nodes:
    nodes: Nodes = {}
    for broker in value.brokers:
        _move(broker.node_id, broker, advertised, nodes)
    return nodes


def _cluster(value: DescribeClusterResponse, advertised: Advertised) -> Nodes:
    nodes: Nodes = {}
    for broker in value.brokers:
        _move(broker.broker_id, broker, advertised, nodes)
    return nodes


def _coordinators(value: FindCoordinatorResponse, advertised: Advertised) -> Nodes:
    nodes: Nodes = {}
    for coordinator in value.get("coordinators", [value]):  # of no group at all where a client names none
        rows_done(1)
        _move(coordinator.node_id, coordinator, advertised, nodes)
    return nodes


def _endpoints(value: ProduceResponse | FetchResponse, advertised: Advertised) -> Nodes:
    nodes: Nodes = {}
    for endpoint in value.node_endpoints or ():
        _move(endpoint.node_id, endpoint, advertised, nodes)
    return nodes


def _leave_out_controllers(value: Row, _: Advertised) -> Nodes:
    """Leaves voters without the addresses of their controllers (KIP-853), which no client reaches through a proxy."""
    value["nodes"] = []
    return {}


_PRIVATE_KEYS: Final = [
    ApiVersionsResponseApiKey(api_key=api.key, min_version=api.versions[0], max_version=api.versions[-1])
    for api in verdicts.APIS
    if is_private(api.key)
]
_FEATURES: Final = {
    name: ApiVersionsResponseSupportedFeature(name=name, min_version=VERSION, max_version=VERSION)
    for name in (ORDERED, COOPERATIVE)
}


@lru_cache(maxsize=64)
def _clamped(
    version: int, body: bytes, *, features: tuple[str, ...], private: bool, lends_epochs: bool
) -> tuple[bytes, int | None]:
    """Leaves of ApiVersions what broker and table both have; every connection asks, and a broker answers the same.

    Returns:
        The answer, and the newest version of InitProducerId that the broker has; None: it does not say.
    """
    if int.from_bytes(body[:2], "big") == _UNSUPPORTED_VERSION:
        return body, None  # in version 0 whatever was asked (KIP-511), and it offers ApiVersions alone
    value = api_versions.RESPONSE.parse(version, body)
    newest: int | None = None
    kept: list[ApiVersionsResponseApiKey] = []
    for row in value.api_keys:
        api = verdicts.API_BY_KEY.get(row.api_key)
        if api is None or not api.versions or is_private(api.key):
            continue
        if row.api_key == apis.INIT_PRODUCER_ID:
            newest = row.max_version
            if lends_epochs and newest < WITH_IDENTITY:
                row.max_version = LENT_VERSIONS[-1]
        row.min_version = max(row.min_version, api.versions[0])
        row.max_version = min(row.max_version, api.versions[-1])
        if row.min_version <= row.max_version:
            kept.append(row)
    if private:
        kept += _PRIVATE_KEYS
    value.api_keys = kept
    supported = value.get("supported_features", list[ApiVersionsResponseSupportedFeature]())
    others = [row for row in supported if row.name not in _FEATURES]
    value.supported_features = [*others, *(_FEATURES[name] for name in features)]
    return api_versions.RESPONSE.build(version, value), newest


_EDITS: Final[tuple[Edit[Any], ...]] = (
    Edit(produce.RESPONSE, Section.TAIL, _endpoints, 10, "responses"),
    Edit(fetch.RESPONSE, Section.TAIL, _endpoints, 16, "responses"),
    Edit(metadata.RESPONSE, Section.HEAD, _brokers, 0, "brokers", "cluster_id"),
    Edit(find_coordinator.RESPONSE, Section.WHOLE, _coordinators),
    Edit(describe_quorum.RESPONSE, Section.WHOLE, _leave_out_controllers, 2),
    Edit(describe_cluster.RESPONSE, Section.WHOLE, _cluster),
    Edit(share_fetch.RESPONSE, Section.TAIL, _endpoints, 0, "responses"),
    Edit(share_acknowledge.RESPONSE, Section.TAIL, _endpoints, 0, "responses"),
)
EDITS: Final[dict[tuple[int, int], Edit[Any] | Offer]] = {
    (edit.message.api_key, route.version): edit
    for edit in _EDITS
    for route in verdicts.ROUTES
    if route.api.key == edit.message.api_key and route.version >= edit.since
} | {(apis.API_VERSIONS, version): Offer() for version in verdicts.API_BY_KEY[apis.API_VERSIONS].versions}
"""By api key and version of the request; without an entry its response streams through."""
