"""How epochs that Kordon lends stand in a log: a record per transactional id, as JSON (`lent_epochs.py`).

    key     epochs/"orders-writer"      the transactional id, as JSON
            epochs-by-hash/"6f3a…"      the SHA-256 of one that is longer than 200 bytes
    value   {"version": 1, "number": 4, "current": [7, 1], "last": [7, 0], "doubtful": 0,
             "claim": {"token": "5f0c-12", "given": [7, 1], "epochs": 1}}

A record says all that is known of its id, so the topic is compacted. It has to keep all records for longer than a proxy
may be silent (min.compaction.lag.ms): those before a record tell that it came too late. `current`, `last`, `claim` and
`given` may be null. A record without a value forgets its id (`lent_table.py`). Other kinds of keys are passed over.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from kordon.proxy.ordering.lent_epochs import EpochClaim, Lent, ProducerIdentity
from kordon.proxy.ordering.versioned_values import read_value

VERSION: Final = 1
KIND: Final = "epochs"
KIND_BY_HASH: Final = "epochs-by-hash"
MOST_ID_BYTES: Final = 200
"""Of a transactional id that stands in its key; clients may name ids of 32 KiB."""
MOST_KEY_CHARACTERS: Final = 6 * MOST_ID_BYTES + 20
"""What a key has at most: JSON takes six characters for some bytes."""
MOST_BYTES: Final = 4096
"""Of a value; what Kordon writes has some 300."""
MOST_TOKEN_CHARACTERS: Final = 100
_MOST: Final = 1 << 63
_Pair = tuple[Annotated[int, Field(ge=0, lt=_MOST)], Annotated[int, Field(ge=0, lt=1 << 15)]]
_STRICT: Final = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class _Claim:
    __pydantic_config__ = _STRICT
    token: Annotated[str, Field(max_length=MOST_TOKEN_CHARACTERS)]
    given: _Pair | None
    epochs: Annotated[int, Field(ge=1, le=2)]


@dataclass(frozen=True, slots=True)
class _Value:
    __pydantic_config__ = _STRICT
    version: Literal[1]
    number: Annotated[int, Field(ge=0, lt=_MOST)]
    current: _Pair | None
    last: _Pair | None
    doubtful: Annotated[int, Field(ge=0, lt=_MOST)]
    claim: _Claim | None


_VALUE: Final = TypeAdapter(_Value)
_ID: Final = TypeAdapter(str)


def key_of(transactional_id: str) -> str:
    """Returns the key of a transactional id's records."""
    said = transactional_id.encode(errors="surrogatepass")
    if len(said) <= MOST_ID_BYTES:
        return f"{KIND}/{json.dumps(transactional_id)}"
    return f'{KIND_BY_HASH}/"{hashlib.sha256(said).hexdigest()}"'


def transactional_id_of(key: str) -> str | None:
    """Returns whose record has a key, by name or hash; None: it is of a kind that this version does not know.

    Raises:
        ValueError: The value does not match its kind.
    """
    kind, _, name = key.partition("/")
    if kind not in (KIND, KIND_BY_HASH):
        return None
    if len(key) > MOST_KEY_CHARACTERS:
        raise ValueError(f"it has {len(key)} characters, and at most {MOST_KEY_CHARACTERS} are read")
    return _ID.validate_json(name, strict=True)


def dump(lent: Lent) -> bytes:
    """Writes a record's value."""
    claim = None if lent.claim is None else _Claim(*lent.claim)
    return _VALUE.dump_json(_Value(VERSION, lent.number, lent.current, lent.last, lent.doubtful, claim))


def load(value: bytes) -> Lent | None:
    """Reads a record's value; None: it is of a version that is not known, and so is what its id was given.

    Raises:
        ValueError: The value is not a record of this version.
    """
    if len(value) > MOST_BYTES:
        raise ValueError(f"it has {len(value)} bytes, and at most {MOST_BYTES} are read")
    read = read_value(value, _VALUE, VERSION)
    if read is None:
        return None
    claim = None
    if read.claim is not None:
        claim = EpochClaim(read.claim.token, _identity(read.claim.given), read.claim.epochs)
    return Lent(read.number, _identity(read.current), _identity(read.last), read.doubtful, claim)


def _identity(pair: tuple[int, int] | None) -> ProducerIdentity | None:
    return None if pair is None else ProducerIdentity(*pair)
