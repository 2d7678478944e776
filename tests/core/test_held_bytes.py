"""Bytes held are counted as they come: over the limit connections are closed at once, strangers first."""

from functools import partial
from types import SimpleNamespace
from typing import Any

from kordon.proxy.config.config import Limits
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.relay.connection_record import ConnectionRecord
from kordon.proxy.relay.relays import Relays


class Worker:
    """A worker's connections, without sockets, that may hold 1,000 bytes together."""

    def __init__(self) -> None:
        config: Any = SimpleNamespace(limits=Limits(held_bytes=1000))
        nowhere: Any = None
        self.relays = Relays(config, Tally(), nowhere, nowhere)
        self.closed: list[str] = []

    def connects(self, name: str, *, proven: bool) -> Any:
        relay: Any = _Relay(
            record=ConnectionRecord(NoJournal(), Tally(), name, "bootstrap"),
            core=SimpleNamespace(proven=proven),
            noted_bytes=0,
            close=partial(self._note, name),
            abort=lambda: None,
        )
        self.relays.admit(relay)
        return relay

    def holds(self, relay: Any, count: int) -> None:
        """A connection has come to hold this much."""
        memory = self.relays.memory
        memory.note(relay, count)
        if memory.is_too_much:
            memory.shed()

    def _note(self, name: str, cause: CloseCause, _: str) -> None:
        assert cause is CloseCause.MEMORY_LIMIT
        self.closed.append(name)


class _Relay(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


async def test_strangers_are_closed_first_and_then_those_that_hold_most() -> None:
    """As many as it takes, and when the last byte comes, not a second later."""
    worker = Worker()
    large, small = worker.connects("large", proven=True), worker.connects("small", proven=True)
    stranger, other = worker.connects("stranger", proven=False), worker.connects("other", proven=False)
    worker.holds(large, 600)
    worker.holds(small, 200)
    worker.holds(stranger, 150)
    assert not worker.closed
    worker.holds(other, 51)
    assert worker.closed == ["stranger"]
    worker.holds(small, 500)
    assert worker.closed == ["stranger", "other", "large"]


async def test_what_is_gone_is_held_no_more() -> None:
    """Neither by connections that hold less, nor by those that have ended."""
    worker = Worker()
    one, two = worker.connects("one", proven=True), worker.connects("two", proven=True)
    worker.holds(one, 900)
    worker.relays.remove(one)
    worker.holds(one, 900)  # it is not there any more
    worker.holds(two, 900)
    worker.holds(two, 0)
    worker.holds(worker.connects("three", proven=True), 1000)
    assert not worker.closed
