"""Where configuration comes from: a YAML file, environment variables and flags, each value with its place.

The result is a plain tree for the models of `config` and, beside it, the place of every value, so that a
mistake can be told with file, line and column or with the name of the variable or flag it stands in. Later
sources win: file, then environment, then flags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Key = tuple[str | int, ...]
"""The path of a value: section, option, and an index or node id within the option."""
Values = dict[str | int, object]
"""What was given, before the models: sections are of this type again."""

ENVIRONMENT_PREFIX: Final = "KORDON_"
RESERVED_VARIABLES: Final = frozenset({"KORDON_BOOTSTRAP", "KORDON_CONFIG", "KORDON_PASSWORD_FILE", "KORDON_USERNAME"})
"""Variables that are no options: the command line reads them."""

KUBERNETES_VARIABLE: Final = re.compile(
    r"KORDON_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)
"""What Kubernetes sets in every pod beside a Service named kordon (or kordon-…): not meant for us."""

FLAGS: Final[dict[Key, str]] = {
    ("upstream", "bootstrap"): "--bootstrap",
    ("listen", "address"): "--listen",
    ("listen", "advertise"): "--advertise",
    ("admin", "address"): "--admin",
    ("workers",): "--workers",
    ("log", "level"): "--log-level",
    ("log", "format"): "--log-format",
}
"""The options that have a flag of their own."""

FILE_OPTIONS: Final = frozenset(
    {
        *(("tls", name) for name in ("ca", "certificate", "key", "client_ca")),
        *(("sasl", name) for name in ("client_secret_file", "token_ca", "token_file")),
        ("decisions", "folder"),
    }
)
"""Sections and options that name files; in a configuration file they are relative to that file's folder."""


class Origin(NamedTuple):
    """The place where a value was given."""

    source: str
    """Path of the file, name of the variable or of the flag."""
    line: int = 0
    """From 1; 0 where there are no lines."""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake, told so that a person can mend it without the manual."""

    place: Origin | None
    key: Key
    what: str
    """What is wrong, and what would be right."""

    def __str__(self) -> str:
        return ": ".join(filter(None, (str(self.place or ""), dotted(self.key), self.what)))


@dataclass(slots=True)
class GivenValues:
    """Values as they were given, before any model has judged them."""

    values: Values = field(default_factory=dict)
    places: dict[Key, Origin] = field(default_factory=dict[Key, Origin])
    """The place of each value."""
    names: dict[Key, Origin] = field(default_factory=dict[Key, Origin])
    """The place of each option's or section's name in the file."""
    problems: list[Problem] = field(default_factory=list[Problem])
    file: Origin | None = None
    """The configuration file as a whole, for what is missing in it."""

    def put(self, key: Key, value: object, place: Origin) -> None:
        """Sets a value over what an earlier source said at this key."""
        for old in [old for old in self.places if old[: len(key)] == key]:
            del self.places[old]
        self.places[key] = place
        section = self.values
        for name in key[:-1]:
            inner = section.get(name)
            if not isinstance(inner, dict):
                inner = section[name] = {}
            section = inner
        section[key[-1]] = value

    def place_of(self, key: Key) -> Origin | None:
        """The place of a value or, when it was not given, of what stands around it."""
        while key and key not in self.places:
            key = key[:-1]
        return self.places.get(key, self.file)


def dotted(key: Key) -> str:
    """The path as people write it: `upstream.bootstrap[1]`, `listen.ports.3`."""
    words = [f"[{part}]" if isinstance(part, int) and key[:-1][-1:] == ("bootstrap",) else str(part) for part in key]
    return ".".join(words).replace(".[", "[")


def read_sources(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[Key, object], options: frozenset[Key]
) -> GivenValues:
    """Reads all three sources into one tree.

    Args:
        file: The YAML file, or None for none.
        environment: All environment variables; those of other programs are left alone.
        flags: Values by key, for keys of `FLAGS`; None is a flag that was not given.
        options: The keys of all options.
    """
    source = GivenValues()
    if file is not None:
        _FileReader(file, source).read()
    for name, text in sorted(environment.items()):
        _read_variable(name, text, options, source)
    for key, value in flags.items():
        if value is not None:
            source.put(key, value, Origin(FLAGS.get(key, dotted(key))))
    return source


def variable_of(key: Key) -> str:
    """The environment variable of an option: `KORDON_LIMITS__FRAME_BYTES`."""
    return ENVIRONMENT_PREFIX + "__".join(str(part) for part in key).upper()


def _read_variable(name: str, text: str, options: frozenset[Key], source: GivenValues) -> None:
    if not name.startswith(ENVIRONMENT_PREFIX) or name in RESERVED_VARIABLES:
        return
    key: Key = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
    if key in options:
        source.put(key, text or None, Origin(name))
    elif not KUBERNETES_VARIABLE.fullmatch(name):
        near = get_close_matches(name, [variable_of(option) for option in options], n=1)
        cure = f"; did you mean {near[0]}?" if near else "; `kordon check --options` lists them"
        source.problems.append(Problem(Origin(name), (), f"no option has this variable{cure}"))


class _FileReader:
    """Turns YAML nodes into plain values, noting where each key stands."""

    def __init__(self, path: Path, source: GivenValues) -> None:
        self.path = path
        self.source = source
        source.file = Origin(str(path))

    def read(self) -> None:
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            self._problem((), f"cannot be read: {error.strerror}")
            return
        except UnicodeDecodeError as error:
            self._problem((), f"is no UTF-8 text (byte {error.start})")
            return
        try:
            self._read_document(yaml.SafeLoader(text))
        except yaml.MarkedYAMLError as error:
            self._syntax(error, text)
        except yaml.reader.ReaderError as error:
            self._problem((), f"is no text: {error.reason} at position {error.position}")
        except RecursionError:
            self._problem((), "is nested too deeply, or an anchor contains itself")

    def _read_document(self, loader: yaml.SafeLoader) -> None:
        node = loader.get_single_node()
        if node is None:
            return
        if not isinstance(node, MappingNode):
            self._problem((), "must hold sections, such as `upstream:` and `listen:`", self._place(node))
            return
        self.source.values = self._mapping(loader, node, ())

    def _value(self, loader: yaml.SafeLoader, node: Node, key: Key) -> object:
        if isinstance(node, MappingNode):
            return self._mapping(loader, node, key)
        if isinstance(node, SequenceNode):
            for index, item in enumerate(node.value):
                self.source.places[(*key, index)] = self._place(item)
            return [self._value(loader, item, (*key, index)) for index, item in enumerate(node.value)]
        value = self._scalar(loader, node)
        return self._file_path(value) if key[-2:] in FILE_OPTIONS else value

    def _mapping(self, loader: yaml.SafeLoader, node: MappingNode, key: Key) -> Values:
        loader.flatten_mapping(node)
        values: Values = {}
        for name_node, value_node in cast("list[tuple[Node, Node]]", node.value):
            name = self._name(loader, name_node)
            here = (*key, name)
            if name in values:
                first = self.source.names[here]
                self._problem(here, f"is given twice, first in line {first.line}", self._place(name_node))
                continue
            self.source.names[here] = self.source.places[here] = self._place(name_node)
            values[name] = self._value(loader, value_node, here)
            if not isinstance(value_node, MappingNode):
                self.source.places[here] = self._place(value_node if _has_text(value_node) else name_node)
        return values

    @staticmethod
    def _name(loader: yaml.SafeLoader, node: Node) -> str | int:
        name = _FileReader._scalar(loader, node) if isinstance(node, ScalarNode) else "?"
        return name if isinstance(name, int) and not isinstance(name, bool) else str(getattr(node, "value", name))

    @staticmethod
    def _scalar(loader: yaml.SafeLoader, node: Node) -> object:
        """The value YAML sees, or the text where that is impossible, as for the date 2026-13-45."""
        try:
            return cast("object", loader.construct_object(node))
        except ValueError:
            return str(node.value)

    def _file_path(self, value: object) -> object:
        return str(self.path.parent / value) if isinstance(value, str) else value

    def _place(self, node: Node) -> Origin:
        return Origin(str(self.path), node.start_mark.line + 1, node.start_mark.column + 1)

    def _problem(self, key: Key, what: str, place: Origin | None = None) -> None:
        self.source.problems.append(Problem(place or self.source.file, key, what))

    def _syntax(self, error: yaml.MarkedYAMLError, text: str) -> None:
        mark = error.problem_mark or error.context_mark
        place = Origin(str(self.path), mark.line + 1, mark.column + 1) if mark else None
        line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
        what = f"is no YAML: {error.problem or error.context}"
        if "\t" in line[: len(line) - len(line.lstrip())]:
            what += "; indent with spaces, not tabs"
        elif "[" in line and "]:" in line:
            what += "; put an address with brackets in quotes"
        elif mark and error.problem == "mapping values are not allowed here":
            what += "; a colon in a value wants quotes, or the indentation is off"
        self._problem((), what, place)


def _has_text(node: Node) -> bool:
    """False for the empty value of `key:` alone, which YAML places at the start of the next token."""
    return bool(node.start_mark.index != node.end_mark.index)
