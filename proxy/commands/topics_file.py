"""The file of `kordon topics apply`: topics as they are to be, as YAML."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from kordon.proxy.config.config import ConfigSection
from kordon.proxy.handlers.own_configs import JANITOR, OF_SHARE_GROUPS, ORDERED_DELIVERY, OWN_CONFIGS
from kordon.proxy.ordering.hashing import LARGEST_PARTITIONS, LARGEST_VIRTUAL_PARTITIONS

MOST_TOPICS: Final = 10_000
"""A file with more topics is not read."""
OWN_PREFIXES: Final = (OWN_CONFIGS, ORDERED_DELIVERY)
"""How the names of configs begin that only managed topics have."""
_SETTABLE: Final = frozenset({JANITOR, ORDERED_DELIVERY}) | OF_SHARE_GROUPS


def _config_value(value: object) -> object:
    """Reads a config as brokers write it; null stays."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


ConfigValue = Annotated[str | None, BeforeValidator(_config_value)]


class WantedTopic(ConfigSection):
    """What one topic is to be."""

    name: str = Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")
    partitions: int = Field(ge=1, le=LARGEST_PARTITIONS)
    """That the brokers write to."""
    virtual_partitions: int | None = Field(default=None, ge=1, le=LARGEST_VIRTUAL_PARTITIONS)
    """V, which clients see; None: Kordon does not manage the topic."""
    initial_partitions: int | None = Field(default=None, ge=1, le=LARGEST_PARTITIONS)
    """N, where the topic is created; None: as many as `partitions`."""
    replicas: int | None = Field(default=None, ge=1, le=32_767)
    """Of each partition, where the topic is created; None: as the brokers have it by default."""
    quiesced: bool = False
    """Nobody writes to the topic while it is taken over."""
    transition_seconds: int | None = Field(default=None, ge=0, le=30 * 86_400)
    """In which clients see the new partitions of a topic that is taken over; None: Kordon's default."""
    configs: dict[str, ConfigValue] = Field(default_factory=dict[str, ConfigValue])
    """Configs of the topic; others stay as they are. None: the brokers' default."""

    @field_validator("name")
    @classmethod
    def _is_no_own(cls, name: str) -> str:
        if name.startswith("__"):
            raise ValueError(f"{name} is an internal topic of Kafka or Kordon")
        return name

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        own = [name for name in self.configs if name.startswith(OWN_PREFIXES)]
        if own and self.virtual_partitions is None:
            raise ValueError(f"{own[0]} is a config of managed topics: give the topic virtual_partitions, too")
        if unset := [name for name in own if name not in _SETTABLE]:
            raise ValueError(f"{unset[0]} cannot be set as a config; other options of the topic do that")
        if self.initial_partitions is not None and self.virtual_partitions is None:
            raise ValueError("initial_partitions needs virtual_partitions")
        return self

    @property
    def janitor(self) -> bool:
        """Whether it is to have a janitor."""
        return self.configs.get(JANITOR) == "true"


class WantedTopics(ConfigSection):
    """A file."""

    topics: tuple[WantedTopic, ...] = Field(min_length=1, max_length=MOST_TOPICS)

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        counts = Counter(each.name for each in self.topics)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"{min(twice)} is listed twice")
        return self
