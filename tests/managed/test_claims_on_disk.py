"""How large the log of claims is on a broker's disk, once its closed segments are compacted."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from kordon.client.cooperative.entry import RecordInHand
from kordon.client.cooperative.in_hand import HandLimits, InHand
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.ordering.claims import Done, PlaceKey, Start
from kordon.proxy.own_topics import logs_of_groups
from kordon.proxy.own_topics.compacted_topic import INDIVIDUAL_COMMITS
from kordon.proxy.own_topics.individual_commits import IndividualCommits
from kordon.proxy.runtime.clock import now_ms
from kordon.testing.cluster import Cluster
from kordon.testing.waiting import wait_until

# pyright: reportPrivateUsage=false

pytestmark = [pytest.mark.broker, pytest.mark.deep, pytest.mark.timeout(3_000)]

GROUP, LIFE = "readers", 5
COMMITS = 3_600
"""Of each partition: an hour of a member that commits once a second. What is written depends on their number alone."""
PARTITIONS = 3
IN_HAND, ACKNOWLEDGED = 20_000, 500
"""Records that a member has in hand of a partition, and those that it acknowledges at random between two commits."""
MOST_BYTES = 10_000_000
SEGMENTS_SECONDS = 300


def commits_of(seed: int) -> Iterator[Done]:
    """What a member says at each commit; it keeps some ten thousand ranges."""
    chance, hand = Random(seed), InHand[int, None]("key", HandLimits(IN_HAND, IN_HAND, IN_HAND))
    hand.assign(0, 0)
    position = 0
    running: list[RecordInHand[int, None]] = []
    for _ in range(COMMITS):
        room = IN_HAND - len(running)
        hand.take(0, [(at, b"%d" % at, 1, None) for at in range(position, position + room)], position + room)
        position += room
        running += iter(lambda: hand.start(0.0), None)
        for _ in range(ACKNOWLEDGED):
            drawn = chance.randrange(len(running))
            running[drawn], running[-1] = running[-1], running[drawn]
            hand.finish(running.pop())
        told = hand.progress(0)
        yield Done(told.stable, told.ranges)


async def write_an_hour(writer: IndividualCommits) -> dict[PlaceKey, Done]:
    """Has it written as a proxy does, commit by commit; returns what is done in the end."""
    places = [PlaceKey(GROUP, UUID(int=9), partition) for partition in range(PARTITIONS)]
    log = await writer.of_group(GROUP)
    await log.write([(place, Start(LIFE, 0, Done(0))) for place in places], log.read_to)
    last: dict[PlaceKey, Done] = {}
    for told in zip(*(commits_of(place.partition) for place in places), strict=True):
        read_to, last = log.read_to, dict(zip(places, told, strict=True))
        made = [(place, log.of(place).to_write(LIFE, done, now_ms())) for place, done in last.items()]
        await log.write([(place, said) for place, said in made if said is not None], read_to)
    return last


def segments(data: Path, partition: int) -> dict[int, int]:
    """The sizes of a partition's segments, by their first offsets."""
    found = (data / f"{INDIVIDUAL_COMMITS.name}-{partition}").glob("*.log")
    return {int(file.stem): file.stat().st_size for file in sorted(found)}


def cleaned_to(data: Path, partition: int) -> int:
    """Up to which offset the broker has compacted a partition."""
    rows = (line.split() for line in (data / "cleaner-offset-checkpoint").read_text().splitlines())
    return next((int(row[2]) for row in rows if row[:2] == [INDIVIDUAL_COMMITS.name, str(partition)]), 0)


async def test_an_hour_of_commits_is_small_once_it_is_compacted(
    compacting_cluster: Cluster,
    worker_of: Callable[[Cluster], Awaitable[Brokers]],
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Active segments apart; and whoever begins to read then comes to the same."""
    monkeypatch.setattr(logs_of_groups, "LOAD_SECONDS", 120.0)
    writer = IndividualCommits(await worker_of(compacting_cluster), "w")
    told = await write_an_hour(writer)
    partition = (await writer.of_group(GROUP)).log._partition
    data = compacting_cluster.brokers[0].log_file.parent / "data"
    written = segments(data, partition)
    assert len(written) > 1, "no segment is closed, so nothing is compacted"
    active = max(written)
    wait_until("it is compacted", lambda: cleaned_to(data, partition) >= active, SEGMENTS_SECONDS)
    closed = {first: size for first, size in segments(data, partition).items() if first < active}
    record_property("bytes of segments, written and compacted", (written, closed))
    assert sum(closed.values()) <= MOST_BYTES
    await writer.close()
    reader = IndividualCommits(await worker_of(compacting_cluster), "r")
    again = await reader.of_group(GROUP)
    assert {place: again.of(place).done for place in told} == told
    await reader.close()
