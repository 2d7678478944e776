"""A share group's virtual partition at its workers: what is given, what counts, what is written and taken out again."""

from uuid import UUID

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.claims import PlaceKey
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch, ShareAcknowledgeType
from kordon.proxy.ordering.share.acquiring import Terms, Wish
from kordon.proxy.ordering.share.window import WindowRecord
from kordon.proxy.own_topics import share_partition
from kordon.proxy.own_topics.share_partition import SharePartition
from kordon.testing.share_log_in_memory import SharedRecords, ShareLogInMemory

PLACE = PlaceKey("workers", UUID(int=1), 0)
TERMS = Terms(30.0)


def served(records: SharedRecords, writer: str = "w") -> SharePartition:
    return ShareLogInMemory(records, writer).partition(PLACE)


def look(partition: SharePartition, *keys: int | None) -> None:
    """Has it look at records of these keys at all offsets, so far as it has not."""
    begin, _ = partition.ahead()
    ahead = [WindowRecord(offset, key) for offset, key in enumerate(keys) if offset >= begin]
    partition.look(begin, len(keys), ahead)


async def give(partition: SharePartition, session: str, most: int = 10, terms: Terms = TERMS) -> list[int]:
    return [each.offset for each in (await partition.acquire(Wish(session, most), terms)).records]


async def say(partition: SharePartition, session: str, kind: ShareAcknowledgeType, *offsets: int) -> Code:
    batches = [AcknowledgementBatch(each, each, (kind,)) for each in offsets]
    return await partition.acknowledge(session, batches, TERMS, may_renew=True)


ACCEPT, RELEASE, RENEW = ShareAcknowledgeType.ACCEPT, ShareAcknowledgeType.RELEASE, ShareAcknowledgeType.RENEW


async def test_two_workers_give_each_record_once_and_each_key_in_order() -> None:
    """What one has written the other has read; either may be told that a record is done."""
    records = SharedRecords()
    one, other = served(records, "one"), served(records, "other")
    assert await one.begin(0)
    look(one, 1, 1, 2, None)
    look(other, 1, 1, 2, None)
    assert await give(one, "a", most=2) == [0, 2]
    assert await give(other, "b") == [3]
    assert await say(other, "a", ACCEPT, 0) is Code.NONE
    assert await give(one, "b") == [1]
    assert one.progress() == other.progress() == share_partition.ShareProgress(stable=1, in_hand=3)
