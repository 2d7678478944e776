"""What members of a group have left open behind what they have done, read from `__kordon.individual_commits`.

It asks brokers, and writes nothing: neither to the log nor in the group's name. So a reset is seen here only when a
member has asked again, since it is found by that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kordon.codecs import consumer_protocol
from kordon.codecs.bodies import DescribeGroupsRequest, MetadataRequest
from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.messages import describe_groups, metadata
from kordon.codecs.ranges import Range
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import Record
from kordon.proxy.kafka.brokers import Brokers, CoordinatorKind
from kordon.proxy.kafka.ends import PartitionEnds
from kordon.proxy.kafka.internal_topic_log import InternalTopicLog
from kordon.proxy.ordering.claims import Place, PlaceKey
from kordon.proxy.own_topics.claims_log import ClaimsLog, key_with
from kordon.proxy.own_topics.compacted_topic import INDIVIDUAL_COMMITS
from kordon.proxy.own_topics.logs_of_groups import partition_of
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.topics.managed_topics import topic_of_face

_READ_SECONDS: Final = 30.0
_METADATA_VERSIONS: Final = range(10, 13)
_DESCRIBE_VERSIONS: Final = range(6)


class NoClaims(Exception):  # noqa: N818  a state of the world, not a fault of the program
    """Raised when the log says nothing of a group; the message says what to look at."""


@dataclass(frozen=True, slots=True)
class PartitionHolder:
    """A member that has a partition now."""

    member_id: str
    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class OpenRanges:
    """What is open of a partition."""

    topic: str
    """Its id, if there is no such topic now."""
    partition: int
    stable: int
    """Everything before it is done; the first open range begins there."""
    open: tuple[Range, ...]
    """The open offsets, as ranges [begin, end) with done offsets behind them."""
    done: int
    """How many offsets are done behind the first gap."""
    since_ms: int
    """Since when the first open range has begun where it does."""
    holder: PartitionHolder | None
    """None: nobody has it, or it is not known."""


async def open_ranges(brokers: Brokers, group_id: str) -> list[OpenRanges]:
    """Returns what a group has open, the oldest first.

    Raises:
        NoClaims: No member of the group has committed offset by offset.
        UpstreamUnavailable: Brokers do not answer, or refuse.
    """
    found = (await brokers.metadata([INDIVIDUAL_COMMITS.name])).topics[0]
    if found.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        raise NoClaims(
            f"there is no {INDIVIDUAL_COMMITS.name}: no proxy has taken commits of single offsets here. Set "
            "ordering.individual_commits, and let members commit through Kordon"
        )
    if found.error_code:
        raise UpstreamUnavailable(f"{INDIVIDUAL_COMMITS.name} cannot be read: code {found.error_code}. Give the right")
    claims = await _read(brokers, partition_of(group_id, len(found.partitions)))
    places = [(key, claims.of(key)) for key, _ in claims.claims if key.group_id == group_id]
    places = [(key, place) for key, place in places if place.incarnation]
    if not places:
        raise NoClaims(
            f"nothing is known of group {group_id}: no member has committed single offsets in the last six days. Check "
            "the name, and whether its members' proxies have ordering.individual_commits"
        )
    names, holders = await _names(brokers), await _holders(brokers, group_id)
    rows = [_row(key, place, claims, names, holders) for key, place in places if place.done.ranges]
    return sorted(rows, key=lambda row: (row.since_ms, row.topic, row.partition))


async def _read(brokers: Brokers, partition: int) -> ClaimsLog:
    """Reads one partition of the log to where it ends now."""
    end = (await PartitionEnds(brokers).ends_of(INDIVIDUAL_COMMITS.name, [partition]))[partition].high_watermark
    claims = ClaimsLog(brokers, INDIVIDUAL_COMMITS, partition, key_with("reader"))
    log = InternalTopicLog(brokers, INDIVIDUAL_COMMITS.name, "group_gaps", partition=partition)

    def take_in(record: Record) -> None:
        with suppress(ValueError):  # what no version of Kordon writes says nothing
            claims.take_in(record)

    reading = asyncio.ensure_future(log.follow(take_in))
    try:
        async with asyncio.timeout(_READ_SECONDS):
            if end:
                await log.reached(end - 1)
    except TimeoutError:
        raise UpstreamUnavailable(f"{INDIVIDUAL_COMMITS.name} was not read within {_READ_SECONDS:g} s") from None
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        log.close()
    return claims


def _row(
    key: PlaceKey,
    place: Place,
    claims: ClaimsLog,
    names: dict[UUID, str],
    holders: dict[tuple[str, int], PartitionHolder],
) -> OpenRanges:
    name = names.get(key.topic_id, str(key.topic_id))
    gap = claims.gaps.get(key)
    return OpenRanges(
        topic=name,
        partition=key.partition,
        stable=place.done.stable,
        open=tuple(_between(place)),
        done=sum(end - begin for begin, end in place.done.ranges),
        since_ms=gap.since_ms if gap is not None else now_ms(),
        holder=holders.get((name, key.partition)),
    )


def _between(place: Place) -> Iterator[Range]:
    at = max(place.done.stable, 0)
    for begin, end in place.done.ranges:
        yield at, begin
        at = end


async def _names(brokers: Brokers) -> dict[UUID, str]:
    """Returns the names of topics as clients know them, by id."""
    answer = await brokers.ask_any(metadata.API, _METADATA_VERSIONS, MetadataRequest(topics=None))
    rows = [(UUID(int=row.topic_id.int), row.name or "") for row in answer.topics if not row.error_code]
    return {topic_id: topic_of_face(name) or name for topic_id, name in rows}


async def _holders(brokers: Brokers, group_id: str) -> dict[tuple[str, int], PartitionHolder]:
    """Returns who has which partition, as far as the coordinator tells it."""
    with suppress(UpstreamUnavailable):
        client = await brokers.coordinator(CoordinatorKind.GROUP, group_id, "group_gaps")
        version = client.version(describe_groups.API.key, _DESCRIBE_VERSIONS)
        answer = await client.ask(describe_groups.API, version, DescribeGroupsRequest(groups=[group_id]))
        found: dict[tuple[str, int], PartitionHolder] = {}
        for member in answer.groups[0].members:
            holder = PartitionHolder(member.member_id, member.client_id, member.client_host.removeprefix("/"))
            with suppress(WireError):
                told = consumer_protocol.parse_versioned(consumer_protocol.ASSIGNMENT, member.member_assignment).value
                found |= {
                    (topic_of_face(row.topic) or row.topic, partition): holder
                    for row in told.assigned_partitions
                    for partition in row.partitions
                }
        return found
    return {}
