"""What a scripted client prints: one JSON line for each step, with the client's answer or its error.

The scripts in `tests/clients` are run once directly against brokers and once through Kordon; `equivalence.py` compares
their lines.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Kafka's compression codecs, in the order of their numbers in a batch's attributes."""

TIMESTAMP_MS = 1_700_000_000_000
"""Create time of every record a script writes, so that both runs write the same bytes."""

KEEP = {"retention.ms": "-1"}
"""Config of each topic, or else the broker would take records that claim a time so long ago."""


class Script:
    """A run of one client's script.

    Attributes:
        prefix: Begins the name of everything the script makes.
    """

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix

    @classmethod
    def from_arguments(cls) -> Script:
        parser = argparse.ArgumentParser()
        parser.add_argument("bootstrap")
        parser.add_argument("prefix")
        arguments = parser.parse_args()
        return cls(arguments.bootstrap, arguments.prefix)

    def name(self, what: str) -> str:
        """Returns a name of this run's own."""
        return f"{self.prefix}-{what}"

    def step(self, name: str, call: Callable[..., T], *arguments: Any) -> T | None:
        """Does one thing and prints what came of it; returns what the call returned, or None where it raised."""
        try:
            answer = call(*arguments)
        except Exception as error:  # whatever a client raises is its answer
            self.tell(name, error=error)
            return None
        self.tell(name, answer=answer)
        return answer

    async def astep(self, name: str, awaitable: Awaitable[T]) -> T | None:
        """Does as `step` for asyncio clients."""
        try:
            answer = await awaitable
        except Exception as error:  # whatever a client raises is its answer
            self.tell(name, error=error)
            return None
        self.tell(name, answer=answer)
        return answer

    def tell(self, name: str, *, answer: object = None, error: BaseException | None = None) -> None:
        outcome = {"answer": plain(answer)} if error is None else {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps({"step": name, **outcome}) + "\n")
        sys.stdout.flush()


def records(topic: str, count: int) -> list[tuple[bytes, bytes]]:
    """Makes keys and values that do not contain the run's prefix, compressible and of several sizes."""
    kind = topic.rsplit("-", 1)[-1]
    return [(f"key-{n}".encode(), f"{kind}-{n} ".encode() * (1 + n * 7)) for n in range(count)]


def in_order(items: Iterable[T]) -> list[T]:
    """Sorts what a client gives in no certain order."""
    return sorted(items, key=lambda item: json.dumps(plain(item), sort_keys=True))


def plain(value: Any) -> Any:
    """Makes what a client library returns fit for JSON: by field where it can, as text where not."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.name if isinstance(value, Enum) else value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, set | frozenset):
        return in_order(plain(inner) for inner in value)
    if isinstance(value, Sequence):
        return [plain(inner) for inner in value]
    if isinstance(value, Enum):
        return value.name
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return str(value)
