"""The writes of one worker to managed topics: lines in, lanes out, fences and leases between.

serve ──> Line of a stream ──(may it be sent? who leads its partition?)──> Lane ──> broker
            ^                                                               │
            └──────────────(identity: once more)── answer <─────────────────┘
                                                     └──(still in the layout?)──> request
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from kordon.codecs.error_codes import Code
from kordon.codecs.produce import Outcome
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.journal import Journal, NoJournal
from kordon.proxy.kafka.leaders import NO_NODE, Leaders
from kordon.proxy.kafka.links import Links
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.line import Line, Refuse, Result, Write
from kordon.proxy.ordering.streams import Stream, shown_partition
from kordon.proxy.ordering.under_way import Fate, KeptAnswers, Partition, UnderWay
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic, Why
from kordon.proxy.writes.detours import LANES_PER_BROKER, Detours
from kordon.proxy.writes.lane import Course, Lane, Sent
from kordon.proxy.writes.tickets import ticket_of
from kordon.proxy.writes.write_decisions import WriteDecisions
from kordon.proxy.writes.write_outcomes import LEADER_ERRORS, ProduceCounts, refused, result_of, told
from kordon.proxy.writes.writer_questions import WriterQuestions

HOLD_SECONDS: Final = 2.5
"""How long writes wait for a fence, a lease or a leader: below the patience of every client."""
WAIT_SECONDS: Final = 15.0
"""How long they wait for their turn."""
UNSENT_BYTES: Final = 64 * 1024 * 1024
"""Of one topic, while they are held; what comes above is refused."""
_UNSENT_BYTES_IN_TURN: Final = 4 * UNSENT_BYTES
"""The same, while they only wait for their turn."""
MOST_KEPT: Final = 10_000
"""Answers that wait for the lease."""
_LEAST_PATIENCE_MS: Final = 100
"""A broker is not asked once more about copies that are late, if their client waits no longer than that."""
_SWEEP_SECONDS: Final = 0.25
_LEADERLESS_SECONDS: Final = 0.05


class Lanes:
    """All that one worker writes to managed topics.

    Args:
        links: Connections to brokers.
        leaders: Of physical partitions.
        lease_alive: Whether managed topics may be served now (LIVE-LEASE).
        journal: Of the worker.
    """

    def __init__(
        self,
        links: Links,
        leaders: Leaders,
        lease_alive: Callable[[], bool],
        journal: Journal | None = None,
    ) -> None:
        self.counts = ProduceCounts()
        self.decisions = WriteDecisions(journal or NoJournal())
        self.detours = Detours()
        self._links = links
        self._leaders = leaders
        self._lease_alive = lease_alive
        self._tasks = Tasks()
        self._courses: dict[ManagedTopic, dict[Stream, Course]] = {}
        self._watches: dict[ManagedTopic, asyncio.Task[None]] = {}
        self._lanes: dict[tuple[int, int], Lane] = {}
        self._active: dict[Course, None] = {}
        """Those that have something that is not sent; those that began to wait first are the first."""
        self._unsent: Counter[str] = Counter()
        """Bytes by topic."""
        self._under_way = UnderWay()
        self._landed = asyncio.Event()
        self._kept = KeptAnswers[tuple[Sent, Outcome | None]](MOST_KEPT, WAIT_SECONDS)
        self._looking: set[ManagedTopic] = set()
        self._sweeping = False
        self._questions = WriterQuestions(links, leaders, self._tasks, self._go_on, self._give_up_question)

    @property
    def under_way(self) -> int:
        """Writes that are sent and not answered."""
        return len(self._under_way)

    async def close(self) -> None:
        """Ends all of its tasks; what is unsent is not sent any more."""
        await self._tasks.stop()

    async def drain(self, topic: str, partitions: frozenset[int]) -> dict[int, int]:
        """Returns when nothing that was sent to these physical partitions is unanswered.

        What is sent meanwhile counts, so let the fence stand before. It ends, for every request has a time limit.

        Returns:
            By partition, the offset behind what was acknowledged meanwhile; 0 where nothing was.
        """
        drain = self._under_way.drain((topic, partition) for partition in partitions)
        try:
            while not drain.is_over:
                await self._landed.wait()
        finally:
            self._under_way.end(drain)
        return {partition: offset for (_, partition), offset in drain.landed.items()}

    @contextmanager
    def counted(self, topic: str, partition: int) -> Iterator[None]:
        """Has fences wait for what somebody else of this worker writes to a physical partition while this lasts."""
        self._under_way.sent((topic, partition))
        try:
            yield
        finally:
            self._under_way.answered((topic, partition))
            self._landed.set()
            self._landed = asyncio.Event()

    async def expect(self, topic: str, partitions: frozenset[int]) -> None:
        """Finds the leaders of partitions that are about to be written to, and dials them, while there is time."""
        if all(each.name != topic for each in self._courses):
            return  # nobody writes to it here
        known = self._leaders.known(topic) or {}
        try:
            if any(partition not in known for partition in partitions):
                await self._leaders.renew(topic)
            leaders = await self._leaders.of(topic)
        except UpstreamUnavailable:
            return  # they are looked for again when there is something to send
        for node_id in {leaders[q].node_id for q in partitions & leaders.keys()} - {NO_NODE}:
            for number in range(LANES_PER_BROKER):
                self._lane(node_id, number).dial()

    def lease_renewed(self) -> None:
        """Judges the answers that were kept, and goes on; the layouts have been read since (LATE-ANSWER)."""
        for sent, outcome in self._kept.release():
            self._on_answer(sent, outcome, result_of(outcome))
        self._go_on(self._active)

    def add(self, topic: ManagedTopic, stream: Stream, write: Write) -> None:
        """Takes a write in; its ticket is told what becomes of it."""
        course = self._course(topic, stream)
        if (course.refusing or self._unsent[topic.name] + write.size > UNSENT_BYTES) and self._is_too_much(
            course, write
        ):
            self._refuse([write], course)
            return
        self._unsent[topic.name] += write.size
        course.line.add(write)
        self._active[course] = None
        self._sweep_later()
        if not course.queued:
            self._route(course)

    def forsake(self, writes: Iterable[tuple[ManagedTopic, Write]]) -> None:
        """The client has gone: what is not sent is not sent any more (LATE-BINDING)."""
        for topic, write in writes:
            write.abandoned = True
            self._uncount(write, topic.name)

    # What lanes ask and tell.

    def take(self, course: Course, partition: int, fits: Callable[[Write], bool]) -> tuple[Write | None, bool]:
        """Takes out what is next; see `Shipper`."""
        home = self._open_home(course)
        if isinstance(home, Why) or home.partition != partition or home.end is not None:
            course.queued = False
            asyncio.get_running_loop().call_soon(self._route, course)
            return None, False
        write = self._next(course, home, fits)
        if write is not None:
            if course.held_since is not None:
                self._release(course)
            self._under_way.sent((course.topic.name, partition))
        course.queued = course.line.ready
        if course.line.waits_for_answer:
            self._ask(course)
        return write, course.queued

    def _next(self, course: Course, home: Stay, fits: Callable[[Write], bool]) -> Write | None:
        """Takes out what is to be sent next; what is refused before it is told so."""
        topic, line, stream = course.topic, course.line, course.stream
        while True:
            step = line.next(home, topic.images.get(stream, {}), fits, topic.layout.count_in_force)
            if step is None:
                return None
            self._uncount(step.write if isinstance(step, Refuse) else step, topic.name)
            if not isinstance(step, Refuse):
                if step.undeleted_partition_count is not None:
                    step.sent_epoch = topic.layout.epoch
                return step
            answer = refused(topic.layout, stream, step.why, self.counts)
            self.decisions.judged(course, step.write, step.why, answer)
            ticket_of(step.write).settle(answer)

    def on_answers(self, answers: list[tuple[Sent, Outcome | None]]) -> None:
        """Takes in what brokers answered; see `Shipper`."""
        alive, now = self._lease_alive(), asyncio.get_running_loop().time()
        for sent, outcome in answers:
            if outcome is not None and outcome.error_code == Code.REQUEST_TIMED_OUT and self._ask_again(sent):
                continue
            result = result_of(outcome)
            is_written = result is Result.WRITTEN
            written_to = outcome.base_offset + sent.write.records if outcome is not None and is_written else 0
            self._under_way.answered(sent.place, written_to)
            match self._kept.take((sent, outcome), is_written=is_written, may_serve=alive, now=now):
                case Fate.TELL:
                    self._on_answer(sent, outcome, result)
                case Fate.LOSE:
                    self._on_answer(sent, None, Result.LOST)
                case Fate.KEEP:
                    self.counts.kept += 1
                    self._sweep_later()
        if self._under_way.is_waited_for:
            self._landed.set()
            self._landed = asyncio.Event()

    def _ask_again(self, sent: Sent) -> bool:
        """Sends a write again whose copies are late, if its client waits longer than the broker was let wait.

        It is in the log, or it would have another error, and is not written a second time (KIP-98). It goes apart by
        now (see `Detours`), so that what shared its connection is answered.
        """
        course, write = sent
        ticket, bound, home = ticket_of(write), write.bound, self._open_home(course)
        assert bound is not None
        stays = isinstance(home, Stay) and (home.partition, home.move) == (bound.partition, bound.move)
        left_ms = ticket.timeout_ms - round((asyncio.get_running_loop().time() - write.since) * 1000)
        if not stays or write.abandoned or course.lane is None or left_ms < _LEAST_PATIENCE_MS:
            return False
        ticket.patience_ms = min(2 * ticket.patience_ms, left_ms)
        self._free_lane(course.lane.node_id, sent.place, course).send_again(sent)
        return True

    def on_unreachable(self, courses: list[Course]) -> None:
        """Looks for other ways; see `Shipper`."""
        for course in courses:
            course.queued = False
            self._leaders.forget(course.topic.name)
            self._look_up(course.topic)

    # From here on: inside.

    def _course(self, topic: ManagedTopic, stream: Stream) -> Course:
        courses = self._courses.get(topic)
        if courses is None:
            self._forget_unmanaged()
            courses = self._courses[topic] = {}
            self._questions.renew_id()  # these lines know nothing of what was written under it before
            self._watches[topic] = self._tasks.keep(
                partial(self._watch, topic), name="follow a topic's changes", of=topic.name
            )
        course = courses.get(stream)
        if course is None:
            moved = partial(self.decisions.redirected, topic, stream) if self.decisions.is_on else None
            course = courses[stream] = Course(topic, stream, Line(stream, moved))
        return course

    def _forget_unmanaged(self) -> None:
        for topic in [topic for topic in self._courses if topic.is_let_go]:
            if self._active.keys().isdisjoint(self._courses[topic].values()):
                self._watches.pop(topic).cancel()
                del self._courses[topic]

    async def _watch(self, topic: ManagedTopic) -> None:
        while True:  # what has changed before this task ran is seen, too
            self._go_on(self._courses.get(topic, {}).values())
            await topic.wait_for_change()

    def _is_too_much(self, course: Course, write: Write) -> bool:
        """Whether a write is refused at once, because too much waits or what was before it is refused (SHORT-FENCE)."""
        blocked = isinstance(self._open_home(course), Why)
        full = self._unsent[course.topic.name] + write.size > (UNSENT_BYTES if blocked else _UNSENT_BYTES_IN_TURN)
        course.refusing = full or (course.refusing and blocked)
        return course.refusing

    def _open_home(self, course: Course) -> Stay | Why:
        """Returns where a course writes to now, or why it does not."""
        return course.topic.open_home(course.stream, may_serve=self._lease_alive())

    def _go_on(self, courses: Iterable[Course]) -> None:
        for course in list(courses):
            self._route(course)

    def _route(self, course: Course) -> None:
        """Gives a course its turn on the lane to its leader, if there is something to send and it may be sent."""
        if course.queued or not course.line.ready:
            self._ask(course)
            return
        home = self._open_home(course)
        if isinstance(home, Why):
            self._hold(course, home)
            return
        if home.end is not None:  # a retired partition, of which clients only ask what has been written (COUNT-FENCE)
            self._next(course, home, _everything)
            return
        leaders = self._leaders.known(course.topic.name)
        leader = leaders.get(home.partition) if leaders is not None else None
        if leader is None or leader.node_id == NO_NODE:
            self._hold(course, Why.LEADER)
            self._look_up(course.topic)
            return
        lane = self._free_lane(leader.node_id, (course.topic.name, home.partition), course)
        if course.lane is not lane and course.line.in_flight:
            return  # what is under way on the old lane comes first; its last answer leads here again
        course.lane = lane
        if not lane.connected:
            self._hold(course, Why.CONNECTION)
        elif course.held_since is not None:
            self._release(course)
        course.queued = True
        lane.add((course.topic.name, home.partition), course)

    def _hold(self, course: Course, why: Why) -> None:
        if course.held_since is None:
            course.held_since, course.held_for = asyncio.get_running_loop().time(), why
            self.counts.held += 1
            self.decisions.held(course, why)

    def _release(self, course: Course, *, given_up: bool = False) -> None:
        if course.held_since is not None:
            seconds = asyncio.get_running_loop().time() - course.held_since
            course.held_since = None
            self.decisions.released(course, seconds, given_up=given_up)

    def _free_lane(self, node_id: int, partition: Partition, course: Course) -> Lane:
        """Returns the first lane that does not wait for a partition which does not answer; see `Detours`."""
        if self.detours.is_quiet:
            return self._lane(node_id, course.stream % LANES_PER_BROKER)
        numbers = self.detours.numbers(partition, course.stream)
        lanes = (self._lane(node_id, number) for number in numbers)
        return next((lane for lane in lanes if self.detours.is_free(lane)), self._lane(node_id, numbers[0]))

    def _go_round(self, now: float) -> None:
        """Sends what waits behind a partition that does not answer another way, as far as its order allows."""
        for lane in self.detours.look(self._lanes.values(), now):
            courses = lane.hand_back()
            for course in courses:
                course.queued = False
            self._go_on(courses)

    def _lane(self, node_id: int, number: int) -> Lane:
        lane = self._lanes.get((node_id, number))
        if lane is None:
            lane = self._lanes[node_id, number] = Lane(self._links, node_id, number, self, self._tasks)
        return lane

    def _look_up(self, topic: ManagedTopic) -> None:
        """Finds the leaders, then goes on with the topic."""
        if topic not in self._looking:
            self._looking.add(topic)
            self._tasks.keep(partial(self._leaders_of, topic), name="find leaders to write to", of=topic.name)

    async def _leaders_of(self, topic: ManagedTopic) -> None:
        try:
            if self._lacks_leaders(topic):
                self._leaders.forget(topic.name)  # what is known is older than a partition, or than its election
            await self._leaders.of(topic.name)
            await asyncio.sleep(_LEADERLESS_SECONDS if self._lacks_leaders(topic) else 0)
        except UpstreamUnavailable:
            await asyncio.sleep(_LEADERLESS_SECONDS)
        finally:
            self._looking.discard(topic)
        self._go_on([course for course in self._active if course.topic is topic])

    def _lacks_leaders(self, topic: ManagedTopic) -> bool:
        known = self._leaders.known(topic.name) or {}
        homes = (known.get(q) for q in set(topic.layout.homes) if q is not None)
        return any(leader is None or leader.node_id == NO_NODE for leader in homes)

    def _ask(self, course: Course) -> None:
        if course.line.needs_id:
            self._questions.want_id(course)
        if course.line.has_question:
            self._questions.want_writers(course)

    def _on_answer(self, sent: Sent, outcome: Outcome | None, result: Result) -> None:
        course, write = sent
        if outcome is not None and outcome.error_code in LEADER_ERRORS:
            self._leaders.forget(course.topic.name)
        if course.line.answered(write, result):
            answer = told(course.topic.layout, course.stream, write, outcome, self.counts)
            if self.decisions.is_on:
                self.decisions.answered(course, write, outcome, answer)
            ticket_of(write).settle(answer)
        else:
            self.counts.resent += 1
            ticket_of(write).queued = True
            self._unsent[course.topic.name] += write.size
            self._active[course] = None
            self._sweep_later()
        if course.line.waits:
            self._route(course)

    def _sweep_later(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Gives up what has waited for too long."""
        self._sweeping = False
        now = asyncio.get_running_loop().time()
        if self._lease_alive():
            self.lease_renewed()  # if nobody has told
        self._go_round(now)
        for course in list(self._active):
            oldest = course.line.oldest
            if oldest is None:
                del self._active[course]
                self._release(course)
                continue
            held = course.held_since is not None and now - course.held_since > HOLD_SECONDS
            if held or now - oldest > WAIT_SECONDS:
                self._give_up(course)
            elif course.topic.is_let_go:
                is_ordinary = not course.topic.layout.is_managed  # its takeover was cancelled: brokers take its writes
                self._give_up(course, Code.NOT_LEADER_OR_FOLLOWER if is_ordinary else Code.UNKNOWN_TOPIC_OR_PARTITION)
        for sent, _ in self._kept.overdue(now):
            self._on_answer(sent, None, Result.LOST)
        if self._active or self._kept or self.under_way:
            self._sweep_later()

    def _give_up(self, course: Course, code: Code = Code.NOT_LEADER_OR_FOLLOWER) -> None:
        """Refuses all that is not sent of a stream, and what comes behind it while it is held (SHORT-FENCE)."""
        course.refusing = True
        why = course.held_for if course.held_since is not None else None
        self._release(course, given_up=True)
        writes = course.line.give_up()
        for write in writes:
            self._uncount(write, course.topic.name)
        self._refuse(writes, course, code, why)

    def _give_up_question(self, course: Course) -> None:
        """Refuses what cannot be judged because a broker could not be asked; those of other producers go on."""
        writes = course.line.give_up_question()
        for write in writes:
            self._uncount(write, course.topic.name)
        self._refuse(writes, course)

    def _refuse(
        self,
        writes: list[Write],
        course: Course,
        code: Code = Code.NOT_LEADER_OR_FOLLOWER,
        why: Why | None = None,
    ) -> None:
        self.counts.given_up += len(writes)
        for write in writes:
            self.decisions.given_up(course, write, code, why)
            ticket_of(write).settle(Outcome(shown_partition(course.stream), code))

    def _uncount(self, write: Write, topic: str) -> None:
        ticket = ticket_of(write)
        if ticket.queued:
            ticket.queued = False
            self._unsent[topic] -= write.size


def _everything(_: Write) -> bool:
    return True
