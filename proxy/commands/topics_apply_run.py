"""Does what `kordon topics apply` has worked out, topic by topic, and waits where one has to be settled first."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from kordon.codecs.shown_text import shown
from kordon.proxy.commands.command_parts import INTERRUPTED, Failed
from kordon.proxy.commands.topics_apply import CannotApply, TopicStep
from kordon.proxy.commands.topics_meaning import ManageAsked, Way, managing
from kordon.proxy.commands.topics_progress import ProgressLines, is_under_way

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kordon.proxy.commands.topics_client import TopicsClient
    from kordon.proxy.commands.topics_file import WantedTopic
    from kordon.proxy.commands.topics_run import TopicsRun


def explain_managing(wanted: Sequence[WantedTopic], steps: Sequence[TopicStep]) -> None:
    """Says what it means for the users of topics that become managed ones."""
    by_name = {each.name: each for each in wanted}
    for step in steps:
        topic = by_name[step.topic]
        if step.takes_over is not None and topic.virtual_partitions is not None:
            way: Way = "quiesced" if topic.quiesced else "online"
            asked = ManageAsked(topic.name, topic.virtual_partitions, way, topic.transition_seconds, topic.janitor)
            click.echo("\n" + managing(asked, step.takes_over))


class ApplyRun:
    """Does steps; where one fails, the rest of its topic is left, and others continue.

    Args:
        wait: Whether to wait for takeovers and other changes, and until a growth or a shrink is done.
    """

    def __init__(self, kordon: TopicsRun, *, wait: bool) -> None:
        self._kordon, self._wait = kordon, wait
        self._lines = ProgressLines("waiting until topics are settled")
        self.failed: dict[str, str] = {}
        """By topic, a line."""
        self.left: dict[str, TopicStep] = {}
        """By topic, what has to wait until something else has ended."""

    def do(self, steps: Sequence[TopicStep]) -> None:
        """Does all steps, or tells which are left. Takeovers of several topics continue side by side."""
        try:
            for step in steps:
                self._try(step)
            while self.left and self._wait:
                self._do_settled()
        except KeyboardInterrupt:
            self._tell_left({})
            sys.exit(INTERRUPTED)
        if self.left:
            self._tell_left(self._kordon.states(list(self.left)))

    def _do_settled(self) -> None:
        """Waits until one topic of those that are left is settled, and continues with it."""
        try:
            states = self._kordon.watched(list(self.left), self._lines, any)
        except Failed as failure:
            self.failed |= {name: f"{name}: {step.text}: {failure.message}" for name, step in self.left.items()}
            self.left.clear()
            return
        for name in [each for each in self.left if not is_under_way(states.get(each))]:
            self._try(self.left.pop(name))

    def _try(self, step: TopicStep) -> None:
        if step.topic in self.failed:
            return
        try:
            self._do_one(step)
        except (Failed, CannotApply) as failure:
            self.failed[step.topic] = f"{step.topic}: {step.text}: {failure}"

    def _do_one(self, step: TopicStep) -> None:
        if step.resizes and is_under_way(self._kordon.states([step.topic]).get(step.topic)):
            self.left[step.topic] = step
            return
        do, wait = partial(_do_step, step), self._wait or not step.resizes
        self._kordon.change(step.topic, f"{step.topic}: {step.text}", do, wait=wait, as_json=False)

    def _tell_left(self, states: Mapping[str, str]) -> None:
        for name, step in self.left.items():
            click.echo(shown(f"{name}: not done yet: {step.text}"))
            if name in states:
                click.echo(shown(f"{name}: {states[name]}"))
        click.echo("run this command again when that is over; kordon topics watch shows it")


async def _do_step(step: TopicStep, client: TopicsClient) -> str:
    await step.do(client)
    return f"{step.topic}: done: {step.text}"
