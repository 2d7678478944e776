"""One partition in one Fetch request, as its client knows it: carried on until the answer goes, then answered.

    begin ──> carry_on ──(something is missing)──> waits_for ──> carry_on … ──> answer
      ^           │
      └─(another layout is in force)

A portion stays within one stay of its chain (RISING-EPOCH). What it has taken is a list of views of a worker's chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from kordon.codecs.error_codes import Code
from kordon.codecs.primitives import Pieces
from kordon.codecs.split import MOST_FILLED, filler
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.epochs import split_epoch, virtual_epoch
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import ReadingPlace, first_readable, position_beyond, reading_place
from kordon.proxy.ordering.streams import Stream, is_physical
from kordon.proxy.reads.chunks import PassedRange, ReadTally
from kordon.proxy.reads.logs import PartitionLog, ReadSoFar
from kordon.proxy.reads.read_decisions import Given
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopic

log = client_log(__name__)

LATEST: Final = -1
EARLIEST: Final = -2
_IDS_SINCE: Final = 13
"""The first version of Fetch that names topics by their ids."""
_FOR_EVER: Final = 2**63 - 1
_RETRY_SECONDS: Final = 0.1
_SMALL_BYTES: Final = 8 * 1024
"""Batches of fewer bytes are put together before they are sent: many pieces cost more than their copy."""
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


class Request(NamedTuple):
    """What a request says of all its partitions."""

    max_wait_seconds: float
    min_bytes: int
    max_bytes: int


class PortionReaders(Protocol):
    """What a portion needs of the worker's readers."""

    tally: ReadTally

    def log_of(self, topic: ManagedTopic, log: int) -> PartitionLog:
        """Returns what is kept of a physical partition under the layout in force; `log` is by `log_read_by`."""
        ...

    def limit_of(self, topic: ManagedTopic, partition: int) -> int | None:
        """Returns the offset from which on nothing of a physical partition is shown now."""
        ...

    def epoch_known(self, topic: str, partition: int) -> int:
        """Returns the leader epoch of a physical partition, -1 where it is not known."""
        ...

    def start(self, work: Any, name: str) -> asyncio.Task[Any]:
        """Runs something that a portion waits for."""
        ...

    async def ends_of(self, topic: str, partitions: tuple[int, ...], timestamp: int) -> Mapping[int, int]:
        """Asks leaders where physical partitions begin (-2) or end (-1)."""
        ...

    async def settle_layouts(self) -> bool:
        """Takes in all layouts there are (NO-FALSE-END); False: they cannot be had now."""
        ...


class Portion:
    """What one request gets of one partition.

    Args:
        worker: The worker's readers.
        topic: None: nobody knows it any more.
        row: Of the request.
        version: Of the request.
        stream: What the row names.
    """

    def __init__(
        self, worker: PortionReaders, topic: ManagedTopic | None, row: Any, version: int, stream: Stream
    ) -> None:
        self.topic = topic
        self.stream = stream
        self._number: int = row.partition
        self.offset: int = row.fetch_offset
        self.waits_for: asyncio.Task[Any] | None = None
        """What brings more, if anything may."""
        self.is_blocked = False
        """Whether nothing more is shown before the fence ends."""
        self._worker = worker
        self._room_bytes: int = row.partition_max_bytes
        self._believed_epoch: int = row.get("current_leader_epoch", -1)
        self._error = 0
        self._trouble = 0
        """What a broker said last, if it may say otherwise in a moment."""
        self._layout: Layout | None = None
        self._place: ReadingPlace | None = None
        self._taken = ReadSoFar(0)
        self._holes: list[tuple[int, int]] = []
        """Offsets [from, to) of the physical partition that are gone."""
        self._passed: list[PassedRange] = []
        self._after = self.offset
        """Where the client stands behind the answer."""
        if topic is None:
            self._error = Code.UNKNOWN_TOPIC_ID if version >= _IDS_SINCE else Code.UNKNOWN_TOPIC_OR_PARTITION
        elif self._number < 0 or not topic.layout.knows(stream):
            self._error = Code.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def size_bytes(self) -> int:
        """Bytes of what it has taken."""
        return self._taken.size_bytes

    @property
    def is_ready(self) -> bool:
        """Whether the answer should not wait: there is an error, or the client must be moved on."""
        return bool(self._error) or bool(self._holes) or self._is_through or self._known.is_let_go

    @property
    def is_unsure(self) -> bool:
        """Whether the end that the client is to be told is not known yet, and may be in a moment."""
        return self._place is not None and not self._error and self._home_log.high_watermark is None

    @property
    def is_behind(self) -> bool:
        """Whether a broker that had the virtual partition's log would have something to look at."""
        if self._place is None or self._error or self._trouble or self.is_blocked:
            return False
        mark = self._log.high_watermark
        return self._place.stay.end is not None or mark is None or self._taken.position < mark

    @property
    def _known(self) -> ManagedTopic:
        assert self.topic is not None  # or else there is an error
        return self.topic

    @property
    def _log(self) -> PartitionLog:
        assert self._place is not None
        return self._log_at(self._place.stay)

    @property
    def _home_log(self) -> PartitionLog:
        assert self._layout is not None
        return self._log_at(self._layout.chain(self.stream).stays[-1])

    def _log_at(self, stay: Stay) -> PartitionLog:
        return self._worker.log_of(self._known, log_read_by(self.stream, stay.partition))

    @property
    def _is_through(self) -> bool:
        """Whether all of a stay that is over has been looked at."""
        stay = self._place.stay if self._place is not None else None
        return stay is not None and stay.end is not None and self._taken.position >= stay.end

    def carry_on(self, room_bytes: int) -> None:
        """Takes what is here, and says what is to be waited for.

        Args:
            room_bytes: Left in the whole answer; none is left: nothing more is taken.
        """
        done, self.waits_for = self.waits_for, None
        if self._error:
            return
        if self._known.is_let_go:
            self._place = None
            return
        if self._layout is not self._known.layout:
            self._begin(self._known)
        elif done is not None and not done.done():
            self.waits_for = done
            return
        elif done is not None and not done.cancelled():
            self._hear(done.result())
        if self._error or self._place is None or self._is_withheld or self.waits_for is not None:
            return
        home = self._home_log
        if home.high_watermark is None or (self._rests_elsewhere and home.is_mark_old):
            learning = home.learn(self._home_end)
            if home.high_watermark is None:
                self.waits_for = learning
                return
        self._take(room_bytes)

    def answer(self, is_late: bool) -> dict[str, Any]:
        """Makes the partition's row of the response.

        Args:
            is_late: Whether the client has waited long enough to be moved over what is not its own (STEP-OVER).
        """
        if self._error or self._place is None or self._layout is not self._known.layout:
            return self._empty(self._error)
        if self._is_withheld:
            start = self._known.layout.chain(self.stream).start
            return told_row(self._number, start, start, Pieces())
        if self.is_unsure or (self._trouble and not self._taken.entries and not self._holes):
            return self._empty(Code.NOT_LEADER_OR_FOLLOWER)
        stay, taken = self._place.stay, self._taken
        pieces = Pieces(entry.data for entry in taken.entries)
        after = max(self.offset, taken.entries[-1].next_offset + stay.delta) if taken.entries else self.offset
        if taken.size_bytes < _SMALL_BYTES * len(pieces):
            pieces = Pieces([b"".join(pieces)])
        self._worker.tally.served_bytes += taken.size_bytes
        target = min(taken.position + stay.delta, after + MOST_FILLED)
        if target > after and self._may_fill(is_late):
            epoch = virtual_epoch(stay.move, -1 if self._holes else taken.leader_epoch)
            pieces.append(memoryview(filler(after, target, epoch)))
            self._worker.tally.fillers += 1
            after = target
        self._after = after
        return told_row(self._number, self._end(after), start_of(self._worker, self._known, self.stream), pieces)

    @property
    def given(self) -> Given | None:
        """What its answer gives, once that is made; None: nothing."""
        if self._after == self.offset or self._place is None or self._layout is None:
            return None
        stay, epoch = self._place.stay, self._layout.epoch
        size, entries = self._taken.size_bytes, self._taken.entries
        return Given(stay, epoch, self.offset, self._after, entries, size, self._holes, self._passed)

    @property
    def _rests_elsewhere(self) -> bool:
        """Whether its home's end is not heard of while it is read."""
        return self._place is not None and not self._place.is_home

    @property
    def _is_withheld(self) -> bool:
        """Whether it is written but not delivered yet (TAKEOVER-WAITS)."""
        return self._known.layout.withholds(self.stream)

    def _begin(self, topic: ManagedTopic) -> None:
        """Looks the partition up under the layout in force."""
        self._layout = topic.layout
        self._taken, self._holes, self._passed, self._place = ReadSoFar(0), [], [], None
        chain = self._layout.chain(self.stream)
        home = chain.stays[-1]
        self._error = epoch_error(self._worker, topic, home, self._believed_epoch)
        if self._error or self._is_withheld:
            return
        floor = (self._layout.floors or {}).get(self.stream, 0)
        self._place = reading_place(chain, self.offset, floor)
        if self._place is None:
            self.waits_for = self._worker.start(self._out_of_range(), name="check that an offset is out of range")
        else:
            self._taken = ReadSoFar(self._place.position)

    def _take(self, room_bytes: int) -> None:
        assert self._place is not None
        stay, taken = self._place.stay, self._taken
        kept = self._worker.limit_of(self._known, stay.partition) if stay.end is None else stay.kept_end
        limit = _FOR_EVER if kept is None else kept
        room = min(self._room_bytes, taken.size_bytes + room_bytes)
        if room_bytes > 0:
            before = taken.position
            self._log.take(self.stream, taken, limit, room)
            self._pass_over(self._log.passed_between(before, taken.position))
        if stay.end is not None and limit < stay.end and limit <= taken.position < stay.end:
            self._pass_hole(taken, stay.end)  # what the log lost when it got shorter (BEYOND-LOSS)
        self.is_blocked = stay.end is None and taken.position >= limit
        if self.is_blocked or self._is_through or room_bytes <= 0:
            return
        if taken.is_full or (taken.entries and taken.size_bytes >= room):
            self._log.read_ahead(taken.position)
        else:
            self.waits_for = self._log.coming(taken.position)

    def _hear(self, code: int | None) -> None:
        """Takes in how it went with what was waited for; None: with nothing special."""
        if code is None or self._place is None:
            return
        self._trouble = 0
        if code == Code.NONE:
            return
        if code == Code.OFFSET_OUT_OF_RANGE:
            self.waits_for = self._worker.start(self._mend(self._place, self._taken), name="look for the log's ends")
        elif code in _RETRIED:
            self._trouble = code
            self.waits_for = self._worker.start(asyncio.sleep(_RETRY_SECONDS), name="wait for a leader")
        else:
            self._error = code

    async def _home_end(self) -> int | None:
        """Asks where the home's log ends."""
        topic = self._known
        assert self._layout is not None
        q = self._layout.chain(self.stream).stays[-1].partition
        return (await self._worker.ends_of(topic.name, (q,), LATEST)).get(q)

    async def _mend(self, place: ReadingPlace, taken: ReadSoFar) -> int:
        """Passes over what the physical log does not have any more, or finds that the offset lies behind its end."""
        topic, q = self._known, place.stay.partition
        starts, ends = await asyncio.gather(
            self._worker.ends_of(topic.name, (q,), EARLIEST), self._worker.ends_of(topic.name, (q,), LATEST)
        )
        if q not in starts or q not in ends:
            return Code.NOT_LEADER_OR_FOLLOWER
        if taken is not self._taken:
            return Code.NONE  # another layout came in between
        if taken.position < starts[q]:
            self._log_at(place.stay).raise_log_start(starts[q])
        going_on = position_beyond(place.stay, taken.position, starts[q], ends[q])
        if going_on is None:
            await self._out_of_range()
        elif going_on != taken.position:
            self._pass_hole(taken, going_on)
        return Code.NONE

    def _pass_hole(self, taken: ReadSoFar, position: int) -> None:
        """Moves the client on over offsets that are gone (HOLE-PASSED)."""
        assert self._place is not None
        stay = self._place.stay
        place = {"topic": self._known.name, "stream": self.stream, "partition": stay.partition}
        log.info("hole_passed", **place, start=taken.position, end=position)
        self._worker.tally.holes += 1
        self._holes.append((taken.position, position))
        taken.position = position

    def _pass_over(self, passed: list[PassedRange]) -> None:
        """Tells of batches that the client does not get, because they cannot be opened (BYPASS-SHARED)."""
        for each in passed:
            place = {"topic": self._known.name, "stream": self.stream, "partition": self._log.partition}
            log.info("hole_passed", **place, **each._asdict())
        self._passed += passed

    async def _out_of_range(self) -> None:
        """Says that the offset is out of range, if that is so under all layouts there are (NO-FALSE-END)."""
        layout = self._layout
        if not await self._worker.settle_layouts():
            self._error = Code.UNKNOWN_LEADER_EPOCH
        elif self._known.layout is layout and not self._known.is_let_go:
            self._error = Code.OFFSET_OUT_OF_RANGE
            self._worker.tally.out_of_range += 1

    def _may_fill(self, is_late: bool) -> bool:
        """Whether a filler may follow what was taken (STEP-OVER)."""
        assert self._place is not None
        if self._place.stay.end is not None:
            return self._is_through or (is_late and not self._taken.entries) or bool(self._holes)
        if self._known.is_sealed(self._place.stay.partition):
            return False
        mark = self._log.high_watermark
        has_all = mark is not None and self._taken.position >= mark  # so that it commits, and lags, like one with all
        return bool(self._holes) or (has_all if self._taken.entries else is_late)

    def _end(self, after: int) -> int:
        """Returns the end that the client is told, as it then stands at `after` (OWN-END).

        Whoever has read all there is is told its own position, so that its lag is 0; others the home's high watermark.
        """
        assert self._place is not None
        assert self._layout is not None
        home = self._layout.chain(self.stream).stays[-1]
        mark = self._home_log.high_watermark
        assert mark is not None  # or else nothing is told
        limit = self._worker.limit_of(self._known, home.partition)
        mark = min(each for each in (mark, limit, home.end) if each is not None)
        mark = max(mark, home.start)
        if self._place.is_home and self._taken.position >= mark:
            return after
        return max(after, mark + home.delta)

    def _empty(self, error: int) -> dict[str, Any]:
        """An answer that says nothing of the log: -1 as brokers give it with an error."""
        end = -1 if error else self.offset
        row = told_row(self._number, end, -1 if error else 0, Pieces())
        return row | {"error_code": int(error), "aborted_transactions": [] if error else None}


def log_read_by(stream: Stream, partition: int) -> int:
    """Returns which of the logs kept of a physical partition a reader reads.

    All virtual partitions share one, in which each has offsets of its own; a physical partition as such has another.
    """
    return stream if is_physical(stream) else partition


def told_row(number: int, end: int, start: int, pieces: Pieces) -> dict[str, Any]:
    """Makes the response's row of a partition.

    Args:
        number: By which the client knows the partition.
        end: Of its log, as readers may see it.
        start: Where it begins.
        pieces: Its records.
    """
    return {
        "partition_index": number,
        "error_code": 0,
        "high_watermark": end,
        "last_stable_offset": end,
        "log_start_offset": start,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": pieces,
    }


def fetch_answer(request: Any, rows: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    """Makes the fields of a response of the rows of its partitions, in the order of the request."""
    return {
        "session_id": 0,  # whoever asked for a session gets none, and sends whole requests
        "responses": [
            {"topic": topic.get("topic", ""), "topic_id": topic.get("topic_id")}
            | {"partitions": [next(rows) for _ in topic["partitions"]]}
            for topic in request["topics"]
        ],
    }


def refuse_fetch(request: Any, error: int) -> dict[str, Any]:
    """Makes the fields of a response that has nothing but an error for each partition asked for."""
    nothing = {"error_code": int(error), "aborted_transactions": []}
    numbers = (each.partition for topic in request["topics"] for each in topic["partitions"])
    return fetch_answer(request, (told_row(number, -1, -1, Pieces()) | nothing for number in numbers))


def epoch_error(worker: PortionReaders, topic: ManagedTopic, home: Stay, believed_epoch: int) -> int:
    """Compares the leader epoch in which a client believes with the present one (KIP-320, RISING-EPOCH)."""
    if believed_epoch < 0:
        return Code.NONE
    believed = split_epoch(believed_epoch)
    known = worker.epoch_known(topic.name, home.partition)
    epoch = split_epoch(virtual_epoch(home.move, known))[1] if known >= 0 else believed[1]
    if believed == (home.move, epoch):
        return Code.NONE
    return Code.FENCED_LEADER_EPOCH if believed < (home.move, epoch) else Code.UNKNOWN_LEADER_EPOCH


def start_of(worker: PortionReaders, topic: ManagedTopic, stream: Stream) -> int:
    """Returns where a partition begins, as far as is known here."""

    def log_start(partition: int) -> int:
        return worker.log_of(topic, log_read_by(stream, partition)).log_start or 0

    return first_readable(topic.layout.chain(stream), (topic.layout.floors or {}).get(stream, 0), log_start)
