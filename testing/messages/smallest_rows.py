"""Requests that cost their reader most for their bytes: as many rows as fit, each as small as its table lets it be."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from kordon.codecs.headers import build_request_header
from kordon.codecs.messages import REQUESTS, request
from kordon.codecs.primitives import NO_CONTEXT, Built
from kordon.codecs.schema import Array, Field, Struct, codec_of, plain_fields
from kordon.proxy.core.verdicts import ROUTES, Route


def routes_with_rows() -> list[Route]:
    """Returns what clients may send that lists something."""
    return [each for each in ROUTES if each.api.key in REQUESTS and any(_arrays(each))]


def request_of_rows(route: Route, rows: int, most_bytes: int, name: str = "") -> bytes:
    """Builds a request frame of the smallest rows there can be.

    Args:
        rows: As many as it has at the most.
        most_bytes: Of the frame without its size; fewer rows if these do not fit.
        name: What its rows name; "" is the smallest.
    """
    head = build_request_header(route.api.key, route.version, 1, "rows")
    table = request(route.api.key)
    frames = [head + table.build(route.version, fields) for fields in _bodies(route, rows, most_bytes - 200, name)]
    frame = max(frames, key=len)
    return len(frame).to_bytes(4, "big") + frame


def _bodies(route: Route, rows: int, room: int, name: str) -> Iterator[dict[str, Any]]:
    flexible = route.version in request(route.api.key).flexible_versions
    for row in _arrays(route):
        element = row.type.of if isinstance(row.type, Array) else row.type
        value = _smallest(element, route.version, name)
        stream = io.BytesIO()
        codec_of(element, route.version, flexible=flexible)._build(value, stream, NO_CONTEXT, "")  # pyright: ignore[reportPrivateUsage]
        built = Built({}, stream.getvalue())
        yield {row.name: [built] * min(rows, room // max(len(built.data), 1))}


def _arrays(route: Route) -> Iterator[Field]:
    for row in plain_fields(request(route.api.key).fields, route.version):
        if isinstance(row.type, Array):
            yield row


def _smallest(element: Any, version: int, name: str) -> Any:
    """Returns the value of an element that takes the fewest bytes, but for what it names."""
    if not isinstance(element, Struct):
        default = element.default
        return name if isinstance(default, str) else default
    fields = plain_fields(element.fields, version)
    named = next((row for row in fields if row.name in ("name", "topic", "topic_name")), None)
    empty = {row.name: None for row in fields if version in row.nullable}
    return {**empty, **({named.name: name} if named is not None and name else {})}
