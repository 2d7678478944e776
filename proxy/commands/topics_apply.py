"""What brings topics to what a file says of them, worked out without asking for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kordon.codecs.counted import counted
from kordon.proxy.commands.topics_client import RequestRefused
from kordon.proxy.commands.topics_file import OWN_PREFIXES, WantedTopic
from kordon.proxy.handlers.own_configs import JANITOR
from kordon.proxy.ordering.hashing import homes, why_not

if TYPE_CHECKING:
    from kordon.proxy.commands.topics_client import TopicNow, TopicsClient

_RETENTION: Final = frozenset({"retention.ms", "retention.bytes"})
_POLICY: Final = "cleanup.policy"


@dataclass(frozen=True)
class TopicStep:
    """One thing to do with a topic."""

    topic: str
    text: str
    """Says what is done, as in "grow from 3 to 6 partitions"."""
    do: Callable[[TopicsClient], Awaitable[None]]
    check: Callable[[TopicsClient], Awaitable[None]] | None = None
    """Asks the cluster whether it may be done, and changes nothing; None: there is nothing to ask."""
    takes_over: int | None = None
    """How many partitions a topic has that becomes a managed one; None: none does."""
    resizes: bool = False
    """It changes the number of partitions of a managed topic, which takes a topic with nothing under way."""


class CannotApply(ValueError):  # noqa: N818 - says why not
    """Raised where a topic cannot become what is wanted, or would lose records; each line is one reason."""


def steps_of(wanted: WantedTopic, now: TopicNow | None, *, allows_deletion: bool = False) -> list[TopicStep]:
    """Returns what is to be done with a topic, in this order; nothing: it is as wanted.

    Args:
        now: The present topic. None: there is no such topic.
        allows_deletion: Brokers may delete records earlier than now.

    Raises:
        CannotApply: The file cannot be applied, or records would be lost.
    """
    if now is None:
        return list(_creation(wanted))
    problems: list[str] = []
    if problem := _why_not_counts(wanted, now):
        problems.append(problem)
    changed = {name: value for name, value in wanted.configs.items() if not _is_as(now, name, value)}
    if not allows_deletion:
        problems += [
            f"{name} would change from {now.value(name)} to {value or 'the default'}, and brokers would delete records"
            " earlier; --allow-deletion allows that"
            for name, value in changed.items()
            if _deletes(name, now.value(name), value)
        ]
    if problems:
        raise CannotApply("\n".join(f"{wanted.name}: {problem}" for problem in problems))
    # a topic with records cannot be resized while it is taken over, so that comes last
    return [*_managing(wanted, now), *_configs(wanted, changed, is_new=now.counts is None), *_resizing(wanted, now)]


async def steps_to(
    wanted: Iterable[WantedTopic], client: TopicsClient, *, allows_deletion: bool = False
) -> list[TopicStep]:
    """Returns what is to be done with topics, once the cluster has said that it may be.

    Raises:
        CannotApply: Something cannot be done; each line is one reason.
        UpstreamUnavailable: There is no answer.
    """
    steps: list[TopicStep] = []
    problems: list[str] = []
    for each in wanted:
        try:
            steps += steps_of(each, await client.look(each.name), allows_deletion=allows_deletion)
        except CannotApply as problem:
            problems.append(str(problem))
        except RequestRefused as refusal:
            problems.append(f"{each.name}: {refusal}")
    for step in steps:
        try:
            if step.check is not None:
                await step.check(client)
        except RequestRefused as refusal:
            problems.append(f"{step.topic}: {step.text}: {refusal}")
    if problems:
        raise CannotApply("\n".join(problems))
    return steps


def _creation(wanted: WantedTopic) -> Iterator[TopicStep]:
    name, n, v_count = wanted.name, wanted.initial_partitions or wanted.partitions, wanted.virtual_partitions
    if v_count is not None and (problem := why_not(n, n, v_count) or why_not(n, wanted.partitions, v_count)):
        raise CannotApply(f"{name}: {problem}")
    given = {config: value for config, value in wanted.configs.items() if value is not None}
    virtual = f", {counted(v_count, 'virtual partition')}" if v_count is not None else ""
    replicas = f", {counted(wanted.replicas, 'replica')}" if wanted.replicas is not None else ""
    configs = "".join(f", {config}={value}" for config, value in sorted(given.items()))
    create = partial(_create, name=name, n=n, v_count=v_count, replicas=wanted.replicas, configs=given)
    text = f"create with {counted(n, 'partition')}{virtual}{replicas}{configs}"
    yield TopicStep(name, text, create, partial(create, only_checked=True))
    if n != wanted.partitions:
        yield _resize(name, n, wanted.partitions, n, v_count or n)


def _why_not_counts(wanted: WantedTopic, now: TopicNow) -> str:
    """Says why a topic that is there cannot have the numbers of partitions that are wanted; empty if it can."""
    v_count, counts = wanted.virtual_partitions, now.counts
    n = counts.initial if counts is not None else now.partitions
    if v_count is None and counts is not None:
        virtual = counted(counts.virtual, "virtual partition")
        return f"it is managed, with {virtual}; kordon topics unmanage makes it an ordinary one"
    if v_count is None:
        if wanted.partitions > n:
            more = "more of them would break the order of its keys: give it virtual_partitions"
            return f"it has {counted(n, 'partition')}, and {more}"
        return f"it has {counted(n, 'partition')}, and brokers cannot take any away" if wanted.partitions < n else ""
    if counts is not None and counts.virtual != v_count:
        return f"it has {counted(counts.virtual, 'virtual partition')}, and that number never changes"
    if wanted.initial_partitions not in (None, n):
        return f"it began with {counted(n, 'partition')}, and that number never changes; correct initial_partitions"
    return why_not(n, n, v_count) or why_not(n, wanted.partitions, v_count) or ""


def _managing(wanted: WantedTopic, now: TopicNow) -> Iterator[TopicStep]:
    v_count = wanted.virtual_partitions
    if v_count is not None and now.counts is None:
        manage = partial(_manage, wanted=wanted, v_count=v_count)
        text = f"manage with {counted(v_count, 'virtual partition')}"
        yield TopicStep(wanted.name, text, manage, partial(manage, only_checked=True), takes_over=now.partitions)


def _resizing(wanted: WantedTopic, now: TopicNow) -> Iterator[TopicStep]:
    if wanted.virtual_partitions is None:
        return
    n, physical = now.partitions, now.partitions
    if now.counts is not None:
        n, physical = now.counts.initial, now.counts.physical
    if physical != wanted.partitions:
        yield _resize(wanted.name, physical, wanted.partitions, n, wanted.virtual_partitions)


def _resize(name: str, before: int, after: int, n: int, v_count: int) -> TopicStep:
    moving = sum(old != new for old, new in zip(homes(n, before, v_count), homes(n, after, v_count), strict=True))
    verb = "grow" if before < after else "shrink"
    change = f"{verb} from {before} to {counted(after, 'partition')}"
    text = f"{change}: {moving} of {counted(v_count, 'virtual partition')} {'moves' if moving == 1 else 'move'}"
    return TopicStep(name, text, partial(_do_resize, name=name, count=after), resizes=True)


def _configs(wanted: WantedTopic, changed: Mapping[str, str | None], *, is_new: bool) -> Iterator[TopicStep]:
    """Kordon's own configs come first: a topic must have its janitor before it is compacted."""
    own = {name: value for name, value in changed.items() if name.startswith(OWN_PREFIXES)}
    if is_new and wanted.janitor:
        own.pop(JANITOR, None)  # it is managed with it
    others = {name: value for name, value in changed.items() if name not in own and name != JANITOR}
    for values in filter(None, (own, others)):
        says = ", ".join(
            f"{name}={value}" if value is not None else f"{name} to its default" for name, value in values.items()
        )
        alter = partial(_alter, name=wanted.name, values=values)
        # brokers are not asked about Kordon's own of a topic that is not managed yet
        check = None if is_new and values is own else partial(alter, only_checked=True)
        yield TopicStep(wanted.name, f"set {says}", alter, check)


def _is_as(now: TopicNow, name: str, value: str | None) -> bool:
    """Whether a config has a value already, however it is written."""
    if value is None:
        return not now.is_set(name)
    standing = now.value(name)
    if standing is None or value == standing:
        return value == standing
    try:
        return float(value) == float(standing)
    except ValueError:
        return _words(value) == _words(standing)


def _deletes(name: str, before: str | None, after: str | None) -> bool:
    """Whether brokers delete records with one value that they keep with another."""
    if name == _POLICY:
        return after is None or not _words(after) <= _words(before or "")
    if name not in _RETENTION:
        return False
    kept = [float("inf") if value in (None, "-1") else _number(value) for value in (before, after)]
    return after is None or kept[1] < kept[0]


def _number(value: str | None) -> float:
    try:
        return float(value or "")
    except ValueError:
        return 0.0  # brokers say what is wrong with it


def _words(value: str) -> frozenset[str]:
    return frozenset(word.strip() for word in value.split(",") if word.strip())


async def _create(
    client: TopicsClient,
    *,
    name: str,
    n: int,
    v_count: int | None,
    replicas: int | None,
    configs: Mapping[str, str],
    only_checked: bool = False,
) -> None:
    await client.create(name, n, v_count, replicas=replicas, configs=configs, only_checked=only_checked)


async def _manage(client: TopicsClient, *, wanted: WantedTopic, v_count: int, only_checked: bool = False) -> None:
    transition_ms = None if wanted.transition_seconds is None else wanted.transition_seconds * 1000
    await client.manage(
        wanted.name,
        v_count,
        takeover="quiesced" if wanted.quiesced else "online",
        transition_ms=transition_ms,
        janitor=wanted.janitor,
        only_checked=only_checked,
    )


async def _do_resize(client: TopicsClient, *, name: str, count: int) -> None:
    counts = await client.counts(name)
    if counts is None:  # a broker would grow an ordinary topic, and break the order of its keys
        raise CannotApply("the topic is not managed any more")
    if counts.physical != count:
        await client.resize(name, count)


async def _alter(
    client: TopicsClient, *, name: str, values: Mapping[str, str | None], only_checked: bool = False
) -> None:
    await client.set_configs(name, values, only_checked=only_checked)
