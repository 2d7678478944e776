"""The places of records that were queued before their topic was managed."""

from uuid import UUID

import pytest

from kordon.client.layouts import TopicLayout
from kordon.client.unanswered import Places

LAYOUT = TopicLayout("orders", UUID(int=1), 3, 6, 12, 1)


def by_first_byte(layout: TopicLayout, key: bytes | None) -> int:
    """The place of a key, as a partitioner says it."""
    assert key is not None
    return key[0] % layout.virtual_partition_count


@pytest.mark.parametrize(
    ("partition", "key", "place"),
    [
        (1, b"\x07", 7),
        (2, b"\x07", ~2),
        (2, None, ~2),
    ],
    ids=["where its key belonged", "elsewhere", "without a key"],
)
def test_a_record_that_was_put_elsewhere_on_purpose_goes_with_its_partition(
    partition: int, key: bytes | None, place: int
) -> None:
    """Virtual partition 7 was in partition 1 while the topic had three: only there the key has decided."""
    assert Places(by_first_byte).find(LAYOUT, partition, key) == place
