"""What managing a topic, or letting it go, would do, worked out without asking for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import Final

from kordon.codecs.counted import counted, size
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.topics_before import CannotBe, managed_already, to_change, to_manage
from kordon.proxy.commands.topics_client import TopicsClient
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
from kordon.proxy.commands.topics_facts import Logs, TopicFacts
from kordon.proxy.commands.topics_meaning import ManageAsked, managing, unmanaging
from kordon.proxy.ordering.hashing import why_not

_MOST_NAMED: Final = 10
"""Groups that are named; of more, how many there are."""


async def plan_managing(client: TopicsClient, facts: TopicFacts, asked: ManageAsked) -> DryRun:
    """Says what becomes of a topic that is to be managed, of its users and of its new records.

    Raises:
        UpstreamUnavailable: There is no answer.
    """
    return await planned(asked.topic, _plan_managing(client, facts, asked))


async def _plan_managing(client: TopicsClient, facts: TopicFacts, asked: ManageAsked) -> DryRun:
    physical = await to_manage(client, asked)
    if physical is None:
        return DryRun(asked.topic, (managed_already(asked),))
    if problem := why_not(physical, physical, asked.virtual):
        raise CannotBe(f"INVALID_PARTITIONS: {problem}")
    found = await _look(client, facts, asked.topic, physical)
    refusals = await _why_not_managed(client, facts, asked, found)
    told = {**_facts(found, asked), "unknown": facts.unknown}
    return DryRun(asked.topic, _before(found, facts, asked), told, refusals, asked.command)


def _facts(found: _Holding, asked: ManageAsked) -> dict[str, object]:
    physical = len(found.leads)
    waits = bool(found.logs is None or found.logs.records) and physical < asked.virtual
    return {
        "do": "manage",
        "partitions": physical,
        "virtual_partitions": asked.virtual,
        "takeover": asked.way,
        **found.facts(),
        "waiting_percent": asked.share_of_new(physical) if waits and asked.way != "delivering" else 0,
        "transition_seconds": asked.wait_seconds if waits else 0,
    }


async def before_managing(client: TopicsClient, facts: TopicFacts, asked: ManageAsked, physical: int) -> str:
    """Says what a topic holds that is to be managed, and what that means.

    Args:
        physical: The partitions that it has.

    Raises:
        RequestRefused: There is no such topic that may be seen.
        UpstreamUnavailable: There is no answer.
    """
    return "\n".join(_before(await _look(client, facts, asked.topic, physical), facts, asked))


def _before(found: _Holding, facts: TopicFacts, asked: ManageAsked) -> tuple[str, ...]:
    return (*found.lines(), managing(asked, len(found.leads)).rstrip("\n"), *unknown(facts))


async def _why_not_managed(
    client: TopicsClient, facts: TopicFacts, asked: ManageAsked, found: _Holding
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
    refusals = await refusals_of(check, asked.topic, "AlterConfigs")
    if asked.way == "quiesced" and found.logs is not None and found.logs.records and not refusals:
        return tuple(filter(None, [await facts.why_not_quiesced(found.logs)]))
    return refusals


async def plan_unmanaging(client: TopicsClient, facts: TopicFacts, topic: str) -> DryRun:
    """Says what becomes of a topic that is to be let go, and of its groups.

    Raises:
        UpstreamUnavailable: There is no answer.
    """
    return await planned(topic, _plan_unmanaging(client, facts, topic))


async def _plan_unmanaging(client: TopicsClient, facts: TopicFacts, topic: str) -> DryRun:
    counts = await to_change(client, topic)
    state = await state_of(client, topic)
    logs = await facts.logs(counts.virtual)
    groups = None if logs is None else await facts.groups(logs)
    losing = [f"Groups with committed offsets: {_names(groups)}"] if groups else []
    return DryRun(
        topic,
        (*now(topic, state), unmanaging(topic, counts.physical).rstrip("\n"), *losing, *unknown(facts)),
        {
            "do": "unmanage",
            "partitions": counts.physical,
            "virtual_partitions": counts.virtual,
            "groups": None if groups is None else sorted(groups),
            "state": state,
            "unknown": facts.unknown,
        },
        await refusals_of(lambda: client.unmanage(topic, only_checked=True), topic, "AlterConfigs"),
        f"kordon topics unmanage {quote(topic)}",
    )


@dataclass(frozen=True, slots=True)
class _Holding:
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
        yield f"{self.topic}: {counted(len(self.leads), 'partition')}{on_brokers(self.leads.values())}{held}{bytes_}"
        yield from unled(self.leads)
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


async def _look(client: TopicsClient, facts: TopicFacts, topic: str, physical: int) -> _Holding:
    """Asks what an ordinary topic holds.

    Raises:
        RequestRefused: There is no such topic that may be seen.
        UpstreamUnavailable: There is no answer.
    """
    leads = await client.leaders(topic)
    logs = await facts.logs(physical)
    groups = None if logs is None else await facts.groups(logs)
    return _Holding(topic, leads, total(await facts.sizes(physical), range(physical)), logs, groups)


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
