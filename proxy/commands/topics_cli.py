"""`kordon topics`: shows managed topics, and has topics managed, grown, shrunk and let go.

What shows something asks the admin address of a Kordon. What changes something goes through its Kafka port, as requests
that any admin client can send, so that the cluster's own rights decide.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

import click

from kordon.codecs.counted import counted
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.command_parts import Failed
from kordon.proxy.commands.topics_before import managed_already, to_change, to_manage, to_resize
from kordon.proxy.commands.topics_show import describe, explain, list_topics
from kordon.proxy.commands.topics_target import Command, TargetFlags, target_options

if TYPE_CHECKING:
    from kordon.proxy.commands.topics_client import TopicsClient
    from kordon.proxy.commands.topics_meaning import Way
    from kordon.proxy.commands.topics_run import TopicsRun

_LEFT: Final = 3
"""The exit code where something is left to do, and the command is to be run again."""


def _change_options(command: Command) -> Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object."),
        click.option(
            "--wait/--no-wait",
            default=True,
            show_default=True,
            help="Wait until it is done, and say what for. Or return as soon as it continues by itself.",
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


for _command in (list_topics, describe, explain):
    topics.add_command(_command)


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

    Kordon takes over a topic with records while its clients continue. The topic can grow once its clients have seen the
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
    kordon = _run(target)
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

    _run(target).do(f"switching the janitor of {topic} {state}", do)


@topics.command(name="leave-out")
@click.argument("topic")
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@target_options
def leave_out(topic: str, groups: tuple[str, ...], **target: Unpack[TargetFlags]) -> None:
    """Lets the takeover of TOPIC continue without these groups, which nobody uses any more.

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

    _run(target).do(f"leaving groups out of the takeover of {topic}", do)


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
    _resize(topic, count, _run(target), grows=True, dry_run=dry_run, wait=wait, as_json=as_json)


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
    _resize(topic, count, _run(target), grows=False, dry_run=dry_run, wait=wait, as_json=as_json)


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
    _run(target).watch(topic, as_json=as_json)


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
    _plan_resize(topic, count, _run(target), grows=None, as_json=as_json)


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
    from kordon.proxy.commands.topics_apply_run import ApplyRun, explain_managing  # noqa: PLC0415
    from kordon.proxy.commands.topics_file import WantedTopics  # noqa: PLC0415

    try:
        wanted = load_model(path, WantedTopics).topics
    except FileUnusable as error:
        raise click.UsageError(str(error)) from error
    kordon = _run(target)
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
        explain_managing(wanted, steps)
        click.confirm("Continue?", abort=True)
    work = ApplyRun(kordon, wait=wait)
    work.do(steps)
    if work.failed:
        raise Failed("\n".join(work.failed.values()))
    if work.left:
        sys.exit(_LEFT)


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

    kordon = _run(target)
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
    and ends when all is copied. It continues where it was when it is run again, whatever has ended it.

    With --finish it makes sure that nobody writes to TOPIC, and commits for each group where it continues in TARGET.

    \b
    Examples:
      kordon topics copy orders orders-2 --bootstrap kordon:19092
      kordon topics copy orders orders-2 --finish --bootstrap kordon:19092
      kordon topics copy orders orders-2 --finish --group mailer --config kordon.yaml --yes
    """  # noqa: D301
    from kordon.proxy.commands.copy_run import FINISHING  # noqa: PLC0415

    if groups and not finish:
        raise click.UsageError("--group needs --finish")
    kordon = _run(target)
    if finish and not yes:
        click.echo(shown(FINISHING.format(topic=topic, target=copy), keeps_lines=True))
        click.confirm("Continue?", abort=True)
    kordon.copy(topic, copy, groups if finish else None, as_json=as_json)


def _run(flags: TargetFlags) -> TopicsRun:
    from kordon.proxy.commands.topics_run import TopicsRun  # noqa: PLC0415

    return TopicsRun(flags)


def _resize(
    topic: str, count: int, kordon: TopicsRun, *, grows: bool, dry_run: bool, wait: bool, as_json: bool
) -> None:
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


def _plan_resize(topic: str, count: int, kordon: TopicsRun, *, grows: bool | None, as_json: bool) -> None:
    from kordon.proxy.commands.topics_plan import plan_resize  # noqa: PLC0415

    kordon.plan(topic, lambda client, facts: plan_resize(client, facts, topic, count, grows=grows), as_json=as_json)
