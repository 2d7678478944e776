"""The controller's hands before a fence, where a topic has so many producers that their images are written ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kordon.proxy.ordering.changes import Command, WriteAhead
from kordon.proxy.ordering.images import ImageRecord
from kordon.proxy.ordering.next_images import NextImages
from kordon.proxy.ordering.records import Value, image_key
from kordon.proxy.ordering.tail import Tail

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster
    from kordon.testing.simulation.leading import Leading

_EVERY: Final = 4
"""Of so many seeds, one has a topic with very many producers."""
_WRITING_SECONDS: Final = 1.0
"""How long it takes to write images down and to have them read: proxies come and go meanwhile."""


class WritingAhead:
    """What the product's `control/ahead.py` does.

    Args:
        cluster: Asked.
        leading: Whose hands these are.
        write: Commits a transaction, then calls what is given.
        tell: Tells the controller, unless another one leads by now.
    """

    def __init__(
        self,
        cluster: Cluster,
        leading: Leading,
        write: Callable[[tuple[tuple[str, Value | None], ...], Callable[[], None]], None],
        tell: Callable[[Callable[[], list[Command]]], None],
    ) -> None:
        self._cluster = cluster
        self._leading = leading
        self._write = write
        self._tell = tell
        self._kept: tuple[NextImages, dict[int, Tail]] | None = None

    @property
    def has_many(self) -> bool:
        """Whether the topic has very many producers."""
        return self._cluster.world.seed % _EVERY == _EVERY - 1

    def begin(self, command: WriteAhead) -> None:
        """Writes images ahead, or sees what has been written since they were."""
        if self._kept is None or self._kept[0] is not command.images:
            self._read(command)
        else:
            self._end(command)

    def tails(self, images: NextImages) -> dict[int, Tail] | None:
        """Reads on to the end of all logs; None: what was read of them before may not stand any more."""
        if self._kept is None or self._kept[0] is not images:
            return None
        for q, tail in self._kept[1].items():
            log = self._cluster.partition(q)
            if log.leader_epoch != tail.leader_epoch or log.start > tail.position:
                return None
            for base, batch in log.between(tail.position, log.end):
                tail.take(batch.producer_id, batch.epoch, batch.base_sequence, len(batch.records) - 1)
                tail.position = base + len(batch.records)
        return self._kept[1]

    def _read(self, command: WriteAhead) -> None:
        """Log ends first, then producers: who writes in between may be told of, and is read again."""
        logs = {q: self._cluster.partition(q) for q in command.partitions}
        tails = {q: Tail(log.end, log.leader_epoch) for q, log in logs.items()}
        self._kept = command.images, tails

        def describe() -> None:
            now_ms = round(self._cluster.world.now * 1000)
            for q, log in logs.items():
                rows = [(pid, epoch, last_sequence) for pid, (epoch, last_sequence) in log.producers().items()]
                command.images.add(q, rows, now_ms)
            for _ in command.images.carry(now_ms):
                pass
            self._put_down(command)

        self._cluster.world.soon(describe)

    def _put_down(self, command: WriteAhead) -> None:
        topic, ahead = command.topic, command.images.take()
        records: list[tuple[str, ImageRecord | None]] = [
            (image_key(topic, stream, number), part) for stream, number, part in ahead
        ]

        def durable() -> None:
            self._leading.controller.on_written_ahead(topic, ahead)
            self._cluster.world.after(_WRITING_SECONDS, lambda: self._end(command))

        if records:
            self._write(tuple(records), durable)
        else:
            durable()

    def _end(self, command: WriteAhead) -> None:
        problem = None if self.tails(command.images) is not None else "a leader has changed"
        now = self._cluster.world.now
        controller = self._leading.controller
        self._tell(lambda: controller.on_ahead(command.topic, command.images, now, problem))
