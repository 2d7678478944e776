"""Makes a `Config` of all sources, or says everything that is wrong with them at once.

Three passes: `config_source` reads values with their places, the models judge each value, `config_checks`
judges how values go together. A section that is sound is checked even when another is not, so that one run
shows all mistakes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ValidationError

from kordon.proxy.config.config import Config
from kordon.proxy.config.config_checks import run_checks
from kordon.proxy.config.config_options import options, sections_of
from kordon.proxy.config.config_source import (
    FLAGS,
    GivenValues,
    Key,
    Problem,
    Values,
    dotted,
    read_sources,
    variable_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

SECRETS: Final = frozenset({"password"})
"""Options whose value is never shown, not even a wrong one."""

UNIT_FACTORS: Final = {
    "_bytes": {"b": 1, "k": 1000, "kb": 1000, "kib": 1024, "m": 10**6, "mb": 10**6, "mib": 2**20, "g": 10**9,
               "gb": 10**9, "gib": 2**30},
    "_ms": {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000},
}  # fmt: skip
"""Units people write, by the ending of the option's name."""


class ConfigError(Exception):
    """The configuration cannot be used; `problems` says why, every mistake at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A usable configuration and what an operator should know about it nevertheless."""

    config: Config
    warnings: tuple[Problem, ...]
    values: Values
    """What was given, before the models: JSON can carry it to a worker, secrets included."""


def load_config(file: Path | None, environment: Mapping[str, str], flags: Mapping[Key, object] | None = None) -> Config:
    """Reads the configuration; later sources win: file, then environment variables, then flags.

    Args:
        file: A YAML file, or None.
        environment: Environment variables; `KORDON_LIMITS__FRAME_BYTES` is `limits.frame_bytes`.
        flags: Values by key, as `("listen", "address")`; None stands for a flag that was not given.

    Raises:
        ConfigError: The configuration has mistakes. The error holds every mistake, each with its place and cure.
    """
    return load(file, environment, flags).config


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[Key, object] | None = None) -> Loaded:
    """Like `load_config`, with the warnings.

    Raises:
        ConfigError: The configuration has mistakes, as for `load_config`.
    """
    source = read_sources(file, environment, flags or {}, frozenset(options()))
    if file is not None and not source.values and source.problems:
        raise ConfigError(source.problems)
    problems = list(source.problems)
    config, sections = _validate(source, problems)
    findings = run_checks(sections, source)
    problems += findings.mistakes
    if config is None or problems:
        raise ConfigError(sorted(problems, key=_position))
    return Loaded(config, tuple(findings.warnings), source.values)


def _position(problem: Problem) -> tuple[int, int, str]:
    place = problem.place
    return (place.line, place.column, place.source) if place else (0, 0, "")


def _validate(source: GivenValues, problems: list[Problem]) -> tuple[Config | None, dict[str, BaseModel]]:
    """The configuration, if it can be had, and every section that is sound."""
    try:
        config = Config.model_validate(source.values)
    except ValidationError as error:
        details = error.errors(include_url=False)
    else:
        return config, {name: getattr(config, name) for name in Config.model_fields}
    problems += [_explain(detail, source) for detail in details]
    for detail in details:
        if detail["type"] == "extra_forbidden":
            _remove(source.values, detail["loc"])
    broken = {detail["loc"][0] for detail in details if detail["type"] != "extra_forbidden"}
    return None, _sound_sections(source, broken)


def _remove(values: Values, key: Key) -> None:
    """Takes a value that was told to be unknown out of the tree, so that what is around it can be judged."""
    for part in key[:-1]:
        section = values[part]
        assert isinstance(section, dict), "what is unknown stands in a section"
        values = section
    del values[key[-1]]


def _sound_sections(source: GivenValues, broken: set[int | str]) -> dict[str, BaseModel]:
    sections: dict[str, BaseModel] = {}
    for name, field in Config.model_fields.items():
        model = sections_of(field.annotation)
        if model is not None and name not in broken:
            sections[name] = model.model_validate(source.values.get(name, {}))
    return sections


def _explain(detail: ErrorDetails, source: GivenValues) -> Problem:
    """A pydantic error in words that name the cure."""
    key: Key = tuple(part for part in detail["loc"] if part != "[key]")
    if detail["type"] == "missing":
        key = _first_required(key)
    what = _in_words(key, detail)
    place = source.names.get(key) if detail["type"] == "extra_forbidden" else None
    return Problem(place or source.place_of(key), key, what)


def _in_words(key: Key, detail: ErrorDetails) -> str:
    """Says what pydantic says, with the cure; of rare kinds in pydantic's own words."""
    context, shown = detail.get("ctx", {}), _shown(key, detail)
    match detail["type"]:
        case "extra_forbidden":
            what = _unknown(key)
        case "missing":
            option = options()[key]
            ways = f"{FLAGS[key]} or {variable_of(key)}" if key in FLAGS else variable_of(key)
            what = f"is required ({option.type}, or by {ways}): {option.description}"
        case "model_type" | "model_attributes_type":
            what = f"is a section with {', '.join(_names_in(key))}; write those, indented, below it{shown}"
        case "int_parsing" | "int_type" | "int_from_float":
            what = f"must be {_whole_number(key, str(detail['input']))}{shown}"
        case "greater_than_equal" | "less_than_equal":
            limit = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
            what = f"must be {limit}{shown}"
        case "literal_error":
            what = f"must be {context['expected']}{shown}{_nearest(context['expected'], str(detail['input']))}"
        case "value_error":
            what = str(context["error"])
        case "string_type":
            what = f"must be text; put it in quotes{shown}"
        case "dataclass_type" | "dataclass_exact_type":
            what = f"must be host:port{shown}"
        case _:
            what = detail["msg"].removeprefix("Input should ") + shown
            what = f"must {what}" if what.startswith("be ") else what
    return what


def _unknown(key: Key) -> str:
    name, siblings = str(key[-1]), _names_in(key[:-1])
    elsewhere = [dotted(option) for option in options() if option[-1] == name]
    if elsewhere:
        return f"does not belong here; did you mean {' or '.join(elsewhere)}?"
    near = get_close_matches(name.replace("-", "_").replace(".", "_"), siblings, n=1)
    if near:
        return f"no such option; did you mean {near[0]}?"
    return f"no such option; there are {', '.join(siblings)}"


def _names_in(path: Key) -> list[str]:
    model: type[BaseModel] = Config
    for part in path:
        field = model.model_fields.get(str(part))
        model = (sections_of(field.annotation) if field else None) or model
    return list(model.model_fields)


def _first_required(key: Key) -> Key:
    """The option that is missing when its whole section is."""
    return next(
        (option.key for option in options().values() if option.key[: len(key)] == key and not option.default), key
    )


def _whole_number(key: Key, given: str) -> str:
    name = next((str(part) for part in reversed(key) if not isinstance(part, int)), "")
    suffix = next((suffix for suffix in UNIT_FACTORS if name.endswith(suffix)), "")
    unit = {"_ms": " of milliseconds", "_bytes": " of bytes"}.get(suffix, "")
    converted = _convert(given, suffix)
    return f"a whole number{unit}" + (f": {converted}" if converted else "")


def _convert(text: str, suffix: str) -> int | None:
    """Returns what `64 MiB` or `30s` is in the option's unit; None: it is in none."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text.lower())
    factor = UNIT_FACTORS.get(suffix, {}).get(match[2]) if match else None
    return round(float(match[1]) * factor) if match and factor else None


def _nearest(allowed: str, given: str) -> str:
    words = {word.lower(): word for word in re.findall(r"'(.+?)'", allowed)}
    near = get_close_matches(given.lower(), words, n=1)
    return f"; did you mean {words[near[0]]}?" if near else ""


def _shown(key: Key, detail: ErrorDetails) -> str:
    """The value as it was given, shortened; never a secret."""
    if SECRETS.intersection(key):
        return ""
    text = "nothing" if detail["input"] is None else repr(detail["input"])
    return f", not {text if len(text) <= 60 else text[:57] + '…'}"
