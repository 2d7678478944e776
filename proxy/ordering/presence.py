"""Who may serve besides the members of the present generation, as one member sees it (MISSING-WAITED).

A lease is given to members of one generation at a time, and no more of a generation once the next one is complete. So
whoever has belonged to two generations in a row knows who held leases in the first and is missing in the second; of
those who are missing in any other way nobody can say more than that their leases end within L.

    the first generation, or one after a gap ──> strangers: until L from now
    the next one ──> who is missing: until L from now; who has ended in order: no longer

Each member keeps it, so that the next controller need not wait for leases that it knows to have ended.

Whoever may write the layouts can write that a proxy has ended. So each member tells the group the seal of a word that
only it knows, and says the word when it ends (`sealed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from math import inf


def sealed(word: str) -> str:
    """Returns the seal of a word, from which nobody finds the word; empty for none."""
    return sha256(word.encode()).hexdigest() if word else ""


class Presence:
    """Kept by every worker since its start."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._members: frozenset[str] = frozenset()
        self._lease_seconds = 0.0
        self._strangers_until = inf
        self._missing: dict[str, float] = {}
        self._hosts: dict[str, str] = {}
        self._gone: dict[str, str] = {}
        """Who has ended in order, by the word that was said for it."""
        self._seals: dict[str, str] = {}

    def joined(
        self,
        number: int,
        members: Iterable[str],
        lease_seconds: float,
        now: float,
        *,
        seals: Mapping[str, str] | None = None,
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        """Belongs to a generation that is complete.

        Args:
            lease_seconds: The longest lease among them.
            now: Seconds on the clock of leases, later than the end of the generation before.
            seals: By incarnation, the seal of the secret with which it announces its end. Without a seal the
                announcement is believed.
            hosts: The host of each incarnation.
        """
        present = frozenset(members)
        lease_end = now + max(lease_seconds, self._lease_seconds)
        if self._number is None or not self._number <= number <= self._number + 1:
            self._strangers_until = lease_end
        self._missing |= dict.fromkeys(self._members - present, lease_end)
        self._missing = {each: end for each, end in self._missing.items() if each not in present and end > now}
        self._number, self._members, self._lease_seconds = number, present, lease_seconds
        self._hosts = {
            each: host
            for each, host in {**self._hosts, **(hosts or {})}.items()
            if each in present or each in self._missing
        }
        known = {**(seals or {}), **self._seals}  # a leader of a former version passes none on
        self._seals = {each: seal for each, seal in known.items() if each in present or each in self._missing}

    def lost(self) -> None:
        """The group continues without this member, with whomever."""
        self._number = None

    def left(self, incarnation: str, word: str = "") -> bool:
        """A proxy has ended in order: it holds no lease, and nothing that it sent can land any more.

        Returns:
            False: it is known that it has not said so itself, and nothing comes of it.
        """
        if not self._has_gone(incarnation) or incarnation not in self._seals:  # else its own word stands already
            self._gone[incarnation] = word
        seal = self._seals.get(incarnation)
        return not seal or sealed(word) == seal

    def _has_gone(self, incarnation: str) -> bool:
        seal = self._seals.get(incarnation)
        return incarnation in self._gone and (not seal or sealed(self._gone[incarnation]) == seal)

    def forgotten(self, incarnation: str) -> None:
        """It has been gone for so long that nobody asks any more."""
        self._gone.pop(incarnation, None)

    def nobody_served(self, now: float) -> None:
        """Nothing is managed: whoever is missing cannot be serving what there is not."""
        self._strangers_until = now
        self._missing.clear()

    @property
    def members(self) -> frozenset[str]:
        """The incarnations of the last generation that this member has joined."""
        return self._members

    def awaited(self, now: float) -> dict[str, float]:
        """Returns who may still serve though it is missing, by its host, and for how many seconds at most.

        An empty host stands for proxies that this one has never known.
        """
        ends = {self._hosts.get(each, each): end for each, end in self._missing.items() if not self._has_gone(each)}
        if self._strangers_until < inf:
            ends[""] = self._strangers_until
        return {host: end - now for host, end in sorted(ends.items()) if end > now}

    @property
    def alone_from(self) -> float:
        """From when on nobody serves but the present members, in seconds on the clock of leases."""
        ends = (end for each, end in self._missing.items() if not self._has_gone(each))
        return max([self._strangers_until, *ends])
