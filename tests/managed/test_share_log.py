"""The log of share groups at a real broker: workers that share it, one that dies, one that comes later, its loss."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import UUID, uuid4

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.ordering.claims import PlaceKey
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch, ShareAcknowledgeType
from kordon.proxy.ordering.share.acquiring import GivenRecord, Terms, Wish
from kordon.proxy.ordering.share.window import WindowRecord
from kordon.proxy.own_topics import followed_log, logs_of_groups, share_groups, share_partition
from kordon.proxy.own_topics.share_groups import ShareGroups
from kordon.proxy.own_topics.share_partition import SharePartition, ShareProgress
from kordon.testing.broker_features import SHARE_GROUPS
from kordon.testing.cluster import Cluster
from kordon.testing.share_member import ShareMember
from kordon.testing.waiting import SECONDS, until, wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(SHARE_GROUPS.is_missing, reason=SHARE_GROUPS.reason),
]

KEYS, RECORDS = 7, 120
TERMS, EXPIRED = Terms(600.0), Terms(0.0)
PLACE = PlaceKey(f"sharers-{uuid4().hex}", UUID(int=3), 4)


@pytest.fixture(name="worker")
def _worker(
    new_worker: Callable[[], Awaitable[Brokers]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Awaitable[ShareGroups]]:
    """Returns what makes a worker of a name on a log of the test's own, however slow the machine is."""
    monkeypatch.setattr(share_partition, "MARGIN_SECONDS", 0.0)
    monkeypatch.setattr(share_partition, "SEND_WITHIN_SECONDS", 600.0)
    for module, name in ((logs_of_groups, "LOAD"), (share_groups, "LOAD"), (followed_log, "READ")):
        monkeypatch.setattr(module, f"{name}_SECONDS", SECONDS)
    topic = f"share-log-{uuid4().hex}"

    async def make(name: str) -> ShareGroups:
        return ShareGroups(await new_worker(), name, topic=topic)

    return make


def join(cluster: Cluster) -> None:
    """Has the group's first member join it at the broker."""
    wanted = {"key": PLACE.group_id, "key_type": 0}
    with ShareMember(cluster.bootstrap(), PLACE.group_id) as member:
        ask = member.connection.ask
        wait_until("it has a coordinator", lambda: not ask(apis.FIND_COORDINATOR, 2, wanted).error_code)
        wait_until("it has a member", lambda: not member.beat(["none"]).error_code)


async def served(groups: ShareGroups) -> SharePartition:
    return (await groups.of_group(PLACE.group_id)).partition(PLACE)


def look(partition: SharePartition) -> None:
    """Has it look at all records; each third offset has none."""
    begin, _ = partition.ahead()
    every = (WindowRecord(each, each % KEYS) for each in range(RECORDS) if each % 3)
    partition.look(begin, RECORDS, [each for each in every if each.offset >= begin])


async def give(partition: SharePartition, session: str, most: int, terms: Terms = TERMS) -> list[GivenRecord]:
    look(partition)
    return list((await partition.acquire(Wish(session, most), terms)).records)


async def accept(partition: SharePartition, session: str, offset: int) -> Code:
    batch = AcknowledgementBatch(offset, offset, (ShareAcknowledgeType.ACCEPT,))
    return await partition.acknowledge(session, [batch], TERMS)


async def test_workers_share_a_group_and_go_on_for_each_other(
    worker: Callable[[str], Awaitable[ShareGroups]],
) -> None:
    """Each record is given once and each key in order, also where a worker dies; one that comes later knows all."""
    groups = [await worker("one"), await worker("other")]
    partitions = [await served(each) for each in groups]
    await asyncio.gather(*(each.begin(0) for each in partitions))
    assert partitions[0].state.incarnation == partitions[1].state.incarnation
    given: list[int] = []

    async def work(partition: SharePartition, session: str, rounds: int) -> None:
        for _ in range(rounds):
            for each in await give(partition, session, most=3):
                assert not [
                    other for other in range(each.offset % KEYS, each.offset, KEYS) if other % 3 and other not in given
                ]
                given.append(each.offset)
                assert await accept(partition, session, each.offset) is Code.NONE

    await asyncio.gather(*(work(each, name, 8) for each, name in zip(partitions, "ab", strict=True)))
    assert set(Counter(given).values()) == {1}
    left_over = await give(partitions[0], "a", most=1)
    await groups[0].close()
    third = await worker("third")
    groups += [third]
    late = await served(third)
    await until("they know the same", lambda: late.progress() == partitions[1].progress())
    assert await accept(late, "a", left_over[0].offset) is Code.NONE, "a member may go on at any worker"
    given.append(left_over[0].offset)
    left_over = await give(late, "dead", most=1)
    again = await until("its lock is read", lambda: give(partitions[1], "b", most=1, terms=EXPIRED))
    assert [(each.offset, each.tries) for each in again] == [(left_over[0].offset, 2)]
    assert await accept(late, "dead", again[0].offset) is Code.INVALID_RECORD_STATE
    given.append(again[0].offset)
    assert await accept(partitions[1], "b", again[0].offset) is Code.NONE
    while partitions[1].progress().stable < RECORDS:
        await asyncio.gather(work(partitions[1], "b", 4), work(late, "c", 4))
    assert sorted(given) == [each for each in range(RECORDS) if each % 3]
    await until("they know the same", lambda: late.progress() == ShareProgress(RECORDS, 0))
    await until("nothing is in hand", lambda: groups[1].held().in_hand == 0)
    assert (groups[1].counts().lost, third.counts().unreadable) == (0, 0)
    for each in groups[1:]:
        await each.close()


async def test_a_log_that_was_deleted_is_made_anew(
    worker: Callable[[str], Awaitable[ShareGroups]], brokers: Brokers, cluster: Cluster
) -> None:
    """It is counted as lost, and a group that there was begins at its earliest record (OLD-GROUP)."""
    groups = await worker("one")
    partition = await served(groups)
    assert not (await groups.of_group(PLACE.group_id)).opening.begins_at_earliest(PLACE.group_id)
    await asyncio.to_thread(join, cluster)
    await partition.begin(5)
    assert partition.progress() == ShareProgress(5, 0)
    await TopicsAdmin(brokers).delete_topic(groups.topic)
    await until("it is known", lambda: groups.counts().lost == 1)

    async def is_open() -> bool:
        with suppress(UpstreamUnavailable):
            return not (await served(groups)).has_begun
        return False

    await until("it is made anew", is_open)
    assert (await groups.of_group(PLACE.group_id)).opening.begins_at_earliest(PLACE.group_id)
    assert await (await served(groups)).begin(7)
    await groups.close()
