"""Each rule of transactions, and where the product keeps it: so that the simulation can go without it.

What is replaced is the product's own code, not a copy of it in the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from kordon.proxy.ordering.transactions import (
    absences,
    adds,
    beliefs,
    older_transactions,
    open_answers,
    outcome,
    stable_offset,
)
from kordon.proxy.ordering.transactions.absences import Absences
from kordon.proxy.ordering.transactions.adds import Course, Plan
from kordon.proxy.ordering.transactions.beliefs import Beliefs, Claim, Ground
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch, Event, Witness
from kordon.proxy.ordering.transactions.older_transactions import OlderTransactions
from kordon.proxy.ordering.transactions.stable_offset import StableOffset
from kordon.testing.transactions import workers
from kordon.testing.transactions.codes import Code
from kordon.testing.transactions.logs import Txn
from kordon.testing.transactions.world import Activity


@dataclass(frozen=True)
class _Place:
    """Where a rule is kept."""

    owner: Any
    name: str
    instead: Any
    """What stands there without the rule."""


def _constant(value: object) -> Callable[..., Any]:
    def answer(*_: object, **__: object) -> object:
        return value

    return answer


def _passes_witnesses(batch: Batch, event: Event) -> bool:
    return isinstance(event, Witness) or _IS_PASSED_OVER(batch, event)


def _never_asked(absences_: Absences, batch: Batch, index: EventIndex) -> bool:
    del absences_
    return batch.offset < index.end - 1


def _whoever(claim: Claim) -> tuple[str, str]:
    del claim
    return "", ""


def _without_lease(planned: Plan, layout_epoch: int, announcement: int, *, has_lease: bool) -> Course:
    del has_lease
    return adds.course(planned, layout_epoch, announcement, has_lease=True)


def _as_remembered(worker: Any, leader_epoch: int, claim: Claim, txn: Txn, q: int) -> Activity[Code]:
    if worker._beliefs.is_open(claim, q, Ground(worker.layout.epoch, leader_epoch)):
        return Code.OK
    code: Code = yield from _OPEN_UNDER(worker, leader_epoch, claim, txn, q)
    return code


_OPEN_UNDER: Final = vars(workers.Worker)["_open_under"]
_IS_PASSED_OVER: Final = outcome.is_passed_over

PLACES: Final[Mapping[str, _Place | tuple[_Place, ...]]] = {
    "OUTCOME-BEHIND: of its own epoch": _Place(outcome, "closes", _constant(True)),
    "OUTCOME-BEHIND: a witness ends what stands before it": _Place(outcome, "is_passed_over", _passes_witnesses),
    "OUTCOME-BEHIND: repetitions are passed over": _Place(outcome, "is_passed_over", _constant(False)),
    "PROVEN-ABSENCE": _Place(Absences, "cover", _never_asked),
    "PROVEN-ABSENCE: or it waits for ever": _Place(Absences, "cover", _constant(False)),
    "PROVEN-ABSENCE: asked when the batch stood there": _Place(absences, "is_after", _constant(True)),
    "PROVEN-ABSENCE: read to an end of afterwards": _Place(absences, "is_read", _constant(True)),
    "PROVEN-ABSENCE: under one leader": _Place(absences, "is_of_leader", _constant(True)),
    "STABLE-END": _Place(StableOffset, "first_undecided", _constant(None)),
    "STABLE-END: the log is read first": _Place(stable_offset, "is_read", _constant(True)),
    "TXN-WITNESS": _Place(Beliefs, "is_open", _constant(True)),
    "TXN-WITNESS: one leader": _Place(beliefs, "has_same_leader", _constant(True)),
    "TXN-WITNESS: dropped at the end": _Place(Beliefs, "drop", _constant(None)),
    "TXN-WITNESS: answers from before the end": _Place(Beliefs, "_void", _constant(None)),
    "TXN-WITNESS: one layout, if a fence has not waited": (
        _Place(beliefs, "has_same_layout", _constant(True)),
        _Place(OlderTransactions, "left", _constant(frozenset())),
    ),
    "OWN-TRANSACTION": _Place(Beliefs, "has_right", _constant(True)),
    "OWN-TRANSACTION: of one principal": _Place(beliefs, "_right", _whoever),
    "ASKED-LEADER: of the leader": _Place(open_answers, "is_of_leader", _constant(True)),
    "ASKED-LEADER: replicated": _Place(open_answers, "is_replicated", _constant(True)),
    "ASKED-LEADER: each time": _Place(workers.Worker, "_open_under", _as_remembered),
    "ASKED-LEADER: the sequence that follows": _Place(workers, "witness_sequence", _constant(0)),
    "DOUBLE-ADD": _Place(adds, "coming_homes", _constant(frozenset())),
    "DOUBLE-ADD: under one plan": _Place(adds, "is_fresh", _constant(True)),
    "DOUBLE-ADD: under a lease": _Place(workers, "course", _without_lease),
    "OLDER-FIRST": _Place(OlderTransactions, "left", _constant(frozenset())),
    "OLDER-FIRST: until their coordinator says so": _Place(older_transactions, "is_over", _constant(False)),
    "OLDER-FIRST: a fence that moves nothing": _Place(older_transactions, "is_older", _constant(True)),
}


@contextmanager
def without(rule: str) -> Iterator[None]:
    """Takes a rule out for a while.

    Args:
        rule: One of `PLACES`; empty: none.
    """
    if not rule:
        yield
        return
    kept = PLACES[rule]
    with ExitStack() as stack:
        for place in kept if isinstance(kept, tuple) else (kept,):
            stack.enter_context(patch.object(place.owner, place.name, place.instead))
        yield
