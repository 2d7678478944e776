"""One partition of one Fetch request, as its client knows it: carried on until the answer goes, then answered.

begin ──> carry_on ──(something is missing)──> waits_for ──> carry_on … ──> answer
^           │
└─(another layout is in force)
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

from kordon.codecs.bodies import FetchResponsePartition
from kordon.codecs.error_codes import Code
from kordon.proxy.decisions.events import Given
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.epochs import split_epoch, virtual_epoch
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import place_in
from kordon.proxy.reads.fetch_rows import IDS_SINCE, AskedPartition, empty_row
from kordon.proxy.reads.gated_fetching import PartitionGate
from kordon.proxy.reads.stay_read import StayRead
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic

_RETRY_SECONDS: Final = 0.1
_RETRIED: Final = frozenset(
    {
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REPLICA_NOT_AVAILABLE,
        Code.KAFKA_STORAGE_ERROR,
        Code.OFFSET_NOT_AVAILABLE,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What a broker may say otherwise in a moment."""


class PartitionFetch:
    """The part of one request for one partition."""

    def __init__(
        self,
        reads: WorkerReads,
        asked: AskedPartition,
        version: int,
        gate: PartitionGate | None = None,
        *,
        is_committed: bool = False,
    ) -> None:
        self.topic = asked.topic
        self.stream = asked.stream
        self._number, self._believed_epoch, self.offset, self._room_bytes = asked.row
        self._empty_until = asked.empty_until
        self.waits_for: asyncio.Task[int | None] | None = None
        """What brings more, if anything may."""
        self.gate = gate
        """May hold the partition; None: nothing does."""
        self._reads = reads
        self._is_committed = is_committed
        self._error = 0
        self._trouble = 0
        """What a broker said last, if it may say otherwise in a moment."""
        self._layout: Layout | None = None
        """Under which it was looked up last."""
        self._read: StayRead | None = None
        if asked.topic is None:
            self._error = Code.UNKNOWN_TOPIC_ID if version >= IDS_SINCE else Code.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def size_bytes(self) -> int:
        """Bytes of what it has taken."""
        return self._read.taken.size_bytes if self._read is not None else 0

    @property
    def is_ready(self) -> bool:
        """Whether the answer should not wait: there is an error, or the client must be moved on."""
        if self._error or self._known.is_let_go:
            return True
        return self._read is not None and self._read.is_moved

    @property
    def is_unsure(self) -> bool:
        """Whether the end that the client is to be told is not known yet, and may be in a moment."""
        return self._knows_no_end or (self._read is not None and not self._error and self._read.is_unsure)

    @property
    def _knows_no_end(self) -> bool:
        return self._read is not None and not self._error and self._read.home_log.high_watermark is None

    @property
    def is_blocked(self) -> bool:
        """Whether nothing more is shown before the topic's fence or layout, or the group, has changed."""
        return self._read is not None and (self._read.is_blocked or self._is_held)

    @property
    def is_behind(self) -> bool:
        """Whether a broker that had the partition's log would have something to look at."""
        read = self._read
        if read is None or self._error or self._trouble or self.is_blocked:
            return False
        return read.is_behind

    @property
    def given(self) -> Given | None:
        """What its answer gives, once that is made; None: nothing."""
        return self._read.given if self._read is not None else None

    @property
    def _known(self) -> ManagedTopic:
        assert self.topic is not None  # or else there is an error
        return self.topic

    @property
    def _is_held(self) -> bool:
        return self.gate is not None and self.gate.is_held

    def carry_on(self, room_bytes: int) -> None:
        """Takes what is here, and says what is to be waited for.

        Args:
            room_bytes: The bytes that are left in the whole answer. If there are none, nothing more is taken.
        """
        done, self.waits_for = self.waits_for, None
        if self._error:
            return
        if self._known.is_let_go:
            self._read = None
            return
        if self._layout is not self._known.layout:
            self._begin(self._known)
        elif done is not None and not done.done():
            self.waits_for = done
            return
        elif done is not None and not done.cancelled():
            self._hear(done.result())
        read = self._read
        if self._error or read is None or self.waits_for is not None:
            return
        self.waits_for = read.learn_end(is_idle=self._is_held)
        if self.waits_for is None and not read.is_read_out:
            self._take(read, room_bytes)

    def answer(self, is_late: bool) -> FetchResponsePartition:
        """Makes the partition's row of the response.

        Args:
            is_late: Whether the client has waited long enough to be moved over what is not its own (STEP-OVER).
        """
        read = self._read
        if self._error or read is None or self._layout is not self._known.layout:
            return empty_row(self._number, self.offset, self._error)
        if self._knows_no_end or (self._trouble and not read.has_something):
            return empty_row(self._number, self.offset, Code.NOT_LEADER_OR_FOLLOWER)
        return read.answer(self._number, is_late=is_late)

    def _begin(self, topic: ManagedTopic) -> None:
        """Looks the partition up under the layout in force."""
        layout = self._layout = topic.layout
        self._read, self._error = None, self._refusal(topic, layout)
        empty_until, self._empty_until = self._empty_until, 0  # it is so under the layout that is first looked at
        if self._error or layout.withholds(self.stream):  # written, but not delivered yet (TAKEOVER-WAITS)
            return
        place = place_in(layout, self.stream, self.offset)
        if place is None:
            self.waits_for = self._start(self._out_of_range(), "check that an offset is out of range")
        else:
            self._read = StayRead(self._reads, topic, self.stream, place, self.offset, is_committed=self._is_committed)
            if place.is_home:
                self._read.empty_until = empty_until

    def _refusal(self, topic: ManagedTopic, layout: Layout) -> int:
        """Returns why a client that believes what its row says gets nothing under a layout; 0: it may get something."""
        if self.gate is not None:
            self.gate.release()
            if error := self.gate.refusal(layout):
                return error
        if self._number < 0 or not layout.knows(self.stream):
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        return epoch_error(self._reads, topic, layout.chain(self.stream).stays[-1], self._believed_epoch)

    def _take(self, read: StayRead, room_bytes: int) -> None:
        """Takes what is here, if no gate holds it."""
        if self.gate is not None and self.gate.judge(read.stay, read.taken.position):
            self.waits_for = self.gate.learning
        else:
            self.waits_for = read.take(room_bytes, self._room_bytes)

    def _hear(self, code: int | None) -> None:
        """Takes in how it went with what was waited for; None: with nothing special."""
        if code is None or self._read is None:
            return
        self._trouble = 0
        if code == Code.NONE:
            return
        if code == Code.OFFSET_OUT_OF_RANGE:
            self.waits_for = self._start(self._mend(self._read), "look for the log's ends")
        elif code in _RETRIED:
            self._trouble = code
            self.waits_for = self._start(asyncio.sleep(_RETRY_SECONDS), "wait for a leader")
        else:
            self._error = code

    def _start(self, work: Coroutine[None, None, int | None], name: str) -> asyncio.Task[int | None]:
        return self._reads.tasks.start(work, name=name)

    async def _mend(self, read: StayRead) -> int:
        """Passes over what the physical log does not have any more, or finds that the offset lies beyond its end."""
        bounds = await read.log_bounds()
        if bounds is None:
            return Code.NOT_LEADER_OR_FOLLOWER
        if read is self._read and not read.mend(*bounds):  # or else another layout came in between
            await self._out_of_range()
        return Code.NONE

    async def _out_of_range(self) -> None:
        """Says that the offset is out of range, if that is so under all layouts there are (NO-FALSE-END)."""
        assert self._layout is not None
        self._error = await self._reads.limits.judge_beyond(self._known, self._layout)


def epoch_error(reads: WorkerReads, topic: ManagedTopic, home: Stay, believed_epoch: int) -> int:
    """Compares the leader epoch in which a client believes with the present one (KIP-320, RISING-EPOCH)."""
    if believed_epoch < 0:
        return Code.NONE
    believed = split_epoch(believed_epoch)
    known = reads.ends.leader_epoch(topic.name, home.partition)
    epoch = split_epoch(virtual_epoch(home.move, known))[1] if known >= 0 else believed[1]
    if believed == (home.move, epoch):
        return Code.NONE
    return Code.FENCED_LEADER_EPOCH if believed < (home.move, epoch) else Code.UNKNOWN_LEADER_EPOCH
