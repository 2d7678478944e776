"""Looks at what a client is answered where the answer is translated: after it has been, and before it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from kordon.proxy.interception import Decision, Serve, Translate

Look: TypeAlias = Callable[[Any], None]
"""Is given a parsed answer; where it translates it changes it in place."""


class TranslatedLater(NamedTuple):
    """A request whose answer cannot be translated yet, or is not complete then."""

    back: Look


def followed_by(decision: Decision, look: Look) -> Decision:
    """Returns a decision after whose translation of the answer somebody looks at it; others as they are."""
    match decision:
        case Translate(_, back):
            return replace(decision, back=_both(back, look))
        case Serve(TranslatedLater(back)):
            return replace(decision, request=TranslatedLater(_both(back, look)))
        case _:
            return decision


def _both(first: Look, second: Look) -> Look:
    def look(answer: Any) -> None:
        first(answer)
        second(answer)

    return look
