"""Rules that have no data yet: what each will prove, and what it waits for, so that reports do not pass over them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An invariant that nothing can be said of yet."""

    number: int
    """In the list of invariants."""
    name: str
    """Its short name in capitals."""
    proves: str
    """In one sentence, what will hold when it has found nothing."""
    waits_for: str
    """Which part of Kordon will write what it judges, and in which decisions."""
