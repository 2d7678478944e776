"""Other ways to break the promises of `fault_plays.py`: behind a shrink, by other clients, of other decisions.

The audit is to give the same kind of finding for each, and no other.
"""

# Its requests are those of the plays that it varies.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kordon.codecs.decision import Kind
from kordon.testing.audits.fault_plays import (
    GROWN,
    PARTITIONS,
    Stage,
    clean,
    doubled_sequence,
    hand_over,
    made,
    read_committed,
    stale_count,
    transactional,
    write_after_fence,
)
from kordon.testing.audits.faults import Fault
from kordon.testing.audits.play_requests import assert_accepted, new_producer, one_record, produce, write
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.dialect.reader import DialectReader, records_of
from kordon.testing.managed_clients import create_managed, resize
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.waiting import wait_until

_PATIENCE_SECONDS: Final = 60.0
_BATCHES: Final = 12


@dataclass(frozen=True, slots=True)
class Variant:
    """What is broken, how it shows, and by whom it is found."""

    fault: str | None
    """As `ProxyProcess.start` takes it; None: Kordon keeps all of its promises."""
    play: Callable[[Stage], None]
    rule: str
    kind: str
    verdict: str = "fail"
    has_transactions: bool = False
    """Whether the Kordon takes transactions."""


def early_child_behind_a_shrink(stage: Stage) -> None:
    """A reader that has been given nothing yet is given what came into a partition when others were merged into it."""
    admin = made(stage, GROWN)
    with DialectConnection(stage.proxy) as client:
        assert_accepted(*(write(client, stage.topic, q, GROWN) for q in range(GROWN)))
        resize(admin, stage.topic, PARTITIONS).result(_PATIENCE_SECONDS)
        assert_accepted(*(write(client, stage.topic, q, PARTITIONS) for q in range(PARTITIONS)))
    with DialectReader(stage.proxy, stage.topic) as reader:
        reader.read_until(2, 0)


def doubled_by_the_dialect(stage: Stage) -> None:
    """A dialect producer sends again, behind a growth, what had been acknowledged: it stands in the partition twice."""
    admin = create_managed(stage.proxy, stage.topic)
    with DialectConnection(stage.proxy) as client:
        batch = one_record(new_producer(client), 0, "once")
        codes = []
        for count in (PARTITIONS, GROWN):
            epoch = client.metadata(stage.topic).layout_epoch
            codes.append(client.produce(stage.topic, 0, batch, count, epoch).error_code)
            if count == PARTITIONS:
                resize(admin, stage.topic, GROWN).result(_PATIENCE_SECONDS)
    assert_accepted(*codes)


def skipped_by_the_dialect(stage: Stage) -> None:
    """A dialect reader reads a partition of many batches to its end."""
    create_managed(stage.proxy, stage.topic)
    with DialectConnection(stage.proxy) as client:
        assert_accepted(*(write(client, stage.topic, 0, PARTITIONS) for _ in range(_BATCHES)))
    with DialectReader(stage.proxy, stage.topic) as reader:
        wait_until("the end", lambda: not records_of(reader.read(0)[0]), _PATIENCE_SECONDS)


def bypass_behind_a_shrink(stage: Stage) -> None:
    """An idempotent producer writes past Kordon to a partition that is retired."""
    admin = made(stage, GROWN)
    with PlainConnection(stage.proxy) as client:
        assert_accepted(produce(client, stage.topic, 0, one_record(new_producer(client), 0, "through Kordon")))
    resize(admin, stage.topic, PARTITIONS).result(_PATIENCE_SECONDS)
    with PlainConnection(stage.broker) as stranger:
        stolen = one_record(new_producer(stranger), 0, "round it")
        assert_accepted(produce(stranger, stage.topic, GROWN - 1, stolen))


def led_past_what_is_open(stage: Stage) -> None:
    """A reader of committed records is given what stands behind a transaction that is open, and commits later."""
    create_managed(stage.proxy, stage.topic)
    with closing(transactional(stage)) as producer:
        producer.write(0)
        with PlainConnection(stage.proxy) as client:
            assert_accepted(produce(client, stage.topic, 0, one_record(new_producer(client), 0, "behind")))
        assert len(read_committed(stage)) == 1
        producer.end()


def told_ahead_of_what_is_committed(stage: Stage) -> None:
    """A member of a group commits its beginning, and another one is sent on behind what a transaction has committed."""
    create_managed(stage.proxy, stage.topic)
    with closing(transactional(stage)) as producer:
        for _ in range(3):
            producer.write(0)
            producer.end()
    hand_over(stage, 1)


def _at_a_shrink(play: Callable[[Stage, int, int], None]) -> Callable[[Stage], None]:
    """Has a play's topic shrink where it grows else."""
    return lambda stage: play(stage, GROWN, PARTITIONS)


def _dropped(kind: Kind) -> Variant:
    return Variant(f"{Fault.DROPPED_DECISION.value}:{kind.value}", clean, "GAPS", "gap", "unknown")


VARIANTS: Final[Mapping[str, Variant]] = MappingProxyType(
    {
        "stale-count-shrink": Variant("stale-count", _at_a_shrink(stale_count), "COUNT-FENCE", "stale-count"),
        "early-child-shrink": Variant("early-child", early_child_behind_a_shrink, "PARENT-FIRST", "early-child"),
        "late-write-shrink": Variant(
            "write-after-fence:2", _at_a_shrink(write_after_fence), "FENCE-BARRIER", "write-after-fence"
        ),
        "doubled-shrink": Variant("doubled-sequence", _at_a_shrink(doubled_sequence), "SEQ-IMAGE", "doubled-sequence"),
        "doubled-dialect": Variant("doubled-sequence", doubled_by_the_dialect, "SEQ-IMAGE", "doubled-sequence"),
        "skipped-dialect": Variant("skipped-range", skipped_by_the_dialect, "NO-SKIP", "skipped-range"),
        "led-past-open": Variant(
            "uncommitted-range:undecided", led_past_what_is_open, "NO-SKIP", "skipped-range", has_transactions=True
        ),
        "told-ahead-transaction": Variant(
            "told-ahead", told_ahead_of_what_is_committed, "HAND-OVER", "told-ahead", has_transactions=True
        ),
        "bypass-shrink": Variant(None, bypass_behind_a_shrink, "COUNT-FENCE", "bypass"),
        **{
            f"dropped-{kind.value}": _dropped(kind)
            for kind in (Kind.FENCE, Kind.ACKNOWLEDGE, Kind.CUT, Kind.COMMIT, Kind.ADOPT, Kind.DELIVER)
        },
    }
)
"""By name."""
