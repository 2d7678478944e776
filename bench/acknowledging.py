"""What acknowledgements at random cost a CooperativeConsumer: CPU of each step of a record, and bytes of a commit."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from aiokafka.structs import ConsumerRecord, TopicPartition

from kordon.bench import results
from kordon.bench.results import Measurement
from kordon.client.cooperative.in_hand import HandLimits, InHand
from kordon.client.cooperative.range_text import RangesOwner, build
from kordon.client.cooperative.settings import AcknowledgeType, Record, Settings
from kordon.client.cooperative.working import Hand, Held, Working
from kordon.codecs.ranges import MOST_RANGES

ROUNDS: Final = 20
CASE: Final = f"{MOST_RANGES:,} acknowledgements at random of twice as many records in hand, every second one"
"""They leave as many ranges as a commit has at most."""
_TP: Final = TopicPartition("t", 0)
_RECORD_BYTES: Final = 100


@dataclass(slots=True)
class Cost:
    """CPU microseconds of a record, by what is done with it, and what its partition commits then."""

    us: dict[str, float] = field(default_factory=dict[str, float])
    """The least of all rounds: what others do on the machine only adds."""
    ranges: int = 0
    commit_bytes: int = 0
    """Of ranges that a Kordon keeps."""
    fitting: int = 0
    metadata_bytes: int = 0
    """Of those that a commit's metadata has room for."""
    taken_on: int = 0
    """Records that are fetched and started behind all these ranges."""

    @contextmanager
    def counted(self, what: str, records: int) -> Iterator[None]:
        """Counts the CPU time of a block."""
        since = time.thread_time()
        yield
        us = (time.thread_time() - since) / records * 1e6
        self.us[what] = min(us, self.us.get(what, us))


def measure(ranges: int = MOST_RANGES, rounds: int = ROUNDS) -> Cost:
    """Takes twice as many records in hand, acknowledges every second one in an order that is drawn, and goes on."""
    cost = Cost()
    for number in range(rounds):
        _measure(cost, ranges, random.Random(number))  # noqa: S311 - chance that can be repeated
    return cost


def measurement() -> Measurement:
    """Returns it for the bench."""
    cost = measure()
    figures = {
        results.ACKNOWLEDGED_US: cost.us["acknowledged"],
        results.COMMIT_BYTES: float(cost.commit_bytes),
        results.RANGES: float(cost.ranges),
        results.TAKEN_ON: float(cost.taken_on),
    }
    return Measurement(CASE, results.SDK, 1, figures)


def _measure(cost: Cost, ranges: int, chance: random.Random) -> None:
    in_hand = 2 * ranges
    hand: Hand = InHand("key", HandLimits(records=in_hand, running=in_hand))
    working = Working(hand, Settings(), key_deserializer=None, value_deserializer=None, freed=lambda: None)
    hand.assign(_TP, 0)
    with cost.counted("fetched", in_hand):
        hand.take(_TP, _rows(range(in_hand)), in_hand)
    with cost.counted("started", in_hand):
        running = _started(hand)
    done = [entry for entry in running if entry.offset % 2]
    chance.shuffle(done)
    with cost.counted("acknowledged", len(done)):
        for entry in done:
            working.acknowledge(hand.find(_TP, entry.offset) or entry, AcknowledgeType.ACCEPT)
    progress = hand.progress(_TP)
    text, told = build(RangesOwner("group", "topic", 0, UUID(int=1)), progress.stable, progress.ranges)
    cost.ranges, cost.fitting = len(progress.ranges), len(told)
    cost.commit_bytes, cost.metadata_bytes = len(progress.ranges.dump()), len(text)
    hand.take(_TP, _rows(range(in_hand, in_hand + ranges)), in_hand + ranges)
    cost.taken_on = len(_started(hand))


def _rows(offsets: range) -> list[tuple[int, bytes, int, Record]]:
    return [(o, b"%d" % o, _RECORD_BYTES, ConsumerRecord("t", 0, o, 0, 0, b"", b"", None, 0, 0, ())) for o in offsets]


def _started(hand: Hand) -> list[Held]:
    return list(iter(lambda: hand.start(0.0), None))
