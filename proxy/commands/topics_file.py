"""The file of `kordon topics apply`: topics as they are to be, as YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from kordon.proxy.commands.model_file import FileUnreadable, mistake, read_bounded
from kordon.proxy.config.config import ConfigSection
from kordon.proxy.ordering.hashing import LARGEST_PARTITIONS, LARGEST_VIRTUAL_PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from yaml.nodes import MappingNode, Node

MOST_FILE_BYTES: Final = 1024 * 1024
"""A file with more bytes is not read."""
MOST_TOPICS: Final = 10_000
"""A file with more topics is not read."""
OWN_PREFIXES: Final = ("kordon.", "enable.ordered.delivery")
"""How the names of configs begin that only managed topics have."""
JANITOR: Final = "kordon.janitor"
_SETTABLE: Final = frozenset({JANITOR, "enable.ordered.delivery"})
_MOST_SAID: Final = 20


class TopicsFileError(Exception):
    """Raised when a file does not say what topics are to be; each line of the message names a mistake."""


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
            raise ValueError(f"{name} is a topic of Kafka's or of Kordon's own")
        return name

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        own = [name for name in self.configs if name.startswith(OWN_PREFIXES)]
        if own and self.virtual_partitions is None:
            raise ValueError(f"{own[0]} is a config of managed topics: it needs virtual_partitions")
        if unset := [name for name in own if name not in _SETTABLE]:
            raise ValueError(f"{unset[0]} is not set as a config: see partitions and virtual_partitions")
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
        names = [each.name for each in self.topics]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"{min(twice)} is there twice")
        return self


class _Loader(yaml.SafeLoader):
    """Reads plain YAML: no aliases, of which a small file makes very much, and no name twice."""

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """Refuses aliases."""
        if self.check_event(yaml.AliasEvent):
            mark: yaml.Mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not read here", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuses a name that stands there twice."""
        names: set[object] = set()
        for name, _ in node.value:
            value = getattr(name, "value", None)
            if isinstance(value, str) and value in names:
                raise yaml.MarkedYAMLError(problem=f"{value} is given twice", problem_mark=name.start_mark)
            names.add(value if isinstance(value, str) else None)
        return super().construct_mapping(node, deep)


def load_topics(file: Path) -> tuple[WantedTopic, ...]:
    """Reads a file.

    Raises:
        TopicsFileError: It cannot be read, or holds mistakes.
    """
    try:
        text = read_bounded(file, MOST_FILE_BYTES)
    except FileUnreadable as error:
        raise TopicsFileError(str(error)) from error
    if text is None:
        raise TopicsFileError(f"{file}: it has more than {MOST_FILE_BYTES} bytes")
    try:
        return WantedTopics.model_validate(yaml.load(text, _Loader)).topics  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise TopicsFileError(f"{file}{place}: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if not isinstance(error, ValidationError):
            raise TopicsFileError(f"{file}: not readable as YAML: {error}") from error
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise TopicsFileError("\n".join(mistake(file, each) for each in found[:_MOST_SAID])) from error
