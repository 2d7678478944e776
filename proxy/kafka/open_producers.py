"""Asks leaders whether producers have a transaction open on partitions, many producers at once (ASKED-LEADER).

A leader that remembers ten thousand producers tells of all of them each time (0.4 MB). So each broker is asked one
question of a topic at a time, and whoever comes meanwhile shares the next one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import PartitionEnds, Remembered
from kordon.proxy.ordering.transactions.open_answers import NOT_OPEN, LeaderAnswer
from kordon.proxy.runtime.tasks import Tasks

_Place: TypeAlias = tuple[str, int]
"""A topic, and the broker that is asked."""
_NOBODY = -1


@dataclass(frozen=True, slots=True, eq=False)
class _ProducerQuestion:
    partition: int
    producer_id: int
    answer: asyncio.Future[LeaderAnswer | None]


class OpenProducers:
    """Asks for one worker.

    Attributes:
        asked: How often a leader was asked; only rises.
    """

    def __init__(self, ends: PartitionEnds, tasks: Tasks) -> None:
        self.asked = 0
        self._ends = ends
        self._tasks = tasks
        self._waiting: defaultdict[_Place, list[_ProducerQuestion]] = defaultdict(list)
        self._asking: set[_Place] = set()

    async def ask(self, topic: str, partition: int, node_id: int, producer_id: int) -> LeaderAnswer | None:
        """Asks a partition's leader about a producer, by a question that is sent after this call.

        Args:
            node_id: The leader's node id, as far as it is known.

        Returns:
            None: it does not answer, or another broker leads the partition.
        """
        question = _ProducerQuestion(partition, producer_id, asyncio.get_running_loop().create_future())
        place = topic, node_id
        self._waiting[place].append(question)
        if place not in self._asking:
            self._asking.add(place)
            self._tasks.start(self._ask_all(place), name=f"ask broker {node_id} for open transactions")
        return await question.answer

    async def _ask_all(self, place: _Place) -> None:
        """Asks, and asks again while others have come meanwhile."""
        try:
            while questions := self._waiting.pop(place, None):
                self.asked += 1
                try:
                    await self._ask(place[0], questions)
                finally:
                    _say_nothing(questions)
        finally:
            self._asking.discard(place)
            # If it failed, nobody else would ask for who has come meanwhile.
            _say_nothing(self._waiting.pop(place, ()))

    async def _ask(self, topic: str, questions: list[_ProducerQuestion]) -> None:
        wanted: defaultdict[int, set[int]] = defaultdict(set)
        for each in questions:
            wanted[each.partition].add(each.producer_id)
        try:
            found = await self._ends.remembered(topic, wanted)
        except UpstreamUnavailable:
            return
        answers = {q: _answers(told, wanted[q]) for q, told in found.items()}
        for each in questions:
            if not each.answer.done():
                each.answer.set_result(answers[each.partition][each.producer_id])


def _say_nothing(questions: Iterable[_ProducerQuestion]) -> None:
    for each in questions:
        if not each.answer.done():
            each.answer.set_result(None)


def _answers(told: Remembered, producer_ids: set[int]) -> dict[int, LeaderAnswer]:
    """Returns what a leader says of producers."""
    rows, epochs = told.producers.find(producer_ids), (told.leader_epoch_before, told.leader_epoch_after)
    answers: dict[int, LeaderAnswer] = {}
    for each in producer_ids:
        row = rows.get(each)
        said = (_NOBODY, -1, NOT_OPEN) if row is None else (row.producer_epoch, row.last_sequence, row[-1])
        answers[each] = LeaderAnswer(*epochs, *said, told.high_watermark)
    return answers
