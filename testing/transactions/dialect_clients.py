"""Transactional producers of the dialect: they choose physical partitions by a layout, and are told when it is over.

What does not belong to its partition any more is asked about as it was, and goes to its new home when a refusal proves
that it is not written (OUTCOME-FIRST). On v1 the new home is added first; the transaction goes on.
"""

from __future__ import annotations

from uuid import UUID

from kordon.client.homes import Homes, Stamp
from kordon.client.layouts import TopicLayout
from kordon.proxy.ordering.streams import Stream, physical_stream, shown_partition
from kordon.testing.transactions.clients import Attempt, Client
from kordon.testing.transactions.cluster import TOPIC
from kordon.testing.transactions.codes import Code
from kordon.testing.transactions.logs import Record
from kordon.testing.transactions.workers import Sent, Worker
from kordon.testing.transactions.world import Activity

_NO_ID = UUID(int=0)


class DialectClient(Client):
    """An instance of a transactional producer of the dialect."""

    def live(self) -> Activity[None]:
        """Writes transactions until the simulation heals, or another instance takes over."""
        self._homes = Homes(_layout(self._worker))
        yield from super().live()

    def _stream(self, v: int) -> Stream:
        return physical_stream(self._homes.home(v))

    def _deliver(self, attempt: Attempt, record: Record) -> Activity[None]:
        """Sends a record until an answer settles it, and to where it belongs by then."""
        stamp, code = (yield from self._choose(attempt, record)), Code.NOT_LEADER
        while code in {Code.NOT_LEADER, Code.OUTDATED} and attempt.txn.outcome is None:
            yield None
            stream = record.stream
            stamp, is_question = self._homes.course(shown_partition(stream), [record.v], stamp)
            code = (yield from self._send(attempt, Sent(record, stream, stamp))) or Code.NOT_LEADER
            if code is Code.OUTDATED or self._world.happens(0.2):
                self._learn()
            if code is Code.OUTDATED and is_question:
                stamp = yield from self._choose(attempt, record)
        self._settle(attempt, record, code)

    def _choose(self, attempt: Attempt, record: Record) -> Activity[Stamp]:
        """Takes a record that is nowhere to where it belongs, by the newest layout; on v1 that is added first."""
        while True:
            record.stream = self._stream(record.v)
            yield from self._join(attempt, frozenset({record.stream}))
            if record.stream == self._stream(record.v):
                return Stamp.of(self._homes.layout)

    def _learn(self) -> None:
        """Asks a worker for the layout; one that is behind the others does not take back what is known."""
        found = _layout(self._connection())
        if found.layout_epoch > self._homes.layout.layout_epoch:
            self._homes.change(found, {})


def _layout(worker: Worker) -> TopicLayout:
    layout = worker.layout
    return TopicLayout(TOPIC, _NO_ID, layout.n, layout.u, layout.v_count, layout.epoch)
