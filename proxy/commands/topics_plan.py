"""What growing or shrinking a topic would do, worked out without asking for it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from shlex import quote
from typing import TYPE_CHECKING, Final, NamedTuple

from kordon.codecs.counted import counted, numbered, ranges, size
from kordon.codecs.shown_text import cut, shown
from kordon.proxy.commands.topics_before import CannotBe, to_resize
from kordon.proxy.commands.topics_client import PartitionCounts, TopicsClient
from kordon.proxy.commands.topics_dry_run import (
    DryRun,
    now,
    on_brokers,
    planned,
    refusals_of,
    state_of,
    total,
    unknown,
    unled,
)
from kordon.proxy.commands.topics_facts import TopicFacts
from kordon.proxy.ordering.announcing import OLDER_CURE
from kordon.proxy.ordering.hashing import LARGEST_PARTITIONS, homes, why_not

if TYPE_CHECKING:
    from kordon.proxy.kafka.transaction_coordinators import OpenTransaction

_MOST_NAMED: Final = 5


async def plan_resize(
    client: TopicsClient, facts: TopicFacts, topic: str, count: int, *, grows: bool | None = None
) -> DryRun:
    """Says which virtual partitions move where when a topic gets another number of partitions.

    Args:
        count: U, the partitions that it is to have.
        grows: Whether the user says that there are more partitions than now. None: the user says neither.

    Raises:
        UpstreamUnavailable: There is no answer.
    """
    return await planned(topic, _plan(client, facts, topic, count, grows=grows))


async def _plan(client: TopicsClient, facts: TopicFacts, topic: str, count: int, *, grows: bool | None) -> DryRun:
    counts = await to_resize(client, topic, count, grows=grows)
    if problem := why_not(counts.initial, count, counts.virtual):
        raise CannotBe(f"{topic} cannot have {counted(count, 'partition')}: {problem}")
    if counts.physical == count:
        return DryRun(topic, (f"{topic} has {counted(count, 'partition')} already",))
    state = await state_of(client, topic)
    sizes = await facts.sizes(min(counts.virtual, LARGEST_PARTITIONS))
    leads = await _leads(client, topic, counts)
    change = _Resize(topic, counts, count, sizes, leads)
    waits = older_lines(await facts.transactions() or (), time.time())
    refusals = await refusals_of(lambda: client.resize(topic, count, only_checked=True), topic, "Alter")
    return DryRun(
        topic,
        (*now(topic, state), *change.lines(), *waits.lines, *unknown(facts)),
        {**change.facts(), "transactions": waits.facts, "state": state, "unknown": facts.unknown},
        refusals,
        f"kordon topics {change.verb} {quote(topic)} {count}",
    )


class Waits(NamedTuple):
    """What a change would wait for, for people and for programs."""

    lines: tuple[str, ...]
    facts: list[dict[str, object]]


def older_lines(transactions: Iterable[OpenTransaction], now_seconds: float) -> Waits:
    """Says which transactions a change would wait for that began now (OLDER-FIRST).

    Args:
        transactions: Those that name the topic.
        now_seconds: Seconds since 1970.
    """
    found = sorted(transactions, key=lambda each: each.transactional_id)
    left = [max((each.started_ms + each.timeout_ms) / 1000 - now_seconds, 0.0) for each in found]
    rows: list[dict[str, object]] = [
        {"transactional_id": each.transactional_id, "state": each.state, "seconds_left": round(seconds, 1)}
        for each, seconds in zip(found, left, strict=True)
    ]
    if not found:
        return Waits((), rows)
    names = ", ".join(shown(cut(each.transactional_id)) for each in found[:_MOST_NAMED])
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    line = (
        f"It waits for open transactions of {names}{more}, if they have written to what moves: at most"
        f" {ceil(max(left))} s. {OLDER_CURE}"
    )
    return Waits((line,), rows)


@dataclass(frozen=True, slots=True)
class _Resize:
    """A change of a managed topic's partitions."""

    topic: str
    counts: PartitionCounts
    count: int
    sizes: Mapping[int, int] | None
    leads: Mapping[int, int]

    @property
    def verb(self) -> str:
        return "grow" if self.counts.physical < self.count else "shrink"

    @property
    def moves(self) -> list[tuple[range, int, int]]:
        n, v_count = self.counts.initial, self.counts.virtual
        return list(_moves(homes(n, self.counts.physical, v_count), homes(n, self.count, v_count)))

    @property
    def held(self) -> list[int]:
        """The present partitions that virtual ones leave or come to: a fence holds all that is written there."""
        return sorted({q for _, *both in self.moves for q in both if q < self.counts.physical})

    def lines(self) -> Iterator[str]:
        before, v_count = self.counts.physical, self.counts.virtual
        moving = sum(len(run) for run, _, _ in self.moves)
        yield f"{self.topic}: {before} → {counted(self.count, 'partition')}; clients go on seeing {v_count}"
        share = round(100 * moving / v_count)
        verb = "moves" if moving == 1 else "move"
        yield f"{moving} of {counted(v_count, 'virtual partition')} {verb}, {share} % of the keys:"
        for run, old, new in self.moves:
            yield f"  {ranges(run)} from partition {old} to {new}"
        yield (
            f"Writes to {numbered('partition', self.held)} are held for some milliseconds; others are not touched."
            " No group rebalances, and none is waited for."
        )
        yield from self._where()
        yield self._coming() if self.count > before else self._retired()

    def _coming(self) -> str:
        coming = numbered("partition", range(self.counts.physical, self.count))
        return f"The brokers get {coming} of {self.topic}, unless they have them already."

    def _retired(self) -> str:
        retired = range(self.count, self.counts.physical)
        are, their = ("is", "its") if len(retired) == 1 else ("are", "their")
        stay = f"{their} records stay readable until retention takes them."
        return f"{numbered('partition', retired).capitalize()} {are} retired: {stay}"

    def _where(self) -> Iterator[str]:
        verb = "lies" if len(self.held) == 1 else "lie"
        where = on_brokers(self.leads[q] for q in self.held if q in self.leads)
        holds = "" if self.bytes is None else f", {size(self.bytes)}"
        if where:
            yield f"{numbered('partition', self.held).capitalize()} {verb}{where}{holds}: nothing of that is copied."
        yield from unled({q: self.leads[q] for q in self.held if q in self.leads})

    @property
    def bytes(self) -> int | None:
        """Of the partitions that virtual ones leave or come to; None: not all are known."""
        return total(self.sizes, self.held)

    def facts(self) -> dict[str, object]:
        return {
            "do": self.verb,
            "partitions": self.counts.physical,
            "partitions_then": self.count,
            "virtual_partitions": self.counts.virtual,
            "moves": [{"virtual_partitions": list(run), "from": old, "to": new} for run, old, new in self.moves],
            "held_partitions": self.held,
            "brokers": {str(q): node for q, node in sorted(self.leads.items())},
            "bytes": self.bytes,
            "groups": [],
        }


def _moves(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[range, int, int]]:
    """Yields neighbours among the virtual partitions that move together, with their old and their new partition."""
    ways = zip(before, after, strict=True)
    for (old, new), run in groupby(enumerate(ways), key=lambda each: each[1]):
        if old != new:
            numbers = [v for v, _ in run]
            yield range(numbers[0], numbers[-1] + 1), old, new


async def _leads(client: TopicsClient, topic: str, counts: PartitionCounts) -> dict[int, int]:
    """Returns by partition of the brokers who leads it: whoever clients are told to lead what lives there."""
    at_home = homes(counts.initial, counts.physical, counts.virtual)
    return {at_home[v]: node for v, node in (await client.leaders(topic)).items() if v < len(at_home)}
