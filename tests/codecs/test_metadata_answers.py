"""Rows of partitions in a Metadata answer are those that the table writes."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.messages.metadata import PARTITION
from kordon.codecs.metadata_answers import placed, written
from kordon.testing.messages.values import Values

NUMBERS = st.integers(-(2**31), 2**31 - 1)


@given(st.integers(0, 13), st.randoms(use_true_random=False), NUMBERS, NUMBERS)
def test_a_row_of_another_partition_is_as_the_table_writes_it(
    version: int, random: Random, partition: int, epoch: int
) -> None:
    """In every version, with any replicas, and tagged fields of a version to come included."""
    row = PARTITION.parse(version, PARTITION.build(version, Values(random).message(PARTITION, version)))
    if version >= 9 and partition % 2:
        row["_tagged"] = {7: b"new"}
    assert written(version, row) == PARTITION.build(version, row)
    made = placed(version, PARTITION.build(version, row), partition, epoch)
    assert made == PARTITION.build(version, row | {"partition_index": partition, "leader_epoch": epoch})
