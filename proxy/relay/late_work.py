"""The tasks of one connection: requests that Kordon answers, and large messages that it takes in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from kordon.codecs.look import Buffer
from kordon.codecs.row import Row
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import ProtocolError, SilentWriteFailed
from kordon.proxy.core.events import Asked, Decided, Event, LongReadDone, ReadInTurns, Served
from kordon.proxy.core.interception import Answering, Confer, EagerAnswering, Question
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import SERVICE, Answer, Awaits, Body, PendingRequest, Throttled
from kordon.proxy.runtime.tasks import Tasks, Work
from kordon.proxy.runtime.turns import Turns


class LateWork:
    """Does what takes a connection's core time, and gives it back as events.

    Args:
        end: Called to end the connection when work on which it relies has failed.
    """

    def __init__(
        self,
        tasks: Tasks,
        turns: Turns,
        *,
        take: Callable[[Event], None],
        end: Callable[[CloseCause, str], None],
    ) -> None:
        self._tasks = tasks
        self._turns = turns
        self._take = take
        self._end = end
        self._parts: dict[PendingRequest, asyncio.Future[Row]] = {}
        self._begun: dict[PendingRequest, Callable[[], None]] = {}
        """What was begun without a task, and what gives it up."""
        self._running: set[asyncio.Task[None]] = set()

    def serve(self, pending: PendingRequest, answer: Answering) -> None:
        """Answers a request; `Served` tells the answer.

        Args:
            pending: The request. If it awaits a part, the part comes by `pass_part`.
            answer: The answer of the decision (`Serve.answer`).
        """
        part: asyncio.Future[Row] | None = None
        if pending.awaits is SERVICE and isinstance(answer, EagerAnswering):
            give_up = answer.begin(partial(self._answer_soon, pending))
            if give_up is not None:
                self._begun[pending] = give_up
                return
        if pending.awaits is Awaits.PART:
            part = self._parts[pending] = asyncio.get_running_loop().create_future()
        self._start(self._serve(pending, answer, part), name=f"answer a {pending.route.api.name} request")

    def confer(self, pending: PendingRequest, decision: Confer) -> None:
        """Answers a request for which the broker is asked by `Asked`; `Served` tells the answer."""

        def ask(route: Route, body: bytes) -> asyncio.Future[Row]:
            answered: asyncio.Future[Row] = asyncio.get_running_loop().create_future()

            def told(answer: Row) -> None:
                if not answered.done():  # nobody may wait for it any more
                    answered.set_result(answer)

            self._take(Asked(pending, Question(route, body, told)))
            return answered

        async def answer(_: object) -> Answer:
            return await decision.answer(ask)

        self._start(self._serve(pending, answer, None), name=f"answer a {pending.route.api.name} request")

    def pass_part(self, pending: PendingRequest, response: Row) -> None:
        """Passes on the broker's answer to a part of a request that is served."""
        self._parts[pending].set_result(response)

    def read(self, asked: ReadInTurns) -> None:
        """Reads a large answer; `LongReadDone` tells what came of it."""
        self._start(self._read(asked), name="read a large answer")

    def decide(self, decide: Callable[[], list[Buffer]]) -> None:
        """Decides on a large request; `Decided` tells what goes to the broker."""
        self._start(self._decide(decide), name="decide on a large request")

    def cancel(self) -> None:
        """Ends all late work."""
        for task in self._running:
            task.cancel()
        begun, self._begun = self._begun, {}
        for give_up in begun.values():
            give_up()

    def _answer_soon(self, pending: PendingRequest, make: Callable[[], Body | Throttled]) -> None:
        asyncio.get_running_loop().call_soon(self._answer, pending, make)

    def _answer(self, pending: PendingRequest, make: Callable[[], Body | Throttled]) -> None:
        """Gives the answer to what was begun, unless the connection has ended."""
        if self._begun.pop(pending, None) is None:
            return
        try:
            self._take(Served(pending, make()))
        except Exception as error:  # the outermost edge: this connection ends, and no other
            self._fail(f"answer a {pending.route.api.name} request", error)

    async def _serve(self, pending: PendingRequest, answer: Answering, part: asyncio.Future[Row] | None) -> None:
        try:
            answered = await answer(part)
            body = await self._turns.do(answered) if callable(answered) else answered
        finally:
            self._parts.pop(pending, None)
        self._take(Served(pending, body))

    async def _read(self, asked: ReadInTurns) -> None:
        answer, nodes = await self._turns.do(asked.read)
        self._take(LongReadDone(asked.pending, answer, nodes))

    async def _decide(self, decide: Callable[[], list[Buffer]]) -> None:
        self._take(Decided(await self._turns.do(decide)))

    def _start(self, work: Work[None], *, name: str) -> None:
        task = self._tasks.start(work, name=name, heard=(SilentWriteFailed, ProtocolError))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        match None if task.cancelled() else task.exception():
            case None:
                pass
            case SilentWriteFailed() as error:
                self._end(CloseCause.WRITE_FAILED, str(error))
            case ProtocolError() as error:
                self._end(error.cause, error.detail)
            case error:
                self._end(CloseCause.INTERNAL_ERROR, f"could not {task.get_name()}: {error!r}")

    def _fail(self, doing: str, error: Exception) -> None:
        """Ends the connection because of a mistake of Kordon's own, which no task reports."""
        self._tasks.report(doing, error)
        self._end(CloseCause.INTERNAL_ERROR, f"could not {doing}: {error!r}")
