"""Writes to physical partitions as such: the image first, then the count by which its client chose (COUNT-FENCE)."""

from collections.abc import Iterator
from typing import TypeAlias

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.images import Image, WhyNotWritten, Written
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.ordering.write_result import Result
from kordon.proxy.ordering.write_sequencer import NO_PRODUCER, Binding, Refuse, Write, WriteSequencer
from kordon.proxy.ordering.writers import WhyUnfit


def is_idle(sequencer: WriteSequencer[Write]) -> bool:
    """Whether nothing waits and nothing is under way."""
    return not (sequencer.waits or sequencer.in_flight)


Step: TypeAlias = Write | Refuse[Write]

STREAM = physical_stream(2)
HOME = Stay(partition=2, move=4, start=100, end=None, delta=0)
NEXT_HOME = Stay(partition=2, move=5, start=180, end=None, delta=0)
RETIRED = Stay(partition=2, move=4, start=100, end=180, delta=0)


def a_write(sequence: int = 0, count: int = 6, *, producer_id: int = 7, epoch: int = 0) -> Write:
    size = 100
    return Write(producer_id, epoch, sequence, 1, size, acks=-1, since=0.0, undeleted_partition_count=count)


def a_sequencer(*writes: Write) -> WriteSequencer[Write]:
    sequencer = WriteSequencer[Write](STREAM)
    for write in writes:
        sequencer.add(write)
    return sequencer


def steps(
    sequencer: WriteSequencer[Write], count: int, image: Image | None = None, home: Stay = HOME
) -> Iterator[Step]:
    while (step := sequencer.next(home, image or {}, lambda _: True, count)) is not None:
        yield step


def test_a_write_by_the_count_in_force_is_sent_under_the_layout_epoch_of_its_segment() -> None:
    """ORIGIN-TAG: no virtual partition, and the layout epoch where virtual partitions have their moves."""
    write = a_write(0)
    assert list(steps(a_sequencer(write), count=6)) == [write]
    assert write.bound == Binding(2, 4, 7, tag(STREAM, 4, 7), 0, 0, opens=True)


def test_a_write_by_another_count_is_refused_and_what_is_behind_it_goes_on() -> None:
    """KIP-253: its client partitioned it by partitions that there were, or by such as nobody knows of here yet."""
    old, none, right = a_write(0, count=5), a_write(0, count=-1, producer_id=8), a_write(0, producer_id=9)
    assert list(steps(a_sequencer(old, none, right), count=6)) == [
        Refuse(old, WhyUnfit.OUTDATED),
        Refuse(none, WhyUnfit.OUTDATED),
        right,
    ]


def test_a_write_that_was_written_before_the_cut_is_told_so_whatever_its_count_says() -> None:
    """COUNT-FENCE: the image is looked at before the count, or its client would write it a second time elsewhere."""
    written, behind, fenced = a_write(8, count=5), a_write(9, count=5), a_write(3, count=5, producer_id=8)
    image = {7: Written(0, 8), 8: Written(1, 0)}
    assert list(steps(a_sequencer(written, behind, fenced), 6, image)) == [
        Refuse(written, WhyNotWritten.DUPLICATE),
        Refuse(behind, WhyUnfit.OUTDATED),
        Refuse(fenced, WhyNotWritten.FENCED),
    ]


def test_a_count_that_is_in_force_again_does_not_let_an_old_write_in() -> None:
    """From 6 to 7 and back to 6: what waited all along was answered for under 7, and its records are elsewhere."""
    late, told, unsure = a_write(0), a_write(0, producer_id=8), a_write(0, producer_id=9)
    late.layout_epoch, told.layout_epoch, unsure.layout_epoch = 3, 4, -1
    assert list(steps(a_sequencer(late, told, unsure), count=6)) == [Refuse(late, WhyUnfit.OUTDATED), told, unsure]


def test_a_retired_partition_answers_what_it_has_and_takes_nothing() -> None:
    """Late questions are answered while nobody writes there; a write by the right count is refused."""
    written, new, without_id = a_write(8, count=5), a_write(9, count=6), a_write(-1, count=6, producer_id=NO_PRODUCER)
    sequencer = a_sequencer(written, new, without_id)
    assert list(steps(sequencer, 6, {7: Written(0, 8)}, RETIRED)) == [
        Refuse(written, WhyNotWritten.DUPLICATE),
        Refuse(new, WhyUnfit.OUTDATED),
        Refuse(without_id, WhyUnfit.OUTDATED),
    ]
    assert is_idle(sequencer)
    assert not sequencer.needs_id


def test_a_write_that_waits_is_judged_by_the_count_of_when_it_is_sent() -> None:
    """Held under a fence, or behind the first of its identity, it meets the layout that is in force by then."""
    first, second = a_write(0, count=6), a_write(1, count=6)
    sequencer = a_sequencer(first, second)
    assert list(steps(sequencer, count=6)) == [first]
    sequencer.answered(first, Result.WRITTEN)
    assert list(steps(sequencer, 7, {7: Written(0, 0)}, NEXT_HOME)) == [Refuse(second, WhyUnfit.OUTDATED)]


def test_sequences_go_on_behind_the_image_in_the_next_segment() -> None:
    """SEQ-IMAGE holds for physical partitions as such: each segment counts from 0."""
    write = a_write(9, count=7)
    assert list(steps(a_sequencer(write), 7, {7: Written(0, 8)}, NEXT_HOME)) == [write]
    assert write.bound == Binding(2, 5, 7, tag(STREAM, 5, 7), 0, 0, opens=True)


def test_without_idempotence_the_line_lends_an_identity_as_to_others() -> None:
    """LENT-IDENTITY, behind the count."""
    old, right = a_write(-1, count=5, producer_id=NO_PRODUCER), a_write(-1, count=6, producer_id=NO_PRODUCER)
    sequencer = a_sequencer(old, right)
    assert list(steps(sequencer, count=6)) == [Refuse(old, WhyUnfit.OUTDATED)]
    assert sequencer.needs_id
    sequencer.identify(900)
    assert list(steps(sequencer, count=6)) == [right]
    assert right.bound == Binding(2, 4, 900, tag(STREAM, 4, 900), 0, 0, opens=True)
