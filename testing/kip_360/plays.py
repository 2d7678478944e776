"""What a play is: requests of one producer, as a generator of what is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from kordon.testing.kip_360.client import Client


class Answer(NamedTuple):
    """One case, and what was answered."""

    case: str
    """As `table.py` calls it."""
    words: str


Step: TypeAlias = Answer | None
"""None: what is written so far is what the cases begin with; partitions may be added or removed now."""
Play: TypeAlias = Callable[[Client], Iterator[Step]]
