"""What each case of KIP-360 is answered, where Kordon differs from brokers, and why.

Words are those of `client.py`: an error, what became of a batch, or the id and epoch that were given (`A 1`). Tests
hold the table against brokers of three versions, and against Kordon; docs/kip-360.md is printed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kordon.codecs.error_codes import Code
from kordon.testing.broker_features import BUMPED_EPOCHS, FORGOTTEN_PRODUCERS, Feature
from kordon.testing.kip_360.client import KNOWN, KNOWN_WITHOUT_OFFSET, WRITTEN

_FENCED: Final = Code.PRODUCER_FENCED.name
_OLD_EPOCH: Final = Code.INVALID_PRODUCER_EPOCH.name
_BUSY: Final = Code.CONCURRENT_TRANSACTIONS.name
_INVALID: Final = Code.INVALID_REQUEST.name
_NO_MAPPING: Final = Code.INVALID_PRODUCER_ID_MAPPING.name
_GAP: Final = Code.OUT_OF_ORDER_SEQUENCE_NUMBER.name
_UNKNOWN: Final = Code.UNKNOWN_PRODUCER_ID.name


class Where(Enum):
    """What a topic is like whose cases are played; all but the first are played through Kordon."""

    DIRECT = "direct"
    UNTOUCHED = "ordinary"
    MANAGED = "managed"
    OTHER_PROXY = "managed, then through another proxy"
    MOVED = "managed, then grown or shrunk"
    FORGOTTEN_LATER = "managed, grown, and only then forgotten by brokers"
    LENT = "Kordon in front of 2.4"


_LIKE: Final = {Where.OTHER_PROXY: Where.MANAGED, Where.MOVED: Where.MANAGED, Where.FORGOTTEN_LATER: Where.MANAGED}
"""Where the answer is looked for if none is named."""


@dataclass(frozen=True)
class Why:
    """Why Kordon's answer differs."""

    title: str
    text: str


@dataclass(frozen=True)
class Row:
    """One case."""

    case: str
    answer: str
    """Of the newest brokers, and of Kordon in front of them."""
    older: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other answers, by the last version of Kafka that gave them."""
    since: Feature | None = None
    """What brokers need for the case."""
    differs: Mapping[Where, tuple[str, Why]] = field(default_factory=dict[Where, tuple[str, Why]])
    """What Kordon answers instead, and why."""

    def told(self, where: Where, version: str) -> str | None:
        """Returns what is answered; None: such brokers do not have the case."""
        if self.since is not None and not self.since.is_in(version):
            return None
        place: Where | None = where
        while place is not None:
            if place in self.differs:
                return self.differs[place][0]
            place = _LIKE.get(place)
        last = min((each for each in self.older if _number(each) >= _number(version)), key=_number, default=None)
        return self.answer if last is None else self.older[last]


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def told(rows: tuple[Row, ...], where: Where, version: str) -> dict[str, str]:
    """Returns by case what is answered, of the cases that such brokers have."""
    return {row.case: words for row in rows if (words := row.told(where, version)) is not None}


ANSWERED_FROM_IMAGE: Final = Why(
    "a repeated batch of a former home",
    "The image of a virtual partition has the last sequence of each producer, and no offsets. Everything that it covers"
    " stands in the log once, so clients are told of success without an offset. Brokers remember five batches, and"
    " refuse older ones although they stand in the log.",
)
IMAGE_BEFORE_EPOCH: Final = Why(
    "a repeated batch of a former epoch",
    "The batch stands in a former home, where its epoch was the newest. Only the present home has the later epoch."
    " Nothing is written.",
)
NOBODY_KNOWS: Final = Why(
    "an unknown producer in the middle of its sequence",
    "A batch that begins in the middle may be the second one of a producer whose first one is still under way, or was"
    " lost (OPENER-ALONE, SEQ-IMAGE). Newer brokers write it, and cannot notice what is missing before it. Clients"
    " begin another epoch upon this error, as the proposal has it.",
)
ASKED_ANEW: Final = Why(
    "a producer that brokers have forgotten",
    "A proxy that has seen the producer continues as brokers do. Another proxy, or the same one after a change of"
    " partitions, asks the broker, which does not know the producer. So the batch begins in the middle, as far as"
    " Kordon knows. Brokers would write it, a second time if it has been written before.",
)
IMAGE_REMEMBERS: Final = Why(
    "a producer that its image remembers longer",
    "An image is kept with the layout until a later change of partitions finds the producer silent for longer than"
    " `producer.id.expiration.ms`. Its record of a producer counts until then, and says what brokers said before.",
)

ENDED_WITHIN: Final = Why(
    "a transaction that has to be ended first",
    "Kordon calls the broker again until the transaction has ended, for up to 5 seconds, before it answers. The end"
    " takes an epoch of its own in brokers before 2.5.",
)
KEPT_FOR_LONGER: Final = Why(
    "a repeated request of an id without epochs",
    "Kordon remembers what was given for the current epoch, also where it was another id.",
)

COORDINATOR: Final = (
    Row("1a: the first instance", "A 0"),
    Row("1b i: another instance", "A 1"),
    Row("1b i while a transaction is open: the first answer", _BUSY, differs={Where.LENT: ("A 3", ENDED_WITHIN)}),
    Row(
        "1b i while a transaction is open: the answer once it has ended",
        "A 3",
        differs={Where.LENT: ("A 4", ENDED_WITHIN)},
    ),
    Row("the former instance begins a transaction", _OLD_EPOCH),
    Row("2a i: the current epoch", "A 1", since=BUMPED_EPOCHS),
    Row("2b: the same again", "A 1", since=BUMPED_EPOCHS),
    Row("2b: and again", "A 1", since=BUMPED_EPOCHS),
    Row("2a i: the epoch of that answer", "A 2", since=BUMPED_EPOCHS),
    Row("2c: an epoch older than the last, version 3", _OLD_EPOCH, since=BUMPED_EPOCHS),
    Row("2c: an epoch older than the last, version 4", _FENCED, since=BUMPED_EPOCHS),
    Row("2c: an epoch older than the last, version newest", _FENCED, since=BUMPED_EPOCHS),
    Row("2c: an epoch newer than the current", _FENCED, since=BUMPED_EPOCHS),
    Row("2c: the current epoch of another id", _FENCED, since=BUMPED_EPOCHS),
    Row("1b i behind 2a: another instance", "A 3", since=BUMPED_EPOCHS),
    Row("2c: a former instance, its current epoch", _FENCED, since=BUMPED_EPOCHS),
    Row("2c: a former instance, its last epoch", _FENCED, since=BUMPED_EPOCHS),
    Row("an id without an epoch", _INVALID, since=BUMPED_EPOCHS),
    Row("an epoch without an id", _INVALID, since=BUMPED_EPOCHS),
    Row("no transactional id, an id without an epoch", _INVALID, since=BUMPED_EPOCHS),
    Row("no transactional id, an id and its epoch", "B 0", since=BUMPED_EPOCHS),
    Row("the transactional id is unknown: an id and its epoch", "B 0", since=BUMPED_EPOCHS),
    Row(
        "2a i while a transaction is open: the first answer",
        _BUSY,
        since=BUMPED_EPOCHS,
        differs={Where.LENT: ("A 2", ENDED_WITHIN)},
    ),
    Row(
        "2a i while a transaction is open: the answer once it has ended",
        "A 1",
        older={"3.9": _FENCED},
        since=BUMPED_EPOCHS,
        differs={Where.LENT: ("A 2", ENDED_WITHIN)},
    ),
)
OVERFLOWS: Final = (
    Row("1b i: the last epoch of an id", "A 32766"),
    Row("1b ii: another instance", "B 0"),
    Row("the former instance, of an id without epochs left, begins a transaction", _NO_MAPPING),
    Row("2c behind 1b ii: the former instance", _FENCED, since=BUMPED_EPOCHS),
    Row("2a ii: the last epoch of an id", "B 0", since=BUMPED_EPOCHS),
    Row("2b behind 2a ii: the same again", "B 0", since=BUMPED_EPOCHS),
    Row(
        "2b behind 2a ii: and again",
        _FENCED,
        since=BUMPED_EPOCHS,
        differs={Where.LENT: ("B 0", KEPT_FOR_LONGER)},
    ),
    Row("2a i behind 2a ii: the epoch of that answer", "B 1", since=BUMPED_EPOCHS),
    Row("2c behind 2a ii: the last epoch of the former id", _FENCED, since=BUMPED_EPOCHS),
)
EXPIRED_IDS: Final = (
    Row("transactional id expired: another instance", "B 0"),
    Row("transactional id expired: the producer ends a transaction", _NO_MAPPING, since=BUMPED_EPOCHS),
    Row("transactional id expired: its id and epoch", "B 0", since=BUMPED_EPOCHS),
    Row(
        "transactional id expired, another instance has come: id and epoch of the former", _FENCED, since=BUMPED_EPOCHS
    ),
)
_FROM_IMAGE: Final = {Where.MOVED: (KNOWN_WITHOUT_OFFSET, ANSWERED_FROM_IMAGE)}
PRODUCE: Final = (
    Row("the last batch again", KNOWN, differs=_FROM_IMAGE),
    Row("the fifth-last batch again", KNOWN, differs=_FROM_IMAGE),
    Row("the sixth-last batch again", _GAP, differs=_FROM_IMAGE),
    Row("the first of seven batches again", _GAP, differs=_FROM_IMAGE),
    Row("the next batch", WRITTEN),
    Row("a gap", _GAP),
    Row("the next batch behind a refused gap", WRITTEN),
    Row("the next epoch from sequence 5", _GAP),
    Row("the next epoch from sequence 0", WRITTEN),
    Row("the former epoch, next sequence", _OLD_EPOCH),
    Row(
        "the former epoch, its last batch again",
        _OLD_EPOCH,
        differs={Where.MOVED: (KNOWN_WITHOUT_OFFSET, IMAGE_BEFORE_EPOCH)},
    ),
    Row("the next batch of the new epoch", WRITTEN),
    Row("an epoch that was left before", _OLD_EPOCH),
    Row("the epoch that followed it", WRITTEN),
    Row(
        "an unknown id from sequence 5",
        WRITTEN,
        older={"2.4": _UNKNOWN},
        differs={Where.MANAGED: (_UNKNOWN, NOBODY_KNOWS)},
    ),
    Row("all records deleted: the last batch again", KNOWN, differs=_FROM_IMAGE),
    Row("all records deleted: a gap", _GAP),
    Row("all records deleted: the next batch", WRITTEN),
    Row("all records deleted: the next epoch from sequence 5", _GAP),
    Row("all records deleted: the next epoch from sequence 0", WRITTEN),
    Row("all records deleted: the former epoch", _OLD_EPOCH),
)
_ASKED: Final = {Where.OTHER_PROXY: (_UNKNOWN, ASKED_ANEW), Where.MOVED: (_UNKNOWN, ASKED_ANEW)}


def _remembered(words: str) -> Mapping[Where, tuple[str, Why]]:
    return _ASKED | {Where.FORGOTTEN_LATER: (words, IMAGE_REMEMBERS)}


EXPIRED_PRODUCERS: Final = (
    Row("producer state expired: the next batch", WRITTEN, since=FORGOTTEN_PRODUCERS, differs=_ASKED),
    Row(
        "producer state expired: the last batch again",
        WRITTEN,
        since=FORGOTTEN_PRODUCERS,
        differs=_remembered(KNOWN_WITHOUT_OFFSET),
    ),
    Row("producer state expired: a gap", WRITTEN, since=FORGOTTEN_PRODUCERS, differs=_remembered(_GAP)),
    Row("producer state expired: the next epoch from sequence 0", WRITTEN, since=FORGOTTEN_PRODUCERS),
    Row(
        "producer state expired: the next epoch from sequence 5",
        WRITTEN,
        since=FORGOTTEN_PRODUCERS,
        differs=_remembered(_GAP),
    ),
    Row(
        "producer state expired: the former epoch", WRITTEN, since=FORGOTTEN_PRODUCERS, differs=_remembered(_OLD_EPOCH)
    ),
)
