"""What share groups are promised of a managed topic: in which order its records come, and what becomes of bad ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

ShareOrder: TypeAlias = Literal["none", "key", "virtual"]
"""Records come in any order; those of a key one after the other; those of a virtual partition one after the other."""
SharePoison: TypeAlias = Literal["archive", "block"]
"""A record that was given as often as may be is done with; or what comes behind it in its order waits."""
SHARE_ORDERS: Final[tuple[ShareOrder, ...]] = get_args(ShareOrder)
SHARE_POISONS: Final[tuple[SharePoison, ...]] = get_args(SharePoison)
_ALL_ONE: Final = 0


@dataclass(frozen=True, slots=True)
class SharePolicy:
    """What one topic's configs promise to share groups."""

    order: ShareOrder = "key"
    poison: SharePoison = "archive"

    @property
    def archives(self) -> bool:
        """Whether a record that was given as often as may be is done with (`acquiring.py::Terms`)."""
        return self.poison == "archive"

    def key_of(self, key: bytes | None) -> int | None:
        """Returns what a record has in common with those of its order (`window.py::WindowRecord`).

        Two keys with one hash wait for each other, and no more. Other workers may have other hashes.
        """
        if self.order == "virtual":
            return _ALL_ONE
        return None if key is None or self.order == "none" else hash(key)


DEFAULT: Final = SharePolicy()


def is_default(policy: SharePolicy) -> bool:
    """Whether a topic has what topics have that nobody has asked for anything else."""
    return policy == DEFAULT
