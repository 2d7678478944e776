"""Compacted topics whose partitions grow and shrink: a model of the broker's compaction, and the janitor's thinking."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kordon.proxy.ordering.janitor import Doubts, Latest
from kordon.testing.compaction import CompactedTopic

STEPS = 120
EXAMPLES = settings().max_examples // 3
"""Each is judged after each of its steps."""


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 3), doublings=st.integers(1, 3), is_taken_over=st.booleans())
def test_a_log_read_from_0_gives_the_latest_value_of_each_key(
    seed: int, n: int, doublings: int, *, is_taken_over: bool
) -> None:
    """At every moment: through growths and shrinks, deletes, compaction at any time, and crashes of the janitor."""
    topic = CompactedTopic(Random(seed), n, n << doublings, is_taken_over=is_taken_over)
    for _ in range(STEPS):
        topic.step()
        assert topic.read() == topic.truth
    topic.settle()
    assert topic.read() == topic.truth
    assert topic.count() == len(topic.truth)  # nothing of an old value is left anywhere


def test_without_the_wait_for_the_janitor_deleted_keys_come_back() -> None:
    """What a layout must wait for: a former home that is home again before its markers are written gets none."""
    assert any(_goes_wrong(CompactedTopic(Random(seed), 2, 8, is_swept=False)) for seed in range(300))


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 3), doublings=st.integers(0, 3), is_taken_over=st.booleans())
def test_a_hidden_record_takes_no_value_away(seed: int, n: int, doublings: int, *, is_taken_over: bool) -> None:
    """Strays and late markers stand behind visible records of their keys; before they are compacted these are back."""
    topic = CompactedTopic(Random(seed), n, n << doublings, has_mishaps=True, is_taken_over=is_taken_over)
    for _ in range(STEPS):
        topic.step()
        assert topic.read() == topic.truth
    topic.settle()
    assert topic.read() == topic.truth


def test_without_the_janitors_mending_values_are_lost() -> None:
    """What a hidden record does to the last visible one of its key."""
    topics = (CompactedTopic(Random(seed), 2, 8, has_mishaps=True, is_mended=False) for seed in range(300))
    assert any(_goes_wrong(topic) for topic in topics)


def test_what_brokers_will_never_take_is_in_doubt_no_more() -> None:
    """It would be written again for ever; other keys that are lost are still to be brought back."""
    doubts = Doubts()
    lost = {key: Latest(0, 3, 1, 0, key) for key in (b"refused", b"taken")}
    for key, latest in lost.items():
        doubts.hide(key, 1, 7)
        doubts.see(key, latest)
    doubts.searched(lost)
    assert doubts.lost() == lost
    doubts.settle([b"refused", b"nobody knows it"])
    assert doubts.lost() == {b"taken": lost[b"taken"]}
    assert b"refused" not in doubts


def _goes_wrong(topic: CompactedTopic) -> bool:
    for _ in range(STEPS):
        topic.step()
        if topic.read() != topic.truth:
            return True
    topic.settle()
    return topic.read() != topic.truth
