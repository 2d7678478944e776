"""What a leader's answer means: open counts if the leader itself says so, of a witness that is replicated."""

import pytest

from kordon.proxy.ordering.transactions.open_answers import (
    NOT_OPEN,
    LeaderAnswer,
    LeaderSays,
    leader_says,
    witness_sequence,
)

OPEN = LeaderAnswer(
    leader_epoch_before=2,
    leader_epoch_after=2,
    producer_epoch=5,
    last_sequence=3,
    start_offset=100,
    high_watermark=101,
)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (OPEN, LeaderSays.OPEN),
        (OPEN._replace(start_offset=NOT_OPEN), LeaderSays.NOT_OPEN),
        (OPEN._replace(producer_epoch=4), LeaderSays.NOT_OPEN),
        (OPEN._replace(producer_epoch=-1, start_offset=NOT_OPEN), LeaderSays.NOT_OPEN),
        (OPEN._replace(high_watermark=100), LeaderSays.UNSURE),
        (OPEN._replace(leader_epoch_after=3), LeaderSays.UNSURE),
        (OPEN._replace(leader_epoch_before=1), LeaderSays.UNSURE),
        (OPEN._replace(leader_epoch_before=1, leader_epoch_after=1), LeaderSays.UNSURE),
        (OPEN._replace(start_offset=NOT_OPEN, leader_epoch_after=3), LeaderSays.UNSURE),
    ],
    ids=[
        "open",
        "not open",
        "open by an older epoch",
        "unknown",
        "appended, not replicated: an orderly election takes the witness",
        "deposed meanwhile",
        "elected meanwhile",
        "of a leader that has been deposed",
        "not open, by a leader that has been deposed",
    ],
)
def test_open_counts_if_the_leader_says_so_of_what_is_replicated(answer: LeaderAnswer, wanted: LeaderSays) -> None:
    """DescribeProducers alone tells the log end of whoever is asked."""
    assert leader_says(answer, 5, 2) is wanted


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (OPEN, 4),
        (OPEN._replace(last_sequence=-1), 0),
        (OPEN._replace(producer_epoch=4), 0),
        (OPEN._replace(last_sequence=(1 << 31) - 1), 0),
    ],
    ids=["follows the last one", "first of its epoch", "of a new epoch", "behind the largest"],
)
def test_a_witness_of_v1_is_no_repetition(answer: LeaderAnswer, wanted: int) -> None:
    """Under a remembered sequence brokers take it for an earlier transaction's, and store nothing."""
    assert witness_sequence(answer, 5) == wanted
