"""Files of commands: plain YAML, bounded, judged by a model, with a line for each mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails
    from yaml.nodes import MappingNode, Node

MOST_FILE_BYTES: Final = 1024 * 1024
"""A file with more bytes is not read."""
_MOST_SAID: Final = 20
_WORDS: Final = {
    "extra_forbidden": "there is no such option",
    "missing": "this option is missing",
    "model_type": "options are expected here, each as name: value",
    "dict_type": "names are expected here, each with a value of its own",
    "tuple_type": "a list is expected here",
}
"""In place of words that speak of Python, by pydantic's type of the mistake."""

Model = TypeVar("Model", bound=BaseModel)


class FileUnusable(Exception):  # noqa: N818 - what the file is
    """Raised when a file cannot be read or holds mistakes; each line of the message names one."""


class _Loader(yaml.SafeLoader):
    """Reads plain YAML: no aliases, of which a small file makes very much, and no name twice."""

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """Refuses aliases."""
        if self.check_event(yaml.AliasEvent):
            mark: yaml.Mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not allowed; write the value out", problem_mark=mark)
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


def load_model(file: Path, model: type[Model]) -> Model:
    """Reads a file.

    Args:
        model: Judges what the file says.

    Raises:
        FileUnusable: The file cannot be read, or has mistakes.
    """
    text = _read_bounded(file)
    try:
        return model.model_validate(yaml.load(text, _Loader))  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise FileUnusable(f"{file}{place}: {error.problem or error.context}") from error
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise FileUnusable("\n".join(_mistake(file, each) for each in found[:_MOST_SAID])) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FileUnusable(f"{file}: not readable as YAML: {error}") from error


def _read_bounded(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            text = opened.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise FileUnusable(f"{file}: {(error.strerror or str(error)).lower()}") from error
    if len(text) > MOST_FILE_BYTES:
        raise FileUnusable(f"{file}: it has more than {MOST_FILE_BYTES} bytes")
    return text


def _mistake(file: Path, detail: ErrorDetails) -> str:
    """Says what is wrong with a value, with its place in the file."""
    name = ".".join(map(str, detail["loc"]))
    what = _WORDS.get(detail["type"], detail["msg"].removeprefix("Value error, "))
    return f"{file}: {name + ': ' if name else ''}{what}"
