"""`kordon topics`: shows managed topics, and has topics managed, grown, shrunk and let go.

What shows something asks the admin address of a Kordon. What changes something goes through its Kafka port, as requests
that any admin client can send, so that the cluster's own rights decide.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar, Unpack

import click
import uvloop
from click.core import ParameterSource

from kordon.codecs.counted import counted
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.topics_before import (
    CannotBe,
    managed_already,
    to_change,
    to_manage,
    to_resize,
    unmanaged,
)
from kordon.proxy.commands.topics_target import Command, TargetFlags, TargetUnknown, target_of, target_options
from kordon.proxy.config.config import HostPort

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from kordon.proxy.commands.topics_apply import Step
    from kordon.proxy.commands.topics_client import TopicsClient
    from kordon.proxy.commands.topics_dry_run import DryRun
    from kordon.proxy.commands.topics_facts import TopicFacts
    from kordon.proxy.commands.topics_file import WantedTopic
    from kordon.proxy.commands.topics_meaning import Way
    from kordon.proxy.commands.topics_progress import ProgressLines
    from kordon.proxy.process.explain import Facts

_FILE_COLUMNS: Final = 200
"""Where nobody looks at a terminal, lines are for tools."""
DEFAULT_ADMIN: Final = "127.0.0.1:9190"
Result = TypeVar("Result")

_LEFT: Final = 3
"""The exit code where something is left to do, and the command is to be run again."""
_INTERRUPTED: Final = 130
"""The exit code of what Ctrl-C has ended, as shells have it."""


class Failed(click.ClickException):
    """Raised to end with exit code 1 and one line that says why."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints the line."""
        click.echo(shown(self.message, keeps_lines=True), err=True)


def _admin_options(command: Command) -> Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the answer of the admin page as JSON."),
        click.option(
            "--admin",
            metavar="HOST:PORT",
            envvar="KORDON_ADMIN__ADDRESS",
            show_envvar=True,
            default=DEFAULT_ADMIN,
            show_default=True,
            help="The admin address of the Kordon to ask.",
        ),
    ):
        command = option(command)
    return command


def _change_options(command: Command) -> Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object."),
        click.option(
            "--wait/--no-wait",
            default=True,
            show_default=True,
            help="Wait until it is done, and say what for. Or return as soon as it goes on by itself.",
        ),
        click.option("--dry-run", is_flag=True, help="Say what would be done, or why not, and change nothing."),
    ):
        command = option(command)
    return target_options(command)


@click.group(name="topics")
def topics() -> None:
    """Shows managed topics, manages topics, and changes their numbers of partitions.

    \b
    Examples:
      kordon topics list
      kordon topics explain orders
      kordon topics manage orders --virtual 48 --bootstrap kordon:19092
      kordon topics grow orders 6 --bootstrap kordon:19092
      kordon topics shrink orders 3 --config kordon.yaml
    """  # noqa: D301


@topics.command(name="list")
@_admin_options
def list_topics(admin: str, *, as_json: bool) -> None:
    """Lists the managed topics and the changes under way.

    \b
    Examples:
      kordon topics list
      kordon topics list --admin 10.0.0.7:9190 --json
    """  # noqa: D301
    page = _fetch(admin, "/topics")
    if page is None:
        raise Failed(f"the Kordon at {admin} has no managed topics: its version is too old")
    if as_json:
        _print_json(page)
    else:
        from kordon.proxy.commands.topics_tables import draw_all  # noqa: PLC0415

        _draw(draw_all(page))


@topics.command()
@click.argument("topic")
@_admin_options
def describe(topic: str, admin: str, *, as_json: bool) -> None:
    """Shows the present partitions of a managed TOPIC, and why any of them is held.

    \b
    Examples:
      kordon topics describe orders
      kordon topics describe orders --json
    """  # noqa: D301
    facts = _fetch_topic(admin, topic)
    if as_json:
        _print_json({name: facts[name] for name in facts if name not in ("chains", "epochs", "control")})
    else:
        from kordon.proxy.commands.topics_tables import draw_topic  # noqa: PLC0415

        _draw(draw_topic(facts))


@topics.command()
@click.argument("topic")
@click.option(
    "--virtual", metavar="V", type=click.IntRange(min=0), help="Show only the chain of this virtual partition."
)
@_admin_options
def explain(topic: str, virtual: int | None, admin: str, *, as_json: bool) -> None:
    """Shows a managed TOPIC in full: its history, the chain of each virtual partition, and why any is held.

    \b
    Examples:
      kordon topics explain orders
      kordon topics explain orders --virtual 17
    """  # noqa: D301
    facts = _fetch_topic(admin, topic)
    if virtual is not None and virtual >= facts["virtual_partitions"]:
        raise click.BadParameter(f"{topic} has 0 to {facts['virtual_partitions'] - 1}", param_hint="--virtual")
    if as_json:
        _print_json(facts)
    else:
        from kordon.proxy.commands.topics_tables import draw_history  # noqa: PLC0415

        _draw(draw_history(facts, virtual))


@topics.command()
@click.argument("topic")
@click.option(
    "--virtual",
    metavar="V",
    required=True,
    type=click.IntRange(min=1),
    help="The number of partitions that clients see.",
)
@click.option(
    "--quiesced",
    is_flag=True,
    help="Nobody writes to the topic now. Kordon checks that for 10 s, waits for no client, and has all reconnect.",
)
@click.option(
    "--deliver",
    is_flag=True,
    help="No record waits: readers get what is written meanwhile at once, in the order in which it was acknowledged. "
    "For producers that place keys by hash modulo the number of partitions.",
)
@click.option(
    "--transition",
    metavar="SECONDS",
    type=click.IntRange(min=0),
    help="The time in which all clients refresh their metadata and end their writes: "
    "metadata.max.age.ms + delivery.timeout.ms.  [default: 420]",
)
@click.option(
    "--janitor",
    is_flag=True,
    help="The topic is or becomes compacted: Kordon removes the old values of keys that move.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_change_options
def manage(
    topic: str,
    virtual: int,
    *,
    quiesced: bool,
    deliver: bool,
    transition: int | None,
    janitor: bool,
    yes: bool,
    dry_run: bool,
    wait: bool,
    as_json: bool,
    **target: Unpack[TargetFlags],
) -> None:
    """Makes TOPIC managed. Clients see V virtual partitions from then on, and V never changes.

    V is the present number of partitions times a power of two. The topic can grow to V partitions, and a group can
    have V consumers.

    Kordon takes over a topic with records while its clients go on. The topic can grow once its clients have seen the
    new partitions (--transition) and its groups have read the old records. See kordon topics describe.

    \b
    Examples:
      kordon topics manage orders --virtual 48 --bootstrap kordon:19092 --dry-run
      kordon topics manage orders --virtual 48 --bootstrap kordon:19092
      kordon topics manage orders --virtual 48 --transition 900 --config kordon.yaml --yes
      kordon topics manage orders --virtual 48 --quiesced --bootstrap kordon:19092
      kordon topics manage prices --virtual 48 --janitor --bootstrap kordon:19092
    """  # noqa: D301
    from kordon.proxy.commands.topics_meaning import ManageAsked  # noqa: PLC0415

    if quiesced and deliver:
        raise click.UsageError("--quiesced and --deliver: nobody writes, or records are delivered; choose one")
    way: Way = "quiesced" if quiesced else "delivering" if deliver else "online"
    asked = ManageAsked(topic, virtual, way, transition, janitor)
    kordon = _Target(target)
    if dry_run:
        from kordon.proxy.commands.topics_plan_managing import plan_managing  # noqa: PLC0415

        kordon.plan(topic, lambda client, facts: plan_managing(client, facts, asked), as_json=as_json)
        return

    async def do(client: TopicsClient) -> str:
        await client.manage(topic, virtual, takeover=way, transition_ms=asked.transition_ms, janitor=janitor)
        return f"{topic} is managed, with {counted(virtual, 'virtual partition')}"

    physical = kordon.ask(f"looking at {topic}", lambda client: to_manage(client, asked))
    if physical is None:
        click.echo(shown(managed_already(asked)))
        return
    if not yes:
        from kordon.proxy.commands.topics_plan_managing import before_managing  # noqa: PLC0415

        before = kordon.ask(
            f"looking at {topic}", lambda client: before_managing(client, kordon.facts(topic), asked, physical)
        )
        click.echo(shown(f"{before}\n", keeps_lines=True))
        click.confirm("Continue?", abort=True)
    kordon.change(topic, f"managing {topic}", do, wait=wait, as_json=as_json)


@topics.command()
@click.argument("topic")
@click.argument("state", type=click.Choice(["on", "off"]))
@target_options
def janitor(topic: str, state: str, **target: Unpack[TargetFlags]) -> None:
    """Switches the janitor of a managed TOPIC on or off. It removes old values of keys that moved elsewhere.

    Switch it on before you set cleanup.policy to compact, and off only after you have taken compact away.

    \b
    Examples:
      kordon topics janitor prices on --bootstrap kordon:19092
      kordon topics janitor prices off --config kordon.yaml
    """  # noqa: D301

    async def do(client: TopicsClient) -> str:
        await to_change(client, topic)
        await client.set_janitor(topic, on=state == "on")
        return f"the janitor of {topic} is {state}"

    _Target(target).do(f"switching the janitor of {topic} {state}", do)


@topics.command(name="leave-out")
@click.argument("topic")
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@target_options
def leave_out(topic: str, groups: tuple[str, ...], **target: Unpack[TargetFlags]) -> None:
    """Lets the takeover of TOPIC go on without these groups, which nobody uses any more.

    kordon topics describe names the groups that the takeover waits for. If a group that is left out reads on, it may
    get new records of a key before the old ones that it has not read.

    \b
    Examples:
      kordon topics leave-out orders old-report --bootstrap kordon:19092
      kordon topics leave-out orders old-report last-year --config kordon.yaml
    """  # noqa: D301

    async def do(client: TopicsClient) -> str:
        await client.leave_out(topic, groups)
        return f"{topic} does not wait for {', '.join(groups)}"

    _Target(target).do(f"leaving groups out of the takeover of {topic}", do)


@topics.command()
@click.argument("topic")
@click.argument("count", type=click.IntRange(min=1))
@_change_options
def grow(topic: str, count: int, *, dry_run: bool, wait: bool, as_json: bool, **target: Unpack[TargetFlags]) -> None:
    """Grows a managed TOPIC to COUNT partitions. Clients see a moment of latency, and no error.

    \b
    Examples:
      kordon topics grow orders 6 --bootstrap kordon:19092 --dry-run
      kordon topics grow orders 6 --bootstrap kordon:19092
      kordon topics grow orders 6 --bootstrap kordon:19092 --ca ca.pem --username admin
    """  # noqa: D301
    _resize(topic, count, _Target(target), grows=True, dry_run=dry_run, wait=wait, as_json=as_json)


@topics.command()
@click.argument("topic")
@click.argument("count", type=click.IntRange(min=1))
@_change_options
def shrink(topic: str, count: int, *, dry_run: bool, wait: bool, as_json: bool, **target: Unpack[TargetFlags]) -> None:
    """Shrinks a managed TOPIC to COUNT partitions. Records of the others stay readable until their retention ends.

    \b
    Examples:
      kordon topics shrink orders 3 --bootstrap kordon:19092 --dry-run
      kordon topics shrink orders 3 --bootstrap kordon:19092
      kordon topics shrink orders 3 --config kordon.yaml
    """  # noqa: D301
    _resize(topic, count, _Target(target), grows=False, dry_run=dry_run, wait=wait, as_json=as_json)


@topics.command()
@click.argument("topic", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object.")
@target_options
def watch(topic: str | None, *, as_json: bool, **target: Unpack[TargetFlags]) -> None:
    """Shows what changes and takeovers of TOPIC, or of all topics, wait for, until nothing is left to wait for.

    Ctrl-C ends the command, and nothing else.

    \b
    Examples:
      kordon topics watch orders --bootstrap kordon:19092
      kordon topics watch --json --bootstrap kordon:19092
    """  # noqa: D301
    _Target(target).watch(topic, as_json=as_json)


@topics.command(name="plan")
@click.argument("topic")
@click.argument("count", type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="Print it as a JSON object.")
@target_options
def plan_change(topic: str, count: int, *, as_json: bool, **target: Unpack[TargetFlags]) -> None:
    """Shows what growing or shrinking a managed TOPIC to COUNT partitions would move. Changes nothing.

    The exit code is 1 if that would be refused now. kordon topics grow and shrink say the same with --dry-run.

    \b
    Examples:
      kordon topics plan orders 6 --bootstrap kordon:19092
      kordon topics plan orders 3 --config kordon.yaml --json
    """  # noqa: D301
    _plan_resize(topic, count, _Target(target), grows=None, as_json=as_json)


@topics.command(name="apply")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--allow-deletion", is_flag=True, help="Let brokers delete records earlier than now, if FILE says so.")
@click.option(
    "--wait/--no-wait",
    default=True,
    show_default=True,
    help="Wait for takeovers, growths and shrinks. Or end with exit code 3 if a takeover has to end first.",
)
@target_options
def apply_file(
    path: Path, *, dry_run: bool, yes: bool, allow_deletion: bool, wait: bool, **target: Unpack[TargetFlags]
) -> None:
    """Brings topics to what FILE says, a YAML file: creates, manages, grows and shrinks them, and sets configs.

    It does nothing if anything in FILE cannot be done, or would lose records. A second run has nothing to do. Topics
    and configs that FILE does not name stay as they are.

    A topic with records grows only after its takeover. The command waits for that, and says what for. With --no-wait
    it does what can be done now, and ends with exit code 3 if something is left. Run it again then.

    \b
    Example of a file:
      topics:
        - name: orders
          partitions: 6
          virtual_partitions: 48
          replicas: 3                # where the topic is created
          configs:
            retention.ms: 604800000
            min.insync.replicas: 2

    \b
    Examples:
      kordon topics apply topics.yaml --bootstrap kordon:19092 --dry-run
      kordon topics apply topics.yaml --config kordon.yaml --yes
    """  # noqa: D301
    from kordon.proxy.commands.model_file import FileUnusable, load_model  # noqa: PLC0415
    from kordon.proxy.commands.topics_apply import CannotApply, steps_to  # noqa: PLC0415
    from kordon.proxy.commands.topics_file import WantedTopics  # noqa: PLC0415

    try:
        wanted = load_model(path, WantedTopics).topics
    except FileUnusable as error:
        raise click.UsageError(str(error)) from error
    kordon = _Target(target)
    work_out = partial(steps_to, wanted, allows_deletion=allow_deletion)
    try:
        steps = kordon.ask("looking at topics", work_out)
    except CannotApply as refusal:
        raise Failed(f"{refusal}\nnothing was changed") from refusal
    for step in steps:
        click.echo(shown(f"{step.topic}: {step.text}"))
    if not steps or dry_run:
        click.echo("nothing was changed" if steps else "nothing to do: all topics are as wanted")
        return
    if not yes:
        _explain_managing(wanted, steps)
        click.confirm("Continue?", abort=True)
    work = _Work(kordon, wait=wait)
    work.do(steps)
    if work.failed:
        raise Failed("\n".join(work.failed.values()))
    if work.left:
        sys.exit(_LEFT)


def _explain_managing(wanted: Sequence[WantedTopic], steps: Sequence[Step]) -> None:
    """Says what it means for the users of topics that become managed ones."""
    from kordon.proxy.commands.topics_meaning import ManageAsked, managing  # noqa: PLC0415

    by_name = {each.name: each for each in wanted}
    for step in steps:
        topic = by_name[step.topic]
        if step.takes_over is not None and topic.virtual_partitions is not None:
            way: Way = "quiesced" if topic.quiesced else "online"
            asked = ManageAsked(topic.name, topic.virtual_partitions, way, topic.transition_seconds, topic.janitor)
            click.echo("\n" + managing(asked, step.takes_over))


class _Work:
    """Does steps; where one fails, the rest of its topic is left, and others go on.

    Args:
        wait: For takeovers and other changes, and until a growth or a shrink is done.
    """

    def __init__(self, kordon: _Target, *, wait: bool) -> None:
        from kordon.proxy.commands.topics_progress import ProgressLines  # noqa: PLC0415

        self._kordon, self._wait = kordon, wait
        self._lines = ProgressLines("waiting until topics are settled")
        self.failed: dict[str, str] = {}
        """By topic, a line."""
        self.left: dict[str, Step] = {}
        """By topic, what has to wait until something else has ended."""

    def do(self, steps: Sequence[Step]) -> None:
        """Does all steps, or tells which are left. Takeovers of several topics go on side by side."""
        try:
            for step in steps:
                self._try(step)
            while self.left and self._wait:
                self._do_settled()
        except KeyboardInterrupt:
            self._tell_left({})
            sys.exit(_INTERRUPTED)
        if self.left:
            self._tell_left(self._kordon.states(list(self.left)))

    def _do_settled(self) -> None:
        """Waits until one topic of those that are left is settled, and goes on with it."""
        from kordon.proxy.commands.topics_progress import is_under_way  # noqa: PLC0415

        try:
            states = self._kordon.watched(list(self.left), self._lines, any)
        except Failed as failure:
            self.failed |= {name: f"{name}: {step.text}: {failure.message}" for name, step in self.left.items()}
            self.left.clear()
            return
        for name in [each for each in self.left if not is_under_way(states.get(each))]:
            self._try(self.left.pop(name))

    def _try(self, step: Step) -> None:
        from kordon.proxy.commands.topics_apply import CannotApply  # noqa: PLC0415

        if step.topic in self.failed:
            return
        try:
            self._do_one(step)
        except (Failed, CannotApply) as failure:
            self.failed[step.topic] = f"{step.topic}: {step.text}: {failure}"

    def _do_one(self, step: Step) -> None:
        from kordon.proxy.commands.topics_progress import is_under_way  # noqa: PLC0415

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


async def _do_step(step: Step, client: TopicsClient) -> str:
    await step.do(client)
    return f"{step.topic}: done: {step.text}"


@topics.command()
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_change_options
def unmanage(topic: str, *, yes: bool, dry_run: bool, wait: bool, as_json: bool, **target: Unpack[TargetFlags]) -> None:
    """Makes a managed TOPIC an ordinary one again, with its present partitions.

    That needs a topic without records, or one that was never resized and has V partitions.

    \b
    Examples:
      kordon topics unmanage orders --bootstrap kordon:19092 --dry-run
      kordon topics unmanage orders --bootstrap kordon:19092
      kordon topics unmanage orders --config kordon.yaml --yes
    """  # noqa: D301
    from kordon.proxy.commands.topics_meaning import unmanaging  # noqa: PLC0415

    kordon = _Target(target)
    if dry_run:
        from kordon.proxy.commands.topics_plan_managing import plan_unmanaging  # noqa: PLC0415

        kordon.plan(topic, lambda client, facts: plan_unmanaging(client, facts, topic), as_json=as_json)
        return

    async def do(client: TopicsClient) -> str:
        await client.unmanage(topic)
        return f"{topic} is not managed any more"

    counts = kordon.ask(f"looking at {topic}", lambda client: to_change(client, topic))
    if not yes:
        click.echo(shown(unmanaging(topic, counts.physical), keeps_lines=True))
        click.confirm("Continue?", abort=True)
    kordon.change(topic, f"letting {topic} go", do, wait=wait, as_json=as_json)


@topics.command(name="copy")
@click.argument("topic")
@click.argument("copy", metavar="TARGET")
@click.option("--finish", is_flag=True, help="The producers and consumers of TOPIC are stopped: hand its groups over.")
@click.option(
    "--group", "groups", metavar="GROUP", multiple=True, help="With --finish: only this group. Repeat it for several."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object.")
@target_options
def copy_topic(
    topic: str,
    copy: str,
    *,
    finish: bool,
    groups: tuple[str, ...],
    yes: bool,
    as_json: bool,
    **target: Unpack[TargetFlags],
) -> None:
    """Copies TOPIC to an ordinary topic TARGET with as many partitions as clients see, for life without Kordon.

    Keys, values, headers, times and partitions stay, and so does the order. The command makes TARGET if it is missing,
    and ends when all is copied. It goes on where it was when it is run again, whatever has ended it.

    With --finish it makes sure that nobody writes to TOPIC, and commits for each group where it goes on in TARGET.

    \b
    Examples:
      kordon topics copy orders orders-2 --bootstrap kordon:19092
      kordon topics copy orders orders-2 --finish --bootstrap kordon:19092
      kordon topics copy orders orders-2 --finish --group mailer --config kordon.yaml --yes
    """  # noqa: D301
    from kordon.proxy.commands.copy_run import FINISHING  # noqa: PLC0415

    if groups and not finish:
        raise click.UsageError("--group needs --finish")
    kordon = _Target(target)
    if finish and not yes:
        click.echo(shown(FINISHING.format(topic=topic, target=copy), keeps_lines=True))
        click.confirm("Continue?", abort=True)
    kordon.copy(topic, copy, groups if finish else None, as_json=as_json)


def _resize(topic: str, count: int, kordon: _Target, *, grows: bool, dry_run: bool, wait: bool, as_json: bool) -> None:
    if dry_run:
        _plan_resize(topic, count, kordon, grows=grows, as_json=as_json)
        return
    from kordon.proxy.commands.topics_progress import is_under_way  # noqa: PLC0415

    async def do(client: TopicsClient) -> str:
        # a broker would grow an ordinary topic, and break the order of its keys
        counts = await to_resize(client, topic, count, grows=grows)
        if counts.physical == count:
            if is_under_way((await client.states([topic])).get(topic)):
                await client.resize(topic, count)  # takes back a change that waits for transactions
            return f"{topic} has {counted(count, 'partition')} already"
        await client.resize(topic, count)
        return f"{topic} has {counted(count, 'partition')}, {counts.physical} before"

    what = f"{'growing' if grows else 'shrinking'} {topic} to {counted(count, 'partition')}"
    kordon.change(topic, what, do, wait=wait, as_json=as_json)


def _plan_resize(topic: str, count: int, kordon: _Target, *, grows: bool | None, as_json: bool) -> None:
    from kordon.proxy.commands.topics_plan import plan_resize  # noqa: PLC0415

    kordon.plan(topic, lambda client, facts: plan_resize(client, facts, topic, count, grows=grows), as_json=as_json)


class _Target:
    """The Kordon that is to do something."""

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
            wait: Until it is done. Else only until it goes on by itself.
        """
        from kordon.proxy.commands.topics_progress import Look, ProgressLines, followed  # noqa: PLC0415

        began = time.monotonic()
        lines, look = ProgressLines(what, as_json=as_json), Look(self.connect)
        clients: list[TopicsClient] = []
        goes_on = f"{what} goes on without this command; kordon topics watch {topic} shows it"

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
            sys.exit(_INTERRUPTED)
        lines.end(topic, goes_on if done is None else done, None if done is None else time.monotonic() - began)

    def plan(self, topic: str, plan: Callable[[TopicsClient, TopicFacts], Awaitable[DryRun]], *, as_json: bool) -> None:
        """Prints what would be done, or why it would be refused, which is a failure; changes nothing."""
        from kordon.proxy.commands.topics_progress import ProgressLines  # noqa: PLC0415

        found = self.ask(f"looking at {topic}", lambda client: plan(client, self.facts(topic)))
        if as_json:
            ProgressLines.write({"topic": topic, "dry_run": found.facts, "refused": found.refusals})
        elif found.text:
            click.echo(shown(found.text, keeps_lines=True))
        if found.refusals:
            raise Failed(found.problem + self._hint(found.problem))

    def facts(self, topic: str) -> TopicFacts:
        """Returns what asks for the facts of a topic."""
        from kordon.proxy.commands.topics_facts import TopicFacts  # noqa: PLC0415

        return TopicFacts(topic, self._address, self._upstream)

    def copy(self, topic: str, target: str, groups: Sequence[str] | None, *, as_json: bool) -> None:
        """Copies a topic, tells how far that is, and prints what has come of it.

        Args:
            groups: Those to be handed over, none of them: all. None: the copy is not finished.
        """
        from kordon.proxy.commands.copied_partition import CopyStopped  # noqa: PLC0415
        from kordon.proxy.commands.copy_run import CopyRun  # noqa: PLC0415
        from kordon.proxy.commands.topics_progress import ProgressLines  # noqa: PLC0415
        from kordon.proxy.runtime.logs import silence  # noqa: PLC0415

        began, what = time.monotonic(), f"copying {topic} to {target}"
        lines = ProgressLines(what, as_json=as_json)
        run = CopyRun(self.connect, self._upstream, topic, target, lines)
        try:
            with lines, silence():
                done = self._run(what, partial(run.run, groups=groups))
        except KeyboardInterrupt:
            lines.end(topic, f"{what}: stopped; the same command goes on from there")
            sys.exit(_INTERRUPTED)
        except CopyStopped as stopped:
            raise Failed(f"{what}: {stopped}") from stopped
        lines.end(topic, done, time.monotonic() - began)

    def watch(self, topic: str | None, *, as_json: bool) -> None:
        """Tells the states of topics until nothing is left to wait for."""
        from kordon.proxy.commands.topics_progress import ProgressLines  # noqa: PLC0415

        lines = ProgressLines(f"looking at {topic or 'the managed topics'}", as_json=as_json)
        try:
            states = self.watched(None if topic is None else [topic], lines, all)
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)
        if topic is not None and topic not in states:
            raise Failed(unmanaged(topic))
        for name, state in states.items() if topic is not None else ():
            lines.end(name, f"{name}: {state}")
        if topic is None:
            lines.end("", f"{counted(len(states), 'managed topic')}, nothing to wait for")

    def states(self, topics: list[str]) -> Mapping[str, str]:
        """Asks in words what goes on with topics."""
        return self.ask("looking at topics", lambda client: client.states(topics))

    def watched(
        self, topics: list[str] | None, lines: ProgressLines, is_enough: Callable[[Iterable[bool]], bool]
    ) -> Mapping[str, str]:
        """Tells the states of topics, or of all, until enough of them are settled; returns the last ones."""
        from kordon.proxy.commands.topics_progress import Look, watch  # noqa: PLC0415

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
        from rich.console import Console  # noqa: PLC0415

        with Console(stderr=True).status(f"{what} …"):
            return self._run(what, do)

    async def connect(self) -> TopicsClient:
        """Opens a connection.

        Raises:
            OSError: A TLS file cannot be used.
            UpstreamUnavailable: No Kordon answers.
        """
        from kordon.proxy.commands.topics_client import TopicsClient  # noqa: PLC0415

        client = TopicsClient(self._address, self._upstream)
        await client.open()
        return client

    def _run(self, what: str, do: Callable[[TopicsClient], Awaitable[Result]]) -> Result:
        from kordon.proxy.commands.topics_client import RequestRefused  # noqa: PLC0415
        from kordon.proxy.core.errors import UpstreamUnavailable  # noqa: PLC0415
        from kordon.proxy.runtime.tls import explain  # noqa: PLC0415

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


def _fetch(admin: str, path: str) -> Facts | None:
    from kordon.proxy.commands.admin_client import StatusUnavailable, fetch_object  # noqa: PLC0415

    try:
        address = HostPort.parse(admin)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--admin") from error
    try:
        return fetch_object(address, path)
    except StatusUnavailable as error:
        raise Failed(str(error)) from error


def _fetch_topic(admin: str, topic: str) -> Facts:
    from urllib.parse import quote  # noqa: PLC0415

    facts = _fetch(admin, f"/topics/{quote(topic, safe='')}")
    if facts is not None:
        return facts
    page = _fetch(admin, "/topics")
    if page is None:
        raise Failed(f"the Kordon at {admin} has no managed topics: its version is too old")
    known = ", ".join(row["topic"] for row in page["topics"]) or "none"
    found = [each for each in page.get("findings", ()) if each["topic"] == topic]
    if found:
        from kordon.proxy.commands.topics_tables import draw_finding  # noqa: PLC0415

        raise Failed(f"{topic} is not managed any more: {draw_finding(found[-1])}")
    raise Failed(f"no topic {topic} is managed at {admin}; managed topics: {known}")


def _draw(drawn: RenderableType) -> None:
    from rich.console import Console  # noqa: PLC0415

    Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS).print(drawn)


def _print_json(value: Facts) -> None:
    import json  # noqa: PLC0415

    click.echo(json.dumps(value, indent=2))
