"""The lag of groups on managed topics, looked at now and then by one worker of the cluster.

That is the one which leads: a group's members may commit through any worker, so only coordinators know where it stands,
and who adds series up must not find one twice. Nothing is done where requests are served.

A look costs what it asks for: of a cluster with very many groups only some are asked for each time, those with commits
on managed topics first. What was told of the others stays until their turn comes, compared with the present ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import structlog

from kordon.codecs.bodies import OffsetFetchResponseGroup
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.handlers.offset_fetch import merged
from kordon.proxy.handlers.offset_fetch_rows import Commit
from kordon.proxy.kafka.group_offsets import GroupOffsets, ListedGroup
from kordon.proxy.ordering.lags import LagKey, bounded, end_of, home_of, shown
from kordon.proxy.ordering.lookups import LATEST
from kordon.proxy.ordering.streams import Stream, is_physical, physical_stream
from kordon.proxy.topics.managed_topics import face_of

if TYPE_CHECKING:
    from kordon.proxy.handlers.caught_up import CaughtUp
    from kordon.proxy.reads.worker_reads import WorkerReads
    from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

log = structlog.get_logger(__name__)

Commits = Mapping[str, Mapping[Stream, int]]
"""Of one group: by topic and stream."""
GROUPS_A_LOOK: Final = 200
"""Of these a quarter are groups of which no commits on managed topics are known."""
_NEW_SECONDS: Final = 1.0
"""Most time to find out, for one topic, that groups which have not committed the end have nothing left to read."""


class GroupLags:
    """The lags that one worker knows.

    Args:
        reads: The worker's reads, which know where partitions end.
        caught_up: The part that tells which groups have nothing left to read.
        leads: Returns whether this worker is the one that looks.
        seconds: The seconds between two looks; 0: nobody looks.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        groups: GroupOffsets,
        reads: WorkerReads,
        caught_up: CaughtUp,
        *,
        leads: Callable[[], bool],
        seconds: float,
        most: int,
    ) -> None:
        self.told: Mapping[LagKey, int] = {}
        """The lags in offsets, by place, at the last look. Replaced as a whole; empty where another worker looks."""
        self._topics = topics
        self._groups = groups
        self._reads = reads
        self._caught_up = caught_up
        self._leads = leads
        self._seconds = seconds
        self._most = most
        self._commits: dict[str, Commits] = {}
        """The commits by group, of groups that have any."""
        self._asked: dict[str, int] = {}
        """By group, the look at which it was asked for last."""
        self._own: set[tuple[str, str]] = set()
        self._read_to: dict[tuple[str, str, Stream], tuple[int, int]] = {}
        """By topic, group and stream: a commit, and up to where nothing was left to read behind it at the last look."""
        self._looks = 0
        self._fails = False

    async def run(self) -> None:
        """Looks at the lags until it is cancelled."""
        while self._seconds:
            await asyncio.sleep(self._seconds)
            if self._leads() and self._reads.limits.may_serve() and len(self._topics):
                await self._try_to_look()
            else:
                self._forget()

    def _forget(self) -> None:
        self.told, self._commits, self._asked, self._read_to = {}, {}, {}, {}

    async def _try_to_look(self) -> None:
        try:
            await self.look()
        except UpstreamUnavailable as error:
            if not self._fails:
                log.warning("lags_unknown", error=str(error))
            self._fails = True
            self.told = {}
        else:
            self._fails = False

    async def look(self) -> None:
        """Looks at the lags once.

        Raises:
            UpstreamUnavailable: A broker does not answer, or cannot be asked for several groups at once.
        """
        self._looks += 1
        due = self._due(await self._groups.groups())
        for row in await self._groups.all_committed(due):
            self._take(row)
        lags: dict[LagKey, int] = {}
        self._read_to = {key: each for key, each in self._read_to.items() if key[1] in self._commits}
        for topic in list(self._topics):
            lags |= await self._of(topic)
        self.told, self._own = bounded(lags, self._most, self._own)

    def _due(self, groups: Iterable[ListedGroup]) -> list[ListedGroup]:
        """Returns whom to ask for now; those that are gone are forgotten."""
        by_name = {group.name: group for group in groups}
        self._commits = {name: each for name, each in self._commits.items() if name in by_name}
        self._asked = {name: look for name, look in self._asked.items() if name in by_name}
        oldest = sorted(by_name, key=lambda name: (self._asked.get(name, 0), name))
        known = [name for name in oldest if name in self._commits]
        others = [name for name in oldest if name not in self._commits]
        for_known = max(GROUPS_A_LOOK - len(others), 3 * GROUPS_A_LOOK // 4)
        chosen = known[:for_known]
        chosen += others[: GROUPS_A_LOOK - len(chosen)]
        self._asked |= dict.fromkeys(chosen, self._looks)
        return [by_name[name] for name in chosen]

    def _take(self, row: OffsetFetchResponseGroup) -> None:
        """Takes in what a coordinator says of one group."""
        if row.error_code != Code.NONE:
            return  # is just being moved, say: what it said before holds for now
        commits = commits_of(row, self._topics)
        if commits:
            self._commits[row.group_id] = commits
        else:
            self._commits.pop(row.group_id, None)

    async def _of(self, topic: ManagedTopic) -> dict[LagKey, int]:
        """Returns the lags of all groups on a topic; those of before where its layout changes meanwhile."""
        layout = topic.layout
        groups = {name: each[topic.name] for name, each in self._commits.items() if topic.name in each}
        streams = {stream for each in groups.values() for stream in each}
        homes = {stream: home for stream in streams if (home := home_of(layout, stream)) is not None}
        if not homes:
            return {}
        ends = await self._reads.ends.of(topic.name, {home.partition for home in homes.values()}, LATEST)
        limits = {q: self._reads.limits.of(topic, q) for q in ends}
        told = {
            stream: end_of(layout, stream, ends[home.partition], limits[home.partition])
            for stream, home in homes.items()
            if home.partition in ends
        }
        behind = {
            (name, stream): offset for name, each in groups.items() for stream, offset in each.items() if stream in told
        }
        read = await self._read(topic, behind, told, ends)
        if topic.layout is not layout:
            return {place: lag for place, lag in self.told.items() if place.topic == topic.name}
        return {
            LagKey(topic.name, name, shown(stream)): 0 if (name, stream) in read else max(told[stream] - offset, 0)
            for (name, stream), offset in behind.items()
        }

    async def _read(
        self,
        topic: ManagedTopic,
        behind: Mapping[tuple[str, Stream], int],
        told: Mapping[Stream, int],
        ends: Mapping[int, int],
    ) -> set[tuple[str, Stream]]:
        """Returns who has nothing left to read though the end is not committed (OWN-END), as far as is soon known."""
        read: set[tuple[str, Stream]] = set()

        async def see(key: tuple[str, Stream], commit: int) -> None:
            place = (topic.name, *key)
            known_commit, read_to = self._read_to.get(place, (commit, commit))
            is_known = known_commit == commit and read_to <= told[key[1]]
            end = await self._caught_up.end_if_read(topic, key[1], read_to if is_known else commit, ends)
            if end is not None:
                self._read_to[place] = (commit, end)
                read.add(key)

        unsure = {key: each for key, each in behind.items() if not is_physical(key[1]) and each < told[key[1]]}
        try:
            async with asyncio.timeout(_NEW_SECONDS):
                await asyncio.gather(*(see(key, offset) for key, offset in unsure.items()))
        except TimeoutError:
            pass  # what is not known by then is a lag, as it was committed
        return read


def commits_of(row: OffsetFetchResponseGroup, topics: ManagedTopics) -> dict[str, dict[Stream, int]]:
    """Returns what a group has committed on managed topics, by topic and stream.

    A group without commits on a topic's face has read the physical partitions as such: its members use the SDK, or it
    has committed nothing since the topic was taken over, when the virtual partitions were those.

    Args:
        row: The group's row in an answer of its coordinator that names topics. Its contents may be changed.
    """
    told = {each.name: _offsets(each.partitions) for each in row.topics}
    of_clients = {each.name: each.partitions for each in merged(row.topics, topics)}
    found: dict[str, dict[Stream, int]] = {}
    for topic in topics:
        if told.get(face_of(topic.name)):
            found[topic.name] = _offsets(of_clients[topic.name])
        elif told.get(topic.name):
            found[topic.name] = {physical_stream(q): offset for q, offset in told[topic.name].items()}
    return found


def _offsets(rows: Iterable[Commit]) -> dict[int, int]:
    known = (each for each in rows if each.error_code == Code.NONE and each.committed_offset >= 0)
    return {each.partition_index: each.committed_offset for each in known}
