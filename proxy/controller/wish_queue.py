"""What proxies wish of the controller, and how each wish comes true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, assert_never

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.bindings import Bindings
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.ledger import WishRefused
from kordon.proxy.controller.managing import Managing
from kordon.proxy.controller.open_wishes import OpenWishes
from kordon.proxy.controller.takeover_steps import TakeoverSteps
from kordon.proxy.controller.takeovers import NotQuiesced
from kordon.proxy.controller.transacting import Transacting
from kordon.proxy.controller.unmanaging import Unmanaging
from kordon.proxy.core.errors import NoCommonVersion, UpstreamUnavailable
from kordon.proxy.kafka.topics_admin import TopicsRefused
from kordon.proxy.ordering.changes import Change
from kordon.proxy.ordering.findings import why_no_second, why_too_old, why_withdrawn
from kordon.proxy.ordering.floors import with_floors
from kordon.proxy.ordering.hashing import why_not
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import OutcomeRecord, why_no_more
from kordon.proxy.ordering.wishes import (
    AllowTransactions,
    Delete,
    LeaveOut,
    LookAgain,
    Manage,
    OrderDelivery,
    RaiseFloors,
    Resize,
    SetJanitor,
    SetShare,
    Unmanage,
    Wish,
)
from kordon.proxy.own_topics.layouts_writer import Fenced
from kordon.proxy.runtime.clock import clock

log = structlog.get_logger(__name__)

MOST_AT_A_TIME: Final = 100
"""Wishes with which something is being done; each is a transaction, and these come one after the other. A change that
a wish has begun does not count."""


class WishQueue:
    """Wishes for one topic come true one after the other, those for several side by side.

    Args:
        takeovers: The takeovers of topics that had data.
        bindings: The check whether topics still exist.
        why_untouched: Says why nothing may be done with a topic.
    """

    def __init__(
        self,
        context: ControllerContext,
        open_wishes: OpenWishes,
        *,
        managing: Managing,
        unmanaging: Unmanaging,
        transacting: Transacting,
        takeovers: TakeoverSteps,
        bindings: Bindings,
        why_untouched: Callable[[str], str | None],
    ) -> None:
        self._ledger, self._tasks, self._do = context.ledger, context.tasks, context.do
        self._open_wishes = open_wishes
        self._managing = managing
        self._unmanaging = unmanaging
        self._transacting = transacting
        self._takeovers = takeovers
        self._bindings = bindings
        self._why_untouched = why_untouched
        self._at_work = 0
        self._held_against: dict[str, int] = {}
        """By topic, the target of a change against which all wishes for another number have been held."""

    def on_wish(self, wish_id: str, wish: Wish) -> None:
        """Somebody wants something; what is done for it does not depend on how many wishes there are."""
        self._open_wishes.add(wish_id, wish)
        controller = self._ledger.controller
        if controller is None:
            return
        change = controller.changes.get(wish.topic)
        if change is not None:
            self._refuse_if_second(wish_id, wish, change.target)
        elif self._at_work < MOST_AT_A_TIME:
            self._begin_with(wish.topic)

    def begin_next(self) -> None:
        """Begins with the wishes for topics with which nothing continues."""
        controller = self._ledger.controller
        if controller is None:
            return
        self._held_against = {topic: each for topic, each in self._held_against.items() if topic in controller.changes}
        for topic, change in controller.changes.items():
            if topic in self._open_wishes.by_topic and self._held_against.get(topic) != change.target:
                self._held_against[topic] = change.target
                for wish_id, wish in list(self._open_wishes.by_topic[topic].items()):
                    self._refuse_if_second(wish_id, wish, change.target)
        for topic in self._open_wishes.by_topic:
            if self._at_work >= MOST_AT_A_TIME:
                break
            if topic not in controller.changes:
                self._begin_with(topic)

    def _begin_with(self, topic: str) -> None:
        """Begins with the oldest wish for a topic, unless something continues with it."""
        if topic in self._ledger.busy:
            return
        wish_id, wish = self._open_wishes.begin(topic)
        self._at_work += 1
        self._tasks.start(self._work_on(wish_id, wish), name=f"fulfil wish {wish_id}")

    def _refuse_if_second(self, wish_id: str, wish: Wish, target: int) -> None:
        under_way = self._open_wishes.under_way.get(wish.topic)
        if isinstance(wish, Resize) and wish.partitions != target and under_way != wish_id:
            if self._takes_back(wish):
                return  # it comes true when the change is given up
            self._open_wishes.remove(wish.topic, wish_id)
            self._tasks.start(self._refuse_second(wish_id, wish, target), name=f"refuse wish {wish_id}")

    def _takes_back(self, wish: Resize) -> bool:
        """Gives a change up that waits for older transactions, if a wish is for the partitions that there are still."""
        controller = self._ledger.controller
        record = self._ledger.topics.get(wish.topic)
        if controller is None or record is None or wish.partitions != record.layout.u:
            return False
        change = controller.changes.get(wish.topic)
        if change is not None and change.problem:
            return True
        commands = controller.withdraw(wish.topic, why_withdrawn(wish.topic, wish.partitions), clock())
        self._do(commands)
        return bool(commands)

    async def _refuse_second(self, wish_id: str, wish: Resize, target: int) -> None:
        """Tells whoever wants another number of partitions that a change is under way (ONE-CHANGE)."""
        outcome = OutcomeRecord(Code.REASSIGNMENT_IN_PROGRESS, why_no_second(wish.topic, target))
        await self._ledger.attempt(((f"wish/{wish_id}", None), (f"outcome/{wish_id}", outcome)))

    async def _work_on(self, wish_id: str, wish: Wish) -> None:
        try:
            await self._fulfil(wish_id, wish)
        finally:
            self._at_work -= 1

    async def _fulfil(self, wish_id: str, wish: Wish) -> None:
        """Begins what a wish asks for; whatever is done at once gets its outcome here, a resize when it is finished."""
        topic = wish.topic
        try:
            if why := self._why_untouched(topic):
                raise WishRefused(Code.INVALID_REQUEST, why)  # or what cannot be read would be written over
            if await self._begin(wish):
                await self._open_wishes.conclude(topic, OutcomeRecord(0, ""))
        except (WishRefused, TopicsRefused) as refusal:
            await self._open_wishes.conclude(topic, OutcomeRecord(refusal.code, str(refusal)))
        except NotQuiesced as refusal:
            await self._open_wishes.conclude(topic, OutcomeRecord(Code.INVALID_REQUEST, str(refusal)))
        except NoCommonVersion as error:
            # Brokers are too old: to try again would bring the same, while whoever asked waits.
            await self._open_wishes.conclude(topic, OutcomeRecord(Code.UNSUPPORTED_VERSION, why_too_old(error)))
        except UpstreamUnavailable as error:
            log.warning("wish_delayed", wish=wish_id, topic=topic, error=str(error))
            self._open_wishes.postpone(topic)  # begun again with the next tick
        except Fenced as error:
            self._ledger.fail(error)
        except Exception as error:
            # The outermost edge of a wish: whoever asked is told, and the next one can come.
            log.exception("wish_failed", wish=wish_id, topic=topic)
            await self._open_wishes.conclude(topic, OutcomeRecord(Code.UNKNOWN_SERVER_ERROR, repr(error)))

    async def _begin(self, wish: Wish) -> bool:
        """Returns whether the wish has come true already."""
        match wish:
            case Manage():
                return await self._managing.manage(wish)
            case Resize(topic, partitions):
                return self._resize(topic, partitions)
            case LeaveOut(topic, groups):
                await self._takeovers.leave_out(topic, groups)
            case RaiseFloors(topic, floors):
                await self._renew(topic, lambda layout: with_floors(layout, floors))
            case OrderDelivery(topic, ordered):
                await self._renew(topic, lambda layout: replace(layout, ordered_delivery=ordered))
            case SetShare(topic):
                await self._renew(topic, lambda layout: replace(layout, share=wish.changed(layout.share)))
            case SetJanitor(topic, on):
                await self._managing.set_janitor(topic, on=on)
            case AllowTransactions(topic):
                await self._transacting.allow(topic)
            case Delete() | Unmanage() | LookAgain():
                await self._let_go(wish)
            case _:
                assert_never(wish)
        return True

    async def _let_go(self, wish: Delete | Unmanage | LookAgain) -> None:
        match wish:
            case Delete(topic):
                await self._unmanaging.let_go(topic)
            case Unmanage(topic):
                await self._unmanaging.unmanage(topic)
            case LookAgain(topic):
                await self._bindings.look_at(topic)

    async def _renew(self, topic: str, changed: Callable[[Layout], Layout]) -> None:
        """Writes down a topic's layout as it is to be, if it is not already."""
        record = self._ledger.managed(topic)
        layout = changed(record.layout)
        if layout != record.layout:
            await self._ledger.renew(replace(record, layout=layout))

    def _resize(self, topic: str, partitions: int) -> bool:
        layout = self._ledger.managed(topic).layout
        if problem := why_not(layout.n, partitions, layout.v_count):
            raise WishRefused(Code.INVALID_PARTITIONS, problem)
        self._ledger.settled(topic)
        if partitions == layout.u or self._ledger.controller is None:
            return True
        record = self._ledger.managed(topic)
        if problem := why_no_more(record, layout.next_epoch(partitions)):
            raise WishRefused(Code.INVALID_PARTITIONS, problem)
        self._do(self._ledger.controller.begin(Change(topic, partitions), clock()))
        return False
