"""Between which numbers of partitions `kordon autoscale` keeps a topic, and by which load: a YAML file."""

from __future__ import annotations

import re
from datetime import time
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from kordon.proxy.config.config import ConfigSection
from kordon.proxy.config.config_load import UNIT_FACTORS

_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_HOURS: Final = re.compile(r"(\d\d:\d\d)-(\d\d:\d\d)")


def _bytes(value: object) -> object:
    """Reads `5MiB` as a number of bytes, and leaves what is a number."""
    match = _NUMBER.fullmatch(value.strip().removesuffix("/s")) if isinstance(value, str) else None
    factor = UNIT_FACTORS["_bytes"].get(match[2].lower() or "b") if match else None
    return float(match[1]) * factor if match and factor else value


def _seconds(value: object) -> object:
    """Reads `90s` and `15m` as a number of seconds, and leaves what is a number."""
    match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    factor = UNIT_FACTORS["_ms"].get(match[2].lower() or "s") if match else None
    return float(match[1]) * factor / 1000 if match and factor else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, le=30 * 86_400)]


def _window(value: object) -> object:
    """Reads `22:00-06:00` as a pair of times."""
    match = _HOURS.fullmatch(value) if isinstance(value, str) else None
    try:
        return (time.fromisoformat(match[1]), time.fromisoformat(match[2])) if match else value
    except ValueError:
        return value


class Window(ConfigSection):
    """Hours of the day, UTC; one that ends before it begins goes over midnight."""

    begins: time
    ends: time

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        window = _window(value)
        if not isinstance(window, tuple):
            raise ValueError("hours are written as 22:00-06:00 (UTC)")
        return {"begins": window[0], "ends": window[1]}

    def holds(self, moment: time) -> bool:
        """Whether a time of day lies in it."""
        if self.begins <= self.ends:
            return self.begins <= moment < self.ends
        return moment >= self.begins or moment < self.ends


class Policy(ConfigSection):
    """What one topic is held to."""

    minimum: int = Field(ge=1)
    """Partitions that it has at least."""
    maximum: int = Field(ge=1)
    """Partitions that it has at most."""
    bytes_per_second: Annotated[float, BeforeValidator(_bytes), Field(gt=0)]
    """That one partition is to take in, as brokers store them, one replica."""
    lag: Annotated[int, Field(ge=1)] | None = None
    """Records that the slowest group may be behind on one partition; None: lags do not count."""
    grow_after: Seconds = 60
    """For how long the load is too high before the topic grows."""
    shrink_after: Seconds = 900
    """For how long fewer partitions would do before it shrinks."""
    cool_down: Seconds = 300
    """From one change to the next."""
    hours: tuple[Window, ...] = ()
    """When it may be changed; empty: at any time."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.maximum < self.minimum:
            raise ValueError(f"maximum ({self.maximum}) is below minimum ({self.minimum})")
        return self


class Policies(ConfigSection):
    """A file."""

    interval: Annotated[float, BeforeValidator(_seconds), Field(ge=1, le=3600)] = 30
    """Seconds from one look at the load to the next."""
    topics: dict[str, Policy] = Field(min_length=1)
