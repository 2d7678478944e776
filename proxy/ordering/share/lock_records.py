"""What stands in `__kordon.share_groups`: who has which records of virtual partitions in hand, and what is done.

    key      share/["orders-workers", "2f0c…", 7]/9d41…-12     the group's id, the topic's, the partition; the writer
                                                              and its number, by which the record can be taken out
             opening/9d41…                                    a name of its own
    value    a version (1 byte), a kind (1 byte), and then, all numbers big endian:
             start     as in `claim_records.py`
             outcome   the incarnation (8 bytes), the turn (4), how many bytes what is done has (4), what is done, and
                       of whose locks it is the end
             lock      the incarnation (8), the turn (4), the tries (4), how many bytes the session's name has (1), that
                       name, and the offsets
             opening   names of groups, as JSON
    none     nothing rests on the record any more

Sets of offsets are written as they travel (`codecs/ranges.py`). A version or kind that is not known is passed over.
"""

from __future__ import annotations

import struct
from typing import Final

from pydantic import TypeAdapter

from kordon.codecs.ranges import MOST_BYTES, Ranges, load_stored
from kordon.proxy.ordering import claim_records
from kordon.proxy.ordering.claim_records import HEAD, head_of
from kordon.proxy.ordering.claims import MOST_INCARNATION, Claim, Start
from kordon.proxy.ordering.share.locks import MOST_TURNS, Lock, LockOutcome
from kordon.proxy.ordering.share.opening import Opening
from kordon.proxy.ordering.share.state import Said

KIND: Final = "share"
VERSION: Final = 1
MOST_OFFSETS: Final = 20_000
"""Of a lock, and of the locks that an outcome ends: more than all members can have in hand of one partition."""
MOST_SESSION_BYTES: Final = 64
OPENING: Final = "opening"
"""Kind of the keys of openings."""
_OUTCOME, _LOCK, _OPENING = 3, 4, 5
"""Behind the kinds of `claim_records.py`."""
_MOST_OPENING_BYTES: Final = 900_000
_NAMES: Final = TypeAdapter(frozenset[str])
_OF_OUTCOME: Final = struct.Struct(">qII")
_OF_LOCK: Final = struct.Struct(">qIIB")
_MOST_BYTES: Final = HEAD.size + _OF_LOCK.size + 4 * MOST_BYTES
"""Longer values are not read."""


def dump(said: Said) -> bytes:
    """Writes a record's value."""
    if isinstance(said, Start):
        return claim_records.dump(said)
    if isinstance(said, Lock):
        session = said.member.encode()
        numbers = _OF_LOCK.pack(said.incarnation, said.turn, said.tries, len(session))
        return HEAD.pack(VERSION, _LOCK) + numbers + session + said.offsets.dump()
    done = said.done.dump()
    numbers = _OF_OUTCOME.pack(said.incarnation, said.turn, len(done))
    return HEAD.pack(VERSION, _OUTCOME) + numbers + done + said.ended.dump()


def load(value: bytes) -> Said | None:
    """Reads a record's value; None: it is of a version or kind that is not known.

    Raises:
        ValueError: The value is not a record of this version.
    """
    version, kind = head_of(value, _MOST_BYTES)
    if version == VERSION and kind in (_OUTCOME, _LOCK):
        numbers = _OF_OUTCOME if kind == _OUTCOME else _OF_LOCK
        if len(value) < HEAD.size + numbers.size:
            raise ValueError(f"{len(value)} bytes are too few")
        return _outcome(value) if kind == _OUTCOME else _lock(value)
    said = claim_records.load(value)
    if isinstance(said, Claim):
        raise ValueError("a claim stands in no log of share groups")
    return said


def is_opening(key: str) -> bool:
    """Whether a record opens its partition of the log."""
    return key.partition("/")[0] == OPENING


def dump_opening(opening: Opening) -> bytes:
    """Writes the value of an opening.

    Raises:
        ValueError: It names more groups than a record holds.
    """
    value = HEAD.pack(VERSION, _OPENING) + _NAMES.dump_json(opening.older)
    if len(value) > _MOST_OPENING_BYTES:
        raise ValueError(f"the names of {len(opening.older)} groups take {len(value)} bytes")
    return value


def load_opening(value: bytes) -> Opening | None:
    """Reads the value of an opening; None: it is of a version or kind that is not known.

    Raises:
        ValueError: It is none.
    """
    if not HEAD.size <= len(value) <= _MOST_OPENING_BYTES:
        raise ValueError(f"an opening does not have {len(value)} bytes")
    if HEAD.unpack_from(value) != (VERSION, _OPENING):
        return None
    return Opening(_NAMES.validate_json(value[HEAD.size :]))


def _outcome(value: bytes) -> LockOutcome:
    incarnation, turn, size = _OF_OUTCOME.unpack_from(value, HEAD.size)
    begin = HEAD.size + _OF_OUTCOME.size
    if begin + size > len(value):
        raise ValueError(f"{len(value) - begin} bytes are too few for {size} bytes of what is done")
    _check(incarnation, turn)
    done = load_stored(value[begin : begin + size])
    return LockOutcome(incarnation, turn, done, _offsets(value[begin + size :]))


def _lock(value: bytes) -> Lock:
    incarnation, turn, tries, size = _OF_LOCK.unpack_from(value, HEAD.size)
    begin = HEAD.size + _OF_LOCK.size
    _check(incarnation, turn)
    if not 0 < tries <= turn:
        raise ValueError(f"a lock of turn {turn} is not of try {tries}")
    if not 0 < size <= MOST_SESSION_BYTES or begin + size > len(value):
        raise ValueError(f"no session has a name of {size} bytes")
    session = value[begin : begin + size].decode()  # UnicodeDecodeError is a ValueError
    offsets = _offsets(value[begin + size :])
    if not offsets:
        raise ValueError("a lock of no record")
    return Lock(incarnation, session, turn, tries, offsets)


def _check(incarnation: int, turn: int) -> None:
    if not 0 < incarnation <= MOST_INCARNATION:
        raise ValueError(f"there is no incarnation {incarnation}")
    if not 0 <= turn <= MOST_TURNS:
        raise ValueError(f"there is no turn {turn}")


def _offsets(data: bytes) -> Ranges:
    """Reads offsets of records; each of them costs memory, and a few bytes can say that there are 2^62."""
    offsets = load_stored(data)
    count = sum(end - begin for begin, end in offsets)
    if count > MOST_OFFSETS:
        raise ValueError(f"it names {count} offsets, and at most {MOST_OFFSETS} are read")
    return offsets
