"""Each rule of transactions, and where the product keeps it: so that the simulation can go without it.

What is replaced is the product's own code, not a copy of it in the simulation.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from kordon.client.homes import Homes, NextSend, Stamp
from kordon.proxy.ordering import announcing, write_sequencer
from kordon.proxy.ordering.announcing import Announcing
from kordon.proxy.ordering.chain import Stay
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
from kordon.proxy.ordering.transactions.adds import Announcement, Course, Plan
from kordon.proxy.ordering.transactions.beliefs import Beliefs, Ground, ProducerClaim
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch, Event, Witness
from kordon.proxy.ordering.transactions.older_transactions import OlderTransactions
from kordon.proxy.ordering.transactions.stable_offset import StableOffset
from kordon.proxy.ordering.write_sequencer import Write
from kordon.proxy.topics.managed_topics import Fence
from kordon.testing.taken_out import Place, Places, constant, taken_out
from kordon.testing.transactions import workers
from kordon.testing.transactions.codes import Code
from kordon.testing.transactions.logs import Txn
from kordon.testing.transactions.world import Activity


def _passes_witnesses(batch: Batch, event: Event) -> bool:
    return isinstance(event, Witness) or _IS_PASSED_OVER(batch, event)


def _never_asked(absences_: Absences, batch: Batch, index: EventIndex) -> bool:
    del absences_
    return batch.offset < index.end - 1


def _whoever(claim: ProducerClaim) -> tuple[str, str]:
    del claim
    return "", ""


def _by_number(planned: Plan, layout_epoch: int, announcement: Announcement) -> bool:
    return (planned.layout_epoch, planned.announcement.number) == (layout_epoch, announcement.number)


def _by_count(write: Write, home: Stay, count: int | None) -> bool:
    del home
    return write.undeleted_partition_count is not None and write.undeleted_partition_count != count


def _refusal_is_proof(homes: Any, partition: int, places: Iterable[int], stamp: Stamp) -> NextSend:
    return _COURSE(homes, partition, places, stamp)._replace(question=True)


def _without_lease(planned: Plan, layout_epoch: int, announcement: Announcement, *, has_lease: bool) -> Course:
    del has_lease
    return adds.course(planned, layout_epoch, announcement, has_lease=True)


def _late_as_others(fence: Fence, partition: int) -> int | None:
    return _LIMIT(replace(fence, is_late=False), partition)


def _as_remembered(worker: Any, leader_epoch: int, claim: ProducerClaim, txn: Txn, q: int) -> Activity[Code]:
    if worker._beliefs.is_open(claim, q, Ground(worker.layout.epoch, leader_epoch)):
        return Code.OK
    code: Code = yield from _OPEN_UNDER(worker, leader_epoch, claim, txn, q)
    return code


_COURSE: Final = Homes.course
_LIMIT: Final = Fence.limit
_OPEN_UNDER: Final = vars(workers.Worker)["_open_under"]
_IS_PASSED_OVER: Final = outcome.is_passed_over

PLACES: Final[Places] = {
    "OUTCOME-BEHIND: of its own epoch": Place(outcome, "closes", constant(True)),
    "OUTCOME-BEHIND: a witness ends what stands before it": Place(outcome, "is_passed_over", _passes_witnesses),
    "OUTCOME-BEHIND: repetitions are passed over": Place(outcome, "is_passed_over", constant(False)),
    "PROVEN-ABSENCE": Place(Absences, "cover", _never_asked),
    "PROVEN-ABSENCE: or it waits for ever": Place(Absences, "cover", constant(False)),
    "PROVEN-ABSENCE: asked when the batch stood there": Place(absences, "is_after", constant(True)),
    "PROVEN-ABSENCE: read to an end of afterwards": Place(absences, "is_read", constant(True)),
    "PROVEN-ABSENCE: under one leader": Place(absences, "is_of_leader", constant(True)),
    "STABLE-END": Place(StableOffset, "first_undecided", constant(None)),
    "STABLE-END: the log is read first": Place(stable_offset, "is_read", constant(True)),
    "TXN-WITNESS": Place(Beliefs, "is_open", constant(True)),
    "TXN-WITNESS: one leader": Place(beliefs, "has_same_leader", constant(True)),
    "TXN-WITNESS: dropped at the end": Place(Beliefs, "drop", constant(None)),
    "TXN-WITNESS: answers from before the end": Place(Beliefs, "_void", constant(None)),
    "TXN-WITNESS: one layout, if a fence has not waited": (
        Place(beliefs, "has_same_layout", constant(True)),
        Place(OlderTransactions, "left", constant(frozenset())),
    ),
    "OWN-TRANSACTION": Place(Beliefs, "has_right", constant(True)),
    "OWN-TRANSACTION: of one principal": Place(beliefs, "_right", _whoever),
    "ASKED-LEADER: of the leader": Place(open_answers, "is_of_leader", constant(True)),
    "ASKED-LEADER: replicated": Place(open_answers, "is_replicated", constant(True)),
    "ASKED-LEADER: each time": Place(workers.Worker, "_open_under", _as_remembered),
    "ASKED-LEADER: the sequence that follows": Place(workers, "witness_sequence", constant(0)),
    "DOUBLE-ADD": Place(adds, "coming_homes", constant(frozenset())),
    "DOUBLE-ADD: announced before the fence": Place(Announcing, "begin", constant([])),
    "DOUBLE-ADD: when all know it": Place(announcing, "is_told", constant(True)),
    "DOUBLE-ADD: under one plan": Place(adds, "is_fresh", constant(True)),
    "DOUBLE-ADD: under one plan, told by more than its number": Place(adds, "is_fresh", _by_number),
    "DOUBLE-ADD: under a lease": Place(workers, "course", _without_lease),
    "OLDER-FIRST": Place(OlderTransactions, "left", constant(frozenset())),
    "OLDER-FIRST: until their coordinator says so": Place(older_transactions, "is_over", constant(False)),
    "OLDER-FIRST: nobody who began later": Place(older_transactions, "is_older", constant(True)),
    "FROZEN-READS": Place(Fence, "limit", constant(None)),
    "FROZEN-READS: nothing for who comes late": Place(Fence, "limit", _late_as_others),
    "COUNT-FENCE": Place(write_sequencer, "_is_outdated", constant(False)),
    "COUNT-FENCE: the count alone does not say it": Place(write_sequencer, "_is_outdated", _by_count),
    "OUTCOME-FIRST": Place(Homes, "course", _refusal_is_proof),
}


def without(rule: str) -> AbstractContextManager[None]:
    """Takes a rule out for a while.

    Args:
        rule: One of `PLACES`; empty: none.
    """
    return taken_out(rule, PLACES)
