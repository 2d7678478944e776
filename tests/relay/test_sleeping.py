"""A process that does not run for a whole lease: others have gone on without it, so its clients begin anew."""

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.relay import wakefulness
from kordon.proxy.relay.connection_record import ConnectionRecord
from kordon.proxy.relay.relays import Relays

LEASE_SECONDS = 20.0


class Worker:
    """The connections of a worker, without sockets, whose clock is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lease_seconds: float = LEASE_SECONDS) -> None:
        self.now = 100.0
        monkeypatch.setattr(wakefulness, "clock", lambda: self.now)
        nothing: Any = SimpleNamespace(limits=SimpleNamespace(connections=10, connections_per_address=0))
        self.ended: list[str] = []
        self.relays = Relays(
            nothing,
            Tally(),
            nothing,
            nothing,
            lease_seconds=lease_seconds,
            on_woken=lambda: self.ended.append("doubted"),
        )
        self.relays.admit(self._relay())

    def _relay(self) -> Any:
        return _Relay(
            record=ConnectionRecord(NoJournal(), Tally(), "a", "bootstrap"),
            close=self._end,
            abort=lambda: self._end(None),
        )

    def _end(self, cause: CloseCause | None, _: str = "") -> None:
        self.ended.append("aborted" if cause is None else cause.value)


class _Relay(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


async def test_who_has_slept_for_longer_than_a_lease_ends_all_connections_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """First new ones are made to wait; the next look finds the process awake (LIVE-LEASE)."""
    worker = Worker(monkeypatch)
    worker.now += LEASE_SECONDS + 0.1
    assert worker.now > worker.relays.wakefulness.asleep_after
    assert not worker.relays.wakefulness.look()
    assert worker.ended == ["doubted", "slept", "aborted"]
    assert worker.relays.wakefulness.look()
    assert worker.ended == ["doubted", "slept", "aborted"]


async def test_who_has_no_lease_never_ends_connections_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be managed, nobody goes on without this process."""
    worker = Worker(monkeypatch, lease_seconds=inf)
    for _ in range(2):
        worker.now += 1_000_000
        assert worker.now < worker.relays.wakefulness.asleep_after
        assert worker.relays.wakefulness.look()
    assert worker.ended == []


async def test_who_looks_within_a_lease_is_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often that is."""
    worker = Worker(monkeypatch)
    for _ in range(5):
        worker.now += LEASE_SECONDS
        assert worker.relays.wakefulness.look()
        assert worker.relays.wakefulness.asleep_after == worker.now + LEASE_SECONDS
    assert worker.ended == []
