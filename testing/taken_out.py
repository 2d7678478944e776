"""Rules that a simulation goes without, to show what breaks then: what keeps each, and what stands there instead.

What is replaced is the product's own code, not a copy of it in the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch


class Place(NamedTuple):
    """Where a rule is kept."""

    owner: Any
    name: str
    instead: Any
    """What stands there without the rule."""


Places: TypeAlias = Mapping[str, Place | tuple[Place, ...]]
"""By rule, or a part of one, what keeps it."""


def constant(value: object) -> Callable[..., Any]:
    """Returns a function that returns a value, whatever it is given."""

    def answer(*_: object, **__: object) -> object:
        return value

    return answer


@contextmanager
def taken_out(rule: str, places: Places) -> Iterator[None]:
    """Takes a rule out for a while.

    Args:
        rule: One of `places`; empty: none.
    """
    if not rule:
        yield
        return
    kept = places[rule]
    with without((kept,) if isinstance(kept, Place) else kept):
        yield


@contextmanager
def without(places: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Has something else stand in places (`Place`) for a while."""
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(patch.object(*place))
        yield
