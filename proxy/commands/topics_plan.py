"""What managing, growing, shrinking and letting go of a topic would do, worked out without asking for it.

The real commands ask the same questions first. What Kordon itself would refuse is asked of it (validate_only).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from shlex import quote
from typing import Final, TypeAlias

from kordon.codecs.counted import counted, numbered, ranges, size
from kordon.codecs.error_codes import Code
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.topics_before import CannotBe, managed_already, to_change, to_manage, to_resize
from kordon.proxy.commands.topics_client import PartitionCounts, RequestRefused, TopicsClient
from kordon.proxy.commands.topics_facts import Logs, TopicFacts
from kordon.proxy.commands.topics_meaning import ManageAsked, managing, unmanaging
from kordon.proxy.commands.topics_progress import is_under_way
from kordon.proxy.ordering.hashing import LARGEST_PARTITIONS, homes, why_not

_MOST_NAMED: Final = 10
"""Groups that are named; of more, how many there are."""
_GIVE: Final = "give it by kafka-acls.sh --add --allow-principal User:NAME"
_LACKING: Final = frozenset({None, "", "Topic authorization failed."})
"""What is said where whoever asks lacks a right."""
_Check: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a command would do.

    Attributes:
        lines: For people.
        facts: For programs; JSON can take them.
        refusals: Why it would be refused now; none: it would be done.
        command: That does it; empty: there is nothing to do.
    """

    topic: str
    lines: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    refusals: tuple[str, ...] = ()
    command: str = ""

    @property
    def text(self) -> str:
        """All of it that is printed where nothing is refused."""
        ending = [f"Nothing was changed. To do it: {self.command}"] if self.command and not self.refusals else []
        return "\n".join([*self.lines, *ending])

    @property
    def problem(self) -> str:
        """Why it would be refused, for people; empty: it would be done."""
        before = "It would be refused now: " if self.lines else ""
        return "\n".join(before + each for each in self.refusals)


async def plan_resize(
    client: TopicsClient, facts: TopicFacts, topic: str, count: int, *, grows: bool | None = None
) -> DryRun:
    """Says which virtual partitions move where when a topic gets another number of partitions.

    Args:
        count: U, the partitions that it is to have.
        grows: They are more than now, as somebody says; None: nobody does.

    Raises:
        UpstreamUnavailable: No answer.
    """
    try:
        counts = await to_resize(client, topic, count, grows=grows)
        if problem := why_not(counts.initial, count, counts.virtual):
            raise CannotBe(f"{topic} cannot have {counted(count, 'partition')}: {problem}")
    except (CannotBe, RequestRefused) as refusal:
        return DryRun(topic, refusals=(_with_cure(refusal, topic, "DescribeConfigs"),))
    if counts.physical == count:
        return DryRun(topic, (f"{topic} has {counted(count, 'partition')} already",))
    state = await _state(client, topic)
    sizes = await facts.sizes(min(counts.virtual, LARGEST_PARTITIONS))
    leads = await _leads(client, topic, counts)
    change = _Resize(topic, counts, count, sizes, leads)
    refusals = await _refusals(lambda: client.resize(topic, count, only_checked=True), topic, "Alter")
    return DryRun(
        topic,
        (*_now(topic, state), *change.lines(), *_unknown(facts)),
        {**change.facts(), "state": state, "unknown": facts.unknown},
        refusals,
        f"kordon topics {change.verb} {quote(topic)} {count}",
    )


async def plan_managing(client: TopicsClient, facts: TopicFacts, asked: ManageAsked) -> DryRun:
    """Says what becomes of a topic that is to be managed, of its users and of its new records.

    Raises:
        UpstreamUnavailable: No answer.
    """
    topic = asked.topic
    try:
        physical = await to_manage(client, asked)
        if physical is None:
            return DryRun(topic, (managed_already(asked),))
        if problem := why_not(physical, physical, asked.virtual):
            raise CannotBe(f"INVALID_PARTITIONS: {problem}")
    except (CannotBe, RequestRefused) as refusal:
        return DryRun(topic, refusals=(_with_cure(refusal, topic, "DescribeConfigs"),))
    found = await look(client, facts, topic, physical)
    refusals = await _why_not_managed(client, facts, asked, found)
    waits = bool(found.logs is None or found.logs.records) and physical < asked.virtual
    return DryRun(
        topic,
        _before(found, facts, asked),
        {
            "do": "manage",
            "partitions": physical,
            "virtual_partitions": asked.virtual,
            "takeover": asked.way,
            **found.facts(),
            "waiting_percent": asked.share_of_new(physical) if waits and asked.way != "delivering" else 0,
            "transition_seconds": asked.wait_seconds if waits else 0,
            "unknown": facts.unknown,
        },
        refusals,
        asked.command,
    )


async def before_managing(client: TopicsClient, facts: TopicFacts, asked: ManageAsked, physical: int) -> str:
    """Says what a topic holds that is to be managed, and what that means.

    Args:
        physical: The partitions that it has.

    Raises:
        RequestRefused: There is no such topic that may be seen.
        UpstreamUnavailable: No answer.
    """
    return "\n".join(_before(await look(client, facts, asked.topic, physical), facts, asked))


def _before(found: Holding, facts: TopicFacts, asked: ManageAsked) -> tuple[str, ...]:
    return (*found.lines(), managing(asked, len(found.leads)).rstrip("\n"), *_unknown(facts))


async def _why_not_managed(
    client: TopicsClient, facts: TopicFacts, asked: ManageAsked, found: Holding
) -> tuple[str, ...]:
    check = partial(
        client.manage,
        asked.topic,
        asked.virtual,
        takeover=asked.way,
        transition_ms=asked.transition_ms,
        janitor=asked.janitor,
        only_checked=True,
    )
    refusals = await _refusals(check, asked.topic, "AlterConfigs")
    if asked.way == "quiesced" and found.logs is not None and found.logs.records and not refusals:
        return tuple(filter(None, [await facts.why_not_quiesced(found.logs)]))
    return refusals


async def plan_unmanaging(client: TopicsClient, facts: TopicFacts, topic: str) -> DryRun:
    """Says what becomes of a topic that is to be let go, and of its groups.

    Raises:
        UpstreamUnavailable: No answer.
    """
    try:
        counts = await to_change(client, topic)
    except (CannotBe, RequestRefused) as refusal:
        return DryRun(topic, refusals=(_with_cure(refusal, topic, "DescribeConfigs"),))
    state = await _state(client, topic)
    logs = await facts.logs(counts.virtual)
    groups = None if logs is None else await facts.groups(logs)
    losing = [f"Groups with committed offsets: {_names(groups)}"] if groups else []
    return DryRun(
        topic,
        (*_now(topic, state), unmanaging(topic, counts.physical).rstrip("\n"), *losing, *_unknown(facts)),
        {
            "do": "unmanage",
            "partitions": counts.physical,
            "virtual_partitions": counts.virtual,
            "groups": None if groups is None else sorted(groups),
            "state": state,
            "unknown": facts.unknown,
        },
        await _refusals(lambda: client.unmanage(topic, only_checked=True), topic, "AlterConfigs"),
        f"kordon topics unmanage {quote(topic)}",
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """What an ordinary topic holds, where, and for whom; None: that is not known."""

    topic: str
    leads: Mapping[int, int]
    """By partition, the broker that leads it."""
    bytes: int | None
    logs: Logs | None
    groups: Mapping[str, int] | None
    """By name, the records that it has to go."""

    def lines(self) -> Iterator[str]:
        """Says so."""
        held = "" if self.logs is None else f", {counted(self.logs.records, 'record')}"
        bytes_ = "" if self.bytes is None else f", {size(self.bytes)}"
        yield f"{self.topic}: {counted(len(self.leads), 'partition')}{_on(self.leads.values())}{held}{bytes_}"
        yield from _unled(self.leads)
        if self.groups is not None:
            yield _waited_for(self.groups)

    def facts(self) -> dict[str, object]:
        """Returns the same for programs."""
        return {
            "brokers": {str(q): node for q, node in sorted(self.leads.items())},
            "records": None if self.logs is None else self.logs.records,
            "bytes": self.bytes,
            "groups": self.groups,
        }


async def look(client: TopicsClient, facts: TopicFacts, topic: str, physical: int) -> Holding:
    """Asks what an ordinary topic holds.

    Raises:
        RequestRefused: There is no such topic that may be seen.
        UpstreamUnavailable: No answer.
    """
    leads = await client.leaders(topic)
    logs = await facts.logs(physical)
    groups = None if logs is None else await facts.groups(logs)
    return Holding(topic, leads, _sum(await facts.sizes(physical), range(physical)), logs, groups)


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
        if self.count > before:
            coming = numbered("partition", range(before, self.count))
            yield f"The brokers get {coming} of {self.topic}, unless they are there."
        else:
            retired = range(self.count, before)
            are, their = ("is", "its") if len(retired) == 1 else ("are", "their")
            stay = f"{their} records stay readable until retention takes them."
            yield f"{numbered('partition', retired).capitalize()} {are} retired: {stay}"

    def _where(self) -> Iterator[str]:
        verb = "lies" if len(self.held) == 1 else "lie"
        where = _on(self.leads[q] for q in self.held if q in self.leads)
        holds = "" if self.bytes is None else f", {size(self.bytes)}"
        if where:
            yield f"{numbered('partition', self.held).capitalize()} {verb}{where}{holds}: nothing of that is copied."
        yield from _unled({q: self.leads[q] for q in self.held if q in self.leads})

    @property
    def bytes(self) -> int | None:
        """Of the partitions that virtual ones leave or come to; None: not all are known."""
        return _sum(self.sizes, self.held)

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


async def _state(client: TopicsClient, topic: str) -> str | None:
    return (await client.states([topic])).get(topic)


async def _refusals(check: _Check, topic: str, right: str) -> tuple[str, ...]:
    """Asks Kordon whether it would refuse something.

    Args:
        right: On the topic, which whoever asks needs.
    """
    try:
        await check()
    except RequestRefused as refusal:
        return (_with_cure(refusal, topic, right),)
    return ()


def _with_cure(refusal: CannotBe | RequestRefused, topic: str, right: str) -> str:
    """Says why something is refused, and what would help.

    Args:
        right: On the topic, which whoever asks needs; what Kordon itself lacks is named by Kordon.
    """
    cure = ""
    if isinstance(refusal, RequestRefused) and refusal.code == Code.REQUEST_TIMED_OUT:
        cure = "; kordon status shows which brokers are up"
    if (
        isinstance(refusal, RequestRefused)
        and refusal.says in _LACKING
        and refusal.code == Code.TOPIC_AUTHORIZATION_FAILED
    ):
        cure = f"; you lack {right} on {topic}: {_GIVE} --operation {right} --topic {quote(topic)}"
    return f"{refusal}{cure}"


def _now(topic: str, state: str | None) -> list[str]:
    return [f"{topic} now: {shown(state)}"] if state is not None and is_under_way(state) else []


def _unknown(facts: TopicFacts) -> Iterator[str]:
    for what, why in facts.unknown.items():
        yield f"Not known: {what}: {shown(why)}"


def _waited_for(groups: Mapping[str, int]) -> str:
    behind = {name: left for name, left in groups.items() if left}
    if not groups:
        return "No group has committed offsets, so none is waited for."
    if not behind:
        return f"No group has anything left to read, so none is waited for: {_names(groups)}"
    told = sorted(behind, key=lambda name: -behind[name])
    named = [f"{shown(name)} has {counted(behind[name], 'record')} to go" for name in told[:_MOST_NAMED]]
    more = f", {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    return f"Groups that are behind, and waited for: {len(behind)} of {len(groups)}: {', '.join(named)}{more}"


def _names(groups: Iterable[str]) -> str:
    names = sorted(groups)
    more = f", {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(shown, names[:_MOST_NAMED])) + more


def _on(nodes: Iterable[int]) -> str:
    """Names brokers; a partition without a leader is on none."""
    found = {node for node in nodes if node >= 0}
    return f" on {numbered('broker', found)}" if found else ""


def _unled(leads: Mapping[int, int]) -> Iterator[str]:
    if alone := [q for q, node in leads.items() if node < 0]:
        yield f"No broker leads {numbered('partition', alone)} now."


def _sum(sizes: Mapping[int, int] | None, partitions: Iterable[int]) -> int | None:
    """Adds up what partitions hold; None: that of some is not known."""
    found = [(sizes or {}).get(q) for q in partitions]
    known = [each for each in found if each is not None]
    return sum(known) if len(known) == len(found) else None
