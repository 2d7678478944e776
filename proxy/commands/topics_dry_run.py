"""What a command would do that is only tried: for people, for programs, and with why it would be refused.

What Kordon itself would refuse is asked of it (validate_only).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Final, TypeAlias

from kordon.codecs.counted import numbered
from kordon.codecs.error_codes import Code
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.topics_before import CannotBe
from kordon.proxy.commands.topics_client import RequestRefused, TopicsClient
from kordon.proxy.commands.topics_facts import TopicFacts
from kordon.proxy.commands.topics_progress import is_under_way

_GIVE: Final = "give it by kafka-acls.sh --add --allow-principal User:NAME"
_LACKING: Final = frozenset({None, "", "Topic authorization failed."})
"""What is said where whoever asks lacks a right."""
_Check: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a command would do.

    Attributes:
        lines: The lines for people.
        facts: The figures for programs, which JSON can represent.
        refusals: Why it would be refused now; none: it would be done.
        command: The command that makes the change. Empty: there is nothing to do.
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


async def planned(topic: str, planning: Awaitable[DryRun]) -> DryRun:
    """Returns what is planned; where a question before it is refused, that refusal.

    Raises:
        UpstreamUnavailable: There is no answer.
    """
    try:
        return await planning
    except (CannotBe, RequestRefused) as refusal:
        return DryRun(topic, refusals=(_with_cure(refusal, topic, "DescribeConfigs"),))


async def state_of(client: TopicsClient, topic: str) -> str | None:
    """Asks in words what happens with a topic; None: it is not managed.

    Raises:
        RequestRefused: There is no such topic that may be seen.
        UpstreamUnavailable: There is no answer.
    """
    return (await client.states([topic])).get(topic)


async def refusals_of(check: _Check, topic: str, right: str) -> tuple[str, ...]:
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
    code, says = (refusal.code, refusal.says) if isinstance(refusal, RequestRefused) else (Code.NONE, None)
    if code == Code.REQUEST_TIMED_OUT:
        return f"{refusal}; kordon status shows which brokers are up"
    if code == Code.TOPIC_AUTHORIZATION_FAILED and says in _LACKING:
        return f"{refusal}; you lack {right} on {topic}: {_GIVE} --operation {right} --topic {quote(topic)}"
    return str(refusal)


def now(topic: str, state: str | None) -> list[str]:
    """Says what happens with a topic, if anything does."""
    return [f"{topic} now: {shown(state)}"] if state is not None and is_under_way(state) else []


def unknown(facts: TopicFacts) -> Iterator[str]:
    """Says what was asked for and is not known."""
    for what, why in facts.unknown.items():
        yield f"Not known: {what}: {shown(why)}"


def on_brokers(nodes: Iterable[int]) -> str:
    """Names brokers; a partition without a leader is on none."""
    found = {node for node in nodes if node >= 0}
    return f" on {numbered('broker', found)}" if found else ""


def unled(leads: Mapping[int, int]) -> Iterator[str]:
    """Says which partitions have no leader."""
    if alone := [q for q, node in leads.items() if node < 0]:
        yield f"No broker leads {numbered('partition', alone)} now."


def total(sizes: Mapping[int, int] | None, partitions: Iterable[int]) -> int | None:
    """Adds up what partitions hold; None: that of some is not known."""
    found = [(sizes or {}).get(q) for q in partitions]
    known = [each for each in found if each is not None]
    return sum(known) if len(known) == len(found) else None
