"""One decision as it stands in `__kordon.decisions`: schema 1, evolved only by adding fields (docs/decisions.md).

A record is a JSON object without the fields that say nothing. It stands for one verdict, or for a run of them that
follow on each other: the batches of one producer to one stream, or what one connection was given of one stream. Never
for a single Kafka record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from pydantic import TypeAdapter

SCHEMA: Final = 1
"""Fields may be added under the same number; it rises when one changes its meaning or goes."""


class Kind(StrEnum):
    """What was decided."""

    ADMIT = "admit"
    """Batches of a producer were written and acknowledged: sequences and offsets [first, last]."""
    REFUSE = "refuse"
    """A request, or a part of one, was answered by an error of Kordon's own; `reason` is the error's name."""
    HOLD = "hold"
    """Writes, or a reader, wait from now on; `reason` says for what."""
    RELEASE = "release"
    """Writes, or a reader, wait no longer."""
    DELIVER = "deliver"
    """A connection was given all that a stream has in physical offsets [first, last] of one stay."""
    REDIRECT = "redirect"
    """A client was sent elsewhere: a Metadata answer told it a new layout, or a write was bound to another home."""
    FENCE = "fence"
    """The controller made a fence durable; `evidence.members` are the proxies that must acknowledge it."""
    ACKNOWLEDGE = "acknowledge"
    """A worker holds what a fence names, and has nothing unanswered there."""
    CUT = "cut"
    """The controller read where a sealed or opened partition ends: `last_offset` is the next offset."""
    COMMIT = "commit"
    """The controller wrote a layout; `evidence.layout` is the whole of it, `layouts_offset` where it stands."""
    CANCEL = "cancel"
    """The controller took a fence back."""
    ADOPT = "adopt"
    """A worker continues under a layout, which it read at `layouts_offset`; `evidence.layout` is the whole of it."""
    FORGET = "forget"
    """A topic is not managed any more."""
    LEASE = "lease"
    """A worker's lease began (`reason` alive) or was lost (`reason` lost)."""
    JOIN = "join"
    """A worker joined a generation of the proxies' group; `generation_id`, `member_id`."""
    REWIND = "rewind"
    """A reader asked for an offset below what it was given on this connection, or a group's position fell."""
    POSITION = "position"
    """A member of a dialect group told how far it has processed: `last_offset` is the next offset."""
    OFFSET_COMMIT = "offset-commit"
    """A group committed offsets of a topic, and its coordinator has accepted them."""
    INDIVIDUAL_COMMIT = "individual-commit"
    """A group's member said which offsets of a partition are done, and that stands in the log of claims; `partition`
    is the client's, `last_offset` the stable offset that the coordinator has got."""
    SHARE_GIVE = "share-give"
    """A share group's member was given records of a stream, whose locks stand in the log; `evidence` has the offsets as
    clients know them."""
    SHARE_ACKNOWLEDGE = "share-acknowledge"
    """A share group's member has said what becomes of records of a stream, and that stands in the log."""
    ASSIGN = "assign"
    """Source partitions were given to members of a group; `generation_id` is the group's, or the member's epoch
    (KIP-848), `evidence.owners` has the partitions by member."""
    POINT = "point"
    """A group of producers committed a restart point of a source, and its coordinator has accepted it; `partition` is
    the source's."""
    OFFSET_FETCH = "offset-fetch"
    """A client was told which offsets a group has committed of a topic."""
    LIMIT = "limit"
    """A limit of the proxy was hit; `rule` names the option."""
    CLOSE = "close"
    """A connection ended; `reason` is its cause."""
    GAP = "gap"
    """Decisions `first_number` to `last_number` of this worker were dropped; `reason` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided; the journal adds when, by whom and under which number."""

    kind: Kind
    connection: int | None = None
    """The worker's number of the client's connection."""
    client_id: str | None = None
    principal: str | None = None
    """The user as whom the client logged in to Kordon; None: it did not log in."""
    group_id: str | None = None
    generation_id: int | None = None
    member_id: str | None = None
    api_key: int | None = None
    topic: str | None = None
    stream: int | None = None
    """The virtual partition, or ~q for the physical partition q as dialect clients see it (`ordering/streams.py`)."""
    partition: int | None = None
    """The physical partition."""
    layout_epoch: int | None = None
    """The epoch of the layout under which the verdict was taken."""
    move: int | None = None
    """The number of times that the stream had moved."""
    layouts_offset: int | None = None
    """The offset of the newest record of `__kordon.layouts` on which the verdict rests. It orders decisions of
    several workers."""
    fence: str | None = None
    """The id of the fence."""
    producer_id: int | None = None
    """The producer id as the client knows it."""
    producer_epoch: int | None = None
    first_sequence: int | None = None
    last_sequence: int | None = None
    first_offset: int | None = None
    """An offset of the physical partition."""
    last_offset: int | None = None
    """An offset of the physical partition: that of the last record that belongs to the verdict."""
    first_number: int | None = None
    last_number: int | None = None
    batches: int | None = None
    """How many verdicts this record stands for; None: one."""
    records: int | None = None
    bytes: int | None = None
    isolation_level: int | None = None
    """As Fetch has it: 0 read_uncommitted, 1 read_committed, whose reader is not given what nobody has committed."""
    rule: str | None = None
    """A name of docs/rules.md, or the option's."""
    reason: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the verdict was taken from, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A decision with its place in the log."""

    at_ms: int
    """When it was taken, of a run when it ended, in milliseconds since 1970. Never used to order decisions."""
    host: str
    """The host on which the proxy runs."""
    worker: str
    """The incarnation of the worker's process; never used again."""
    number: int
    """The number in the worker's sequence, from 0 on, without gaps unless decisions were dropped."""
    began_ms: int | None = None
    """The time of a run's first verdict, in milliseconds since 1970."""
    decision: Decision

    def dump(self) -> bytes:
        """Writes it as JSON, without what says nothing."""
        told = {name: value for name in _NAMES if (value := getattr(self.decision, name)) not in (None, {})}
        began = {} if self.began_ms is None else {"began_ms": self.began_ms}
        place = {"at_ms": self.at_ms, "host": self.host, "worker": self.worker, "number": self.number}
        return _ANY.dump_json({"schema": SCHEMA, **place, **began, **told})

    @classmethod
    def load(cls, value: bytes) -> Entry:
        """Reads it; fields of later versions are passed over.

        Raises:
            ValueError: It is none.
        """
        told = _OBJECT.validate_json(value)
        if told.get("schema", 0) < SCHEMA:
            raise ValueError("no decision: it has no schema")
        decision = _DECISION.validate_python({name: told[name] for name in _NAMES if name in told})
        place = {name: told[name] for name in ("at_ms", "host", "worker", "number", "began_ms") if name in told}
        return _ENTRY.validate_python({**place, "decision": decision})


_NAMES: Final = tuple(each.name for each in fields(Decision))
_ANY: Final[TypeAdapter[object]] = TypeAdapter(object)
_OBJECT: Final[TypeAdapter[dict[str, Any]]] = TypeAdapter(dict[str, Any])
_DECISION: Final = TypeAdapter(Decision)
_ENTRY: Final = TypeAdapter(Entry)
