"""Requests built by Kordon's tables, in the shape in which aiokafka's connections send requests."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.errors import IncompatibleBrokerVersion

import kordon
from kordon.codecs import dialect
from kordon.codecs.bodies import ApiVersionsResponse
from kordon.codecs.headers import ResponseHeader, build_request_header, parse_response_header
from kordon.codecs.messages import api_versions, request, response

METADATA: Final = 3
API_VERSIONS: Final = 18
UNSUPPORTED_VERSION: Final = 35
_NO_ID: Final = uuid.UUID(int=0)
_METADATA_VERSIONS: Final = range(9, 13)
"""The first that can carry a layout, to the first that names topics and tells their ids."""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request by Kordon's tables: what aiokafka calls a Request, to be sent by any of its connections or clients.

    Its answer is the response as the table reads it: values by field name, also as attributes.

    Attributes:
        api_key: The api key of the request.
        versions: Those that its sender can speak; the newest that the other side knows is taken.
        body: Fields by name; what is missing has its default.
        private: Whether only a Kordon can understand it: it is sent on connections that speak the dialect, or fails.
    """

    api_key: int
    versions: range
    body: Mapping[str, object]
    private: bool = False

    @property
    def required_acks(self) -> int:
        """What aiokafka asks of its Produce requests; -1 of all that have answers."""
        return -1

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> PreparedRequest:
        """Chooses the version.

        Args:
            versions: The oldest and newest version that the other side speaks, by api key.

        Raises:
            IncompatibleBrokerVersion: The other side speaks none of `self.versions`.
        """
        oldest, newest = versions.get(self.api_key, (0, -1))
        chosen = min(newest, self.versions[-1])
        if chosen < max(oldest, self.versions[0]):
            name = request(self.api_key).name
            raise IncompatibleBrokerVersion(f"{name} {self.versions[0]} to {self.versions[-1]} is not spoken here")
        return PreparedRequest(self.api_key, chosen, self.body)


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request of one version: what aiokafka calls a RequestStruct."""

    api_key: int
    version: int
    body: Mapping[str, object] = field(repr=False)

    @property
    def API_KEY(self) -> int:  # noqa: N802  aiokafka's name
        """The api key, under aiokafka's name."""
        return self.api_key

    @property
    def API_VERSION(self) -> int:  # noqa: N802  aiokafka's name
        """The version, under aiokafka's name."""
        return self.version

    @property
    def RESPONSE_TYPE(self) -> Decoder:  # noqa: N802  aiokafka's name
        """What reads the answer."""
        return Decoder(lambda body: response(self.api_key).parse(self.version, body))

    def build_request_header(self, correlation_id: int, client_id: str) -> Encoded:
        """Returns the request's header, to be encoded."""
        return Encoded(build_request_header(self.api_key, self.version, correlation_id, client_id))

    def encode(self) -> bytes:
        """Returns the request's body."""
        return request(self.api_key).build(self.version, self.body)

    def parse_response_header(self, answer: io.BytesIO) -> ResponseHeader:
        """Reads the header of the answer, and no further."""
        header, size = parse_response_header(self.api_key, self.version, answer.getbuffer())
        answer.seek(size)
        return header


@dataclass(frozen=True, slots=True)
class Encoded:
    """Bytes that aiokafka asks to be encoded."""

    data: bytes

    def encode(self) -> bytes:
        """Returns them."""
        return self.data


@dataclass(frozen=True, slots=True)
class Decoder:
    """Reads the body of an answer."""

    parse: Callable[[bytes], Any]

    def decode(self, answer: io.BytesIO) -> Any:
        """Reads what is left of the answer."""
        return self.parse(answer.read())


class ApiVersionsRequest:
    """ApiVersions 3 of a client that speaks the dialect; who is too old for it answers by version 0, code 35."""

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> _PreparedApiVersions:
        """Makes it; nothing is known of the other side yet."""
        del versions
        body = {
            "client_software_name": "kordon-client",
            "client_software_version": kordon.__version__,
            "kordon_client": dialect.VERSION,
        }
        return _PreparedApiVersions(API_VERSIONS, 3, body)


class _PreparedApiVersions(PreparedRequest):
    @property
    def RESPONSE_TYPE(self) -> Decoder:  # noqa: N802  aiokafka's name
        return Decoder(self._parse)

    def _parse(self, body: bytes) -> ApiVersionsResponse:
        too_old = int.from_bytes(body[:2], "big") == UNSUPPORTED_VERSION
        return api_versions.RESPONSE.parse(0 if too_old else self.version, body)


def metadata_request(topics: Iterable[str] | None) -> WireRequest:
    """Makes a request for the metadata of some topics, or of all."""
    rows = None if topics is None else [{"topic_id": _NO_ID, "name": topic} for topic in topics]
    return WireRequest(METADATA, _METADATA_VERSIONS, {"topics": rows, "allow_auto_topic_creation": True})
