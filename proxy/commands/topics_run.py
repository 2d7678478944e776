"""What commands of `kordon topics` have a Kordon do, and what they print of it."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click
import uvloop
from click.core import ParameterSource
from rich.console import Console

from kordon.codecs.counted import counted
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.command_parts import INTERRUPTED, Failed
from kordon.proxy.commands.copied_partition import CopyStopped
from kordon.proxy.commands.copy_run import CopyRun
from kordon.proxy.commands.topic_reader import TopicUnreadable
from kordon.proxy.commands.topics_before import CannotBe, unmanaged
from kordon.proxy.commands.topics_client import RequestRefused, TopicsClient
from kordon.proxy.commands.topics_facts import TopicFacts
from kordon.proxy.commands.topics_progress import Look, ProgressLines, followed, watch
from kordon.proxy.commands.topics_target import TargetFlags, TargetUnknown, target_of
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.runtime.logs import silence
from kordon.proxy.runtime.tls import explain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from kordon.proxy.commands.topics_dry_run import DryRun

Result = TypeVar("Result")


class TopicsRun:
    """Has a Kordon do something, and prints what has come of it."""

    def __init__(self, flags: TargetFlags) -> None:
        try:
            self._address, self._upstream = target_of(os.environ, **_nearest(flags))
        except TargetUnknown as error:
            raise click.UsageError(str(error)) from error

    def do(self, what: str, do: Callable[[TopicsClient], Awaitable[str]]) -> None:
        """Does something, and prints what it has become and how long it took."""
        began = time.monotonic()
        click.echo(shown(f"{self.ask(what, do)} ({time.monotonic() - began:.1f} s)"))

    def change(
        self, topic: str, what: str, do: Callable[[TopicsClient], Awaitable[str]], *, wait: bool, as_json: bool
    ) -> None:
        """Changes a topic, tells what that waits for, and prints what it has become and how long it took.

        Args:
            wait: Until it is done. Else only until it continues by itself.
        """
        began = time.monotonic()
        lines, look = ProgressLines(what, as_json=as_json), Look(self.connect)
        clients: list[TopicsClient] = []
        goes_on = f"{what} continues without this command; kordon topics watch {topic} shows it"

        async def change(client: TopicsClient) -> str | None:
            clients.append(client)
            try:
                return await followed(do(client), partial(look.at, topic), partial(lines.tell, topic), wait=wait)
            finally:
                look.close()

        try:
            with lines:
                done = self._run(what, change)
        except KeyboardInterrupt:
            lines.end(topic, goes_on if any(each.changes for each in clients) else f"{what}: nothing was changed")
            sys.exit(INTERRUPTED)
        lines.end(topic, goes_on if done is None else done, None if done is None else time.monotonic() - began)

    def plan(self, topic: str, plan: Callable[[TopicsClient, TopicFacts], Awaitable[DryRun]], *, as_json: bool) -> None:
        """Prints what would be done, or why it would be refused, which is a failure; changes nothing."""
        found = self.ask(f"looking at {topic}", lambda client: plan(client, self.facts(topic)))
        if as_json:
            ProgressLines.write({"topic": topic, "dry_run": found.facts, "refused": found.refusals})
        elif found.text:
            click.echo(shown(found.text, keeps_lines=True))
        if found.refusals:
            raise Failed(found.problem + self._hint(found.problem))

    def facts(self, topic: str) -> TopicFacts:
        """Returns what asks for the facts of a topic."""
        return TopicFacts(topic, self._address, self._upstream)

    def copy(self, topic: str, target: str, groups: Sequence[str] | None, *, as_json: bool) -> None:
        """Copies a topic, tells how far that is, and prints what has come of it.

        Args:
            groups: Those to be handed over, none of them: all. None: the copy is not finished.
        """
        began, what = time.monotonic(), f"copying {topic} to {target}"
        lines = ProgressLines(what, as_json=as_json)
        run = CopyRun(self.connect, self._upstream, topic, target, lines)
        try:
            with lines, silence():
                done = self._run(what, partial(run.run, groups=groups))
        except KeyboardInterrupt:
            lines.end(topic, f"{what}: stopped; the same command continues from there")
            sys.exit(INTERRUPTED)
        except (CopyStopped, TopicUnreadable) as stopped:
            raise Failed(f"{what}: {stopped}") from stopped
        lines.end(topic, done, time.monotonic() - began)

    def watch(self, topic: str | None, *, as_json: bool) -> None:
        """Tells the states of topics until nothing is left to wait for."""
        lines = ProgressLines(f"looking at {topic or 'the managed topics'}", as_json=as_json)
        try:
            states = self.watched(None if topic is None else [topic], lines, all)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        if topic is not None and topic not in states:
            raise Failed(unmanaged(topic))
        for name, state in states.items() if topic is not None else ():
            lines.end(name, f"{name}: {state}")
        if topic is None:
            lines.end("", f"{counted(len(states), 'managed topic')}, nothing to wait for")

    def states(self, topics: list[str]) -> Mapping[str, str]:
        """Asks in words what happens with topics."""
        return self.ask("looking at topics", lambda client: client.states(topics))

    def watched(
        self, topics: list[str] | None, lines: ProgressLines, is_enough: Callable[[Iterable[bool]], bool]
    ) -> Mapping[str, str]:
        """Tells the states of topics, or of all, until enough of them are settled; returns the last ones."""

        async def look(client: TopicsClient) -> Mapping[str, str]:
            client.close()  # it has shown that a Kordon is there
            watching = Look(self.connect)
            try:
                return await watch(watching, topics, lines, is_enough)
            finally:
                watching.close()

        with lines:
            return self._run("watching", look)

    def ask(self, what: str, do: Callable[[TopicsClient], Awaitable[Result]]) -> Result:
        """Does something on a connection; whatever fails is one line and exit code 1."""
        with Console(stderr=True).status(f"{what} …"):
            return self._run(what, do)

    async def connect(self) -> TopicsClient:
        """Opens a connection.

        Raises:
            OSError: A TLS file cannot be used.
            UpstreamUnavailable: No Kordon answers.
        """
        client = TopicsClient(self._address, self._upstream)
        await client.open()
        return client

    def _run(self, what: str, do: Callable[[TopicsClient], Awaitable[Result]]) -> Result:
        async def connected() -> Result:
            try:
                client = await self.connect()
            except OSError as error:
                raise Failed(f"--ca, --certificate or --key cannot be used: {explain(error)}") from error
            except UpstreamUnavailable as error:
                cure = "check --bootstrap and the options of TLS and log-in"
                raise Failed(f"no Kordon answers at {error}; {cure}") from error
            try:
                return await do(client)
            finally:
                client.close()

        try:
            return uvloop.run(connected())
        except CannotBe as refusal:
            raise Failed(str(refusal)) from refusal
        except RequestRefused as refusal:
            raise Failed(f"{refusal}{self._hint(str(refusal))}") from refusal
        except UpstreamUnavailable as error:
            raise Failed(f"{what}: {error}") from error

    def _hint(self, problem: str) -> str:
        return f"; is {self._address} a broker, not a Kordon?" if "Unknown topic config" in problem else ""


def _nearest(flags: TargetFlags) -> TargetFlags:
    """Leaves out an address of the environment where the command line names a configuration, which has one."""
    source = click.get_current_context().get_parameter_source
    is_given = (
        source("bootstrap") is not ParameterSource.ENVIRONMENT or source("file") is not ParameterSource.COMMANDLINE
    )
    return flags if is_given else {**flags, "bootstrap": None}
