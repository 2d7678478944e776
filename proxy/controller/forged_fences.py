"""Fences in the layouts that no controller has raised: whoever may write there can hold writes with one.

A controller knows the fences that it has written. Those that it found when it began are a former one's if they were
written in a transaction of the producer that it is now itself: controllers share a transactional id, and brokers let
nobody else write in its transactions. All others are lifted, unless something goes on with their topic just now, which
ends all fences of it anyway.

A transactional id that nobody uses for a week gets another producer id. A former controller's fence of before is lifted
then like a forged one; what it was raised for begins again by its wish, or as what is wrong is found again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.ordering.controller import FENCE_SECONDS
from kordon.proxy.ordering.layouts_state import StandingFence

FORGED_CURE: Final = "let no other principal write __kordon.layouts: docs/security.md#kordons-own-topics"


class ForgedFences:
    """Lifts forged fences while this proxy is the controller.

    Args:
        ledger: The ledger, which knows which fences are the controller's and writes layouts.
        standing: Returns the fences that stand here, by topic.
        why_untouched: Says why nothing may be done with a topic.
        on_forged: Called with the key and the offset of each forged fence.
    """

    def __init__(
        self,
        ledger: Ledger,
        standing: Callable[[], Mapping[str, StandingFence]],
        *,
        why_untouched: Callable[[str], str | None],
        on_forged: Callable[[str, int], None],
    ) -> None:
        self._ledger = ledger
        self._standing = standing
        self._why_untouched = why_untouched
        self._on_forged = on_forged
        self._lifted: dict[str, int] = {}
        """By topic, the offset of the last one."""

    def found(self, producer_id: int) -> frozenset[str]:
        """Returns the topics whose fences a former controller has raised under the same producer id."""
        found = {topic: each.offset for topic, each in self._standing().items() if each.producer_id == producer_id}
        self._ledger.fences |= set(found.values())
        return frozenset(found)

    def look(self, now: float) -> list[str]:
        """Returns the topics whose fences are to be lifted, each once; they have stood for longer than a fence may."""
        controller = self._ledger.controller
        if controller is None:
            return []
        forged = {
            topic: each.offset
            for topic, each in self._standing().items()
            if each.offset not in self._ledger.fences
            and now - each.since > FENCE_SECONDS
            and self._lifted.get(topic) != each.offset
            and topic not in controller.changes
            and topic not in self._ledger.busy
            and not self._why_untouched(topic)
        }
        for topic, offset in forged.items():
            self._on_forged(f"fence/{topic}", offset)
        self._lifted |= forged
        return list(forged)

    async def lift(self, topics: Iterable[str]) -> None:
        """Ends fences; a failure ends the role, as with any write of the controller."""
        await self._ledger.attempt(tuple((f"fence/{topic}", None) for topic in topics))
