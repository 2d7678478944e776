"""What Kordon does around an InitProducerId call of a broker that does not check what a producer was (KIP-360).

It writes a claim to the log of lent epochs, calls the broker on the client's own connection once the claim counts, and
writes what that has answered (CLAIM-FIRST, `ordering/lent_epochs.py`). The client has proved before that it may write
with its transactional id, and that the broker is the id's coordinator: nobody else adds to that log.

Once begun, it continues without its client: a claim that nobody settles keeps the transactional id busy for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Final
from uuid import uuid4

from kordon.codecs.bodies import InitProducerIdResponse
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.ordering import lent_epochs
from kordon.proxy.ordering.lent_epoch_records import key_of
from kordon.proxy.ordering.lent_epochs import CALL_SECONDS, EpochClaim, ProducerIdentity, Refusal
from kordon.proxy.own_topics.lent_epochs_log import LentEpochsLog
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.runtime.tasks import Tasks

log = client_log(__name__)

ANSWER_SECONDS: Final = 10.0
"""For an answer of the broker to one call."""
END_SECONDS: Final = 5.0
"""For which the broker may end the transaction before; then the client is to ask again."""
MOST_UNDER_WAY: Final = 1_000
"""Requests of a worker; more are to come again."""
_ROUNDS: Final = 5
"""How often a request is decided again because another proxy was faster."""
_FIRST_PAUSE_SECONDS: Final = 0.02
_LAST_PAUSE_SECONDS: Final = 0.5
_TAKES_NOTHING: Final = frozenset(
    {
        Code.INVALID_TRANSACTION_TIMEOUT,
        Code.INVALID_REQUEST,
        Code.NOT_COORDINATOR,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Errors of a broker that has given no epoch. After others it may have."""

Call = Callable[[], Awaitable[InitProducerIdResponse]]
"""Calls the client's broker by a version without id and epoch, as a new instance."""


class LendingOutcome(Enum):
    """What comes of a request; the values are metric labels."""

    GIVEN = "given"
    """An epoch that the broker has given for it."""
    REPEATED = "repeated"
    """The epoch that was given before."""
    FENCED = "fenced"
    BUSY = "busy"
    REFUSED = "refused"
    """The broker has refused the request."""
    UNRECORDED = "unrecorded"
    """The broker's answer, of which nothing is written: the log cannot be had, or is full."""
    UNAVAILABLE = "unavailable"


OUTCOMES: Final[Sequence[str]] = [each.value for each in LendingOutcome]


@dataclass(frozen=True, slots=True)
class LendingAnswer:
    """The answer to a producer."""

    outcome: LendingOutcome
    identity: ProducerIdentity | None = None
    code: int = Code.NONE


class EpochLending:
    """Serves the InitProducerId requests of a worker's clients, as far as they have a transactional id.

    Args:
        clock: Seconds of a monotonic clock.
    """

    def __init__(self, kept: LentEpochsLog, clock: Callable[[], float] = time.monotonic) -> None:
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        """How many requests came to what."""
        self._kept = kept
        self._clock = clock
        self._tasks = Tasks()
        self._name = uuid4().hex
        self._numbers = count()
        self._under_way = 0

    @property
    def is_possible(self) -> bool:
        """Whether epochs can be lent, for all that is known."""
        return self._kept.problem is None

    async def close(self) -> None:
        """Ends what is under way."""
        await self._tasks.stop()

    async def serve(self, transactional_id: str, given: ProducerIdentity | None, call: Call) -> LendingAnswer:
        """Returns what a producer is told.

        Args:
            given: The producer id and epoch that the client names. None: it is a new instance.
        """
        if self._under_way >= MOST_UNDER_WAY:
            told = LendingAnswer(LendingOutcome.BUSY)
        else:
            work = self._serve(transactional_id, given, call)
            told = await asyncio.shield(self._tasks.start(work, name="lend an epoch"))
        self.outcomes[told.outcome.value] += 1
        return told

    async def _serve(self, transactional_id: str, given: ProducerIdentity | None, call: Call) -> LendingAnswer:
        self._under_way += 1
        try:
            return await self._lend(key_of(transactional_id), given, call)
        except UpstreamUnavailable as error:
            if given is None and self._kept.problem is not None:
                return await self._unrecorded(call, str(error))
            return _unavailable(str(error))
        finally:
            self._under_way -= 1

    async def _lend(self, key: str, given: ProducerIdentity | None, call: Call) -> LendingAnswer:
        kept, claim = self._kept, EpochClaim(f"{self._name}-{next(self._numbers)}", given)
        for _ in range(_ROUNDS):
            await kept.read_to_end()
            if kept.table.is_unreadable(key):
                return _unavailable("a later version of Kordon has written its record; upgrade this one")
            if kept.table.is_full_for(key):
                why = f"{len(kept.table)} transactional ids are known, and no more are recorded"
                return await self._unrecorded(call, why) if given is None else _unavailable(why)
            may_take_over = kept.table.may_take_over(key, self._clock())
            decision = lent_epochs.decide(kept.table.lent(key), claim, may_take_over=may_take_over)
            if isinstance(decision, ProducerIdentity):
                return LendingAnswer(LendingOutcome.REPEATED, decision)
            if isinstance(decision, Refusal):
                return _refused(decision)
            sent = self._clock()
            if await kept.write(key, decision):
                told = await self._called(key, claim.token, call, sent)
                if told is not None:
                    return told
        return LendingAnswer(LendingOutcome.BUSY)

    async def _called(self, key: str, token: str, call: Call, sent: float) -> LendingAnswer | None:
        """Calls the broker until it has ended the transaction before; None: the request is to be decided again.

        Args:
            sent: When the claim was.
        """
        kept, pause, until = self._kept, _FIRST_PAUSE_SECONDS, self._clock() + END_SECONDS
        while self._clock() - sent < CALL_SECONDS:
            answer = await _in_time(call)
            if answer is None:
                return _unavailable("its broker does not answer")
            if answer.error_code == Code.NONE:
                return await self._settled(key, token, ProducerIdentity(answer.producer_id, answer.producer_epoch))
            if answer.error_code != Code.CONCURRENT_TRANSACTIONS:
                if answer.error_code in _TAKES_NOTHING:
                    await self._released(key, token)
                return LendingAnswer(LendingOutcome.REFUSED, code=answer.error_code)
            if self._clock() >= until:
                return LendingAnswer(LendingOutcome.BUSY)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)
            await kept.read_to_end()
            lent = kept.table.lent(key)
            again = lent_epochs.called_again(lent, token) if lent is not None else None
            sent = self._clock()
            if again is None or not await kept.write(key, again):
                return None
        return LendingAnswer(LendingOutcome.BUSY)

    async def _settled(self, key: str, token: str, answer: ProducerIdentity) -> LendingAnswer | None:
        """Writes what the broker has answered; None: another proxy has taken over."""
        kept = self._kept
        while True:
            await kept.read_to_end()
            lent = kept.table.lent(key)
            found = lent_epochs.settled(lent, token, answer) if lent is not None else None
            if found is None:
                return None
            record, told = found
            if await kept.write(key, record):
                return (
                    LendingAnswer(LendingOutcome.GIVEN, told) if isinstance(told, ProducerIdentity) else _refused(told)
                )

    async def _released(self, key: str, token: str) -> None:
        """Writes that a call has come to nothing, so that the next request need not wait."""
        with suppress(UpstreamUnavailable):
            lent = self._kept.table.lent(key)
            released = lent_epochs.released(lent, token) if lent is not None else None
            if released is not None:
                await self._kept.write(key, released)

    async def _unrecorded(self, call: Call, why: str) -> LendingAnswer:
        """Lets a new instance pass as if it came around Kordon."""
        log.warning("epoch_not_recorded", why=why, means="its producer has no next epoch after some errors")
        answer = await _in_time(call)
        if answer is None:
            return _unavailable("its broker does not answer")
        if answer.error_code:
            return LendingAnswer(LendingOutcome.REFUSED, code=answer.error_code)
        return LendingAnswer(LendingOutcome.UNRECORDED, ProducerIdentity(answer.producer_id, answer.producer_epoch))


async def _in_time(call: Call) -> InitProducerIdResponse | None:
    with suppress(TimeoutError):
        return await asyncio.wait_for(call(), ANSWER_SECONDS)
    return None


def _refused(refusal: Refusal) -> LendingAnswer:
    return LendingAnswer(LendingOutcome.FENCED if refusal is Refusal.FENCED else LendingOutcome.BUSY)


def _unavailable(why: str) -> LendingAnswer:
    log.warning("epoch_not_lent", why=why, means="the client is told that there is no coordinator, and asks again")
    return LendingAnswer(LendingOutcome.UNAVAILABLE)
