"""What the log says of one share group and partition: what is done, and who has what in hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from kordon.proxy.ordering.claims import NO_OFFSET, Claim, Done, Place, Start
from kordon.proxy.ordering.share.locks import Lock, LockOutcome, Locks

Said: TypeAlias = Start | LockOutcome | Lock


class ShareState:
    """What one worker has read.

    What is done is known as it is with individual commit (`claims.py`): starts begin incarnations of the group's
    progress, and of two that begin one the first counts (ONE-START). Locks count in their own incarnation, also before
    its start is read: the first one may have been taken out of the log, and a later one continues with it.
    """

    def __init__(self) -> None:
        self.place = Place()
        self.waits_since_ms = 0
        """When a record was written by which something was open from the offset on that is not done now."""
        self._locks: dict[int, Locks] = {}
        """The locks by incarnation."""
        self._none: Final = Locks()

    @property
    def incarnation(self) -> int:
        """The newest; 0: the group has not begun."""
        return self.place.incarnation

    @property
    def done(self) -> Done:
        """What is done in it."""
        return self.place.done

    @property
    def locks(self) -> Locks:
        """Who has what in hand in it; not to be changed."""
        return self._locks.get(self.incarnation, self._none)

    @property
    def records(self) -> int:
        """How many records stand in the log."""
        return self.place.records + sum(len(each) for each in self._locks.values())

    @property
    def log_bytes(self) -> int:
        """How many bytes they have, about."""
        return self.place.size + sum(each.size for each in self._locks.values())

    @property
    def held(self) -> int:
        """How many records have a lock."""
        return sum(each.held for each in self._locks.values())

    @property
    def is_open(self) -> bool:
        """Whether something is in hand, or done behind what is not."""
        return self.locks.in_hand > 0 or len(self.done.ranges) > 0

    def apply(self, key: str, offset: int, said: Said | None, now: float, size: int = 0) -> None:
        """Takes in a record.

        Args:
            key: The key by which the record can be removed.
            offset: The offset of the record.
            said: The contents of the record. None: the record with the key is removed.
            now: The worker's own clock, in seconds.
            size: The size in bytes.
        """
        if said is None:
            for locks in self._locks.values():
                locks.take_out(key)
            self.place.apply(key, offset, None)
        elif isinstance(said, Lock):
            self._of(said.incarnation).take(key, said, self.place.done_in(said.incarnation), now)
        elif isinstance(said, LockOutcome):
            self.place.apply(key, offset, Claim(said.incarnation, Done(NO_OFFSET, said.done)), size=size)
            self._of(said.incarnation).end(said)
        else:
            self.place.apply(key, offset, said, size=size)

    def void(self, member: str, offsets: Iterable[int]) -> None:
        """Notes that records for which a member has a lock were not given to it (`locks.py`)."""
        self.locks.void(member, offsets)

    def _of(self, incarnation: int) -> Locks:
        return self._locks.setdefault(incarnation, Locks())

    def outlived(self, read_before: float) -> list[str]:
        """Returns the keys of locks that may be taken out of the log: those of what is done, and of what was reset.

        Args:
            read_before: Locks that were read before this time of the worker's own clock have expired.
        """
        ended = [key for each in self.place.seen().ended for key in self._locks.get(each, self._none).keys]
        self._locks = {each: locks for each, locks in self._locks.items() if len(locks) or each == self.incarnation}
        return [*ended, *self.locks.outlived(self.done, read_before)]
