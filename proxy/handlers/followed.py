"""Gets the broker's answer to a request that was looked at, before the answer leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeAlias

from kordon.proxy.core.interception import Decision, Serve, Translate
from kordon.proxy.topics.managed_topics import ManagedTopics

Look: TypeAlias = Callable[[Any], None]
"""Is given a parsed answer; where it translates it changes it in place."""


class Reply(Protocol):
    """Is given the broker's answer to a request; changes it in place."""

    @property
    def changed(self) -> bool:
        """Whether the broker gets another request than the client has sent."""
        ...

    def __call__(self, answer: Any) -> None:
        """Takes the answer."""
        ...


Judge: TypeAlias = Callable[[Any, ManagedTopics], Reply | None]
"""Looks at a request and may change it; returns what gets the answer, None if Kordon has no concern with it."""


class LateRefusal(ABC):
    """A reply that refuses a request once its broker has found nothing against it (`refusals.py`).

    Args:
        topics: The managed topics because of which.
    """

    changed = True

    def __init__(self, topics: Collection[str]) -> None:
        self.topics = topics
        self.stands = False
        """Whether it has become the answer."""

    @abstractmethod
    def __call__(self, answer: Any) -> None:
        """Puts Kordon's answer in the place of the broker's, if that says no more than that the request is spoiled."""


class TranslatedLater(NamedTuple):
    """A request whose answer cannot be translated yet, or is not complete then."""

    back: Look


def followed_by(decision: Decision, look: Look) -> Decision:
    """Returns a decision after whose translation of the answer somebody looks at it; others as they are."""
    match decision:
        case Translate(_, back):
            return replace(decision, back=both(back, look), only_with=())
        case Serve(TranslatedLater(back)):
            return replace(decision, request=TranslatedLater(both(back, look)))
        case _:
            return decision


def both(first: Look, second: Look) -> Look:
    """Returns what lets two look, one after the other."""

    def look(answer: Any) -> None:
        first(answer)
        second(answer)

    return look
