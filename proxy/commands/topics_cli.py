"""`kordon topics`: shows managed topics, and has topics managed, grown, shrunk and let go.

What shows something asks the admin address of a Kordon. What changes something goes through its Kafka port, as requests
that any admin client can send, so that the cluster's own rights decide.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click
import uvloop

from kordon.codecs.shown_text import shown
from kordon.proxy.commands.topics_target import TargetUnknown, target_of, target_options
from kordon.proxy.config.config import HostPort

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kordon.proxy.commands.topics_client import PartitionCounts, TopicsClient

_FILE_COLUMNS: Final = 200
"""Where nobody looks at a terminal, lines are for tools."""
DEFAULT_ADMIN: Final = "127.0.0.1:9190"
Result = TypeVar("Result")
Command = TypeVar("Command", bound="Callable[..., Any]")

MANAGING: Final = """\
Managing {topic} with {virtual} virtual partitions means:
  - Its clients see {virtual} partitions from now on, for good. Those of the brokers can be grown and shrunk between the
    number there is now and {virtual}, and the order of each key is kept.
  - All its clients have to go through Kordon. Who writes to the brokers directly breaks the order.
  - To clients it is a topic with another id and another number of partitions: they find them within
    metadata.max.age.ms, and groups rebalance.
  - If it has records, its writes pause once for up to a second, and the new partitions are delivered to nobody before
    all groups have read what was there. Readers without a group are not waited for.
  - Kafka Streams: never manage repartition or changelog topics. An application that reads {topic} keeps its state by
    partition number, and has to be reset when that number changes.
  - Flink and Spark keep offsets by partition in their checkpoints: begin with new ones, or with the discovery of new
    partitions switched on.
  - MirrorMaker copies {virtual} partitions, to a topic with as many; each of them keeps its order.
  - Transactional producers, share groups and streams groups are refused.
"""
UNMANAGING: Final = """\
Letting {topic} go is possible while each virtual partition has only been the brokers' partition of its number
(V = N, never resized), or while the topic holds no records. It means:
  - It is an ordinary topic with the partitions that the brokers have of it, {physical} or more: it cannot shrink any
    more, and growing it breaks the order of keys.
  - Its topic id changes for clients. Restart idempotent producers: their sequences were counted by virtual partition.
  - Offsets that groups have committed while it was managed are gone: note them before (kafka-consumer-groups.sh
    --describe), and set them anew (--reset-offsets).
"""

_PATIENCE_SECONDS: Final = 3.0
_WAITING: Final = (
    "still waiting; a proxy that ended without a word may serve until its lease ends, at most ordering.session_ms + "
    "ordering.lease_ms from then (30 s unless set); kordon topics explain {topic} says at the controller how long"
)


class Failed(click.ClickException):
    """Raised to end with exit code 1 and one line that says why."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints the line."""
        click.echo(shown(self.message, keeps_lines=True), err=True)


def _admin_options(command: Command) -> Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print what the admin page says, as JSON."),
        click.option(
            "--admin",
            metavar="HOST:PORT",
            envvar="KORDON_ADMIN__ADDRESS",
            default=DEFAULT_ADMIN,
            show_default=True,
            help="Admin address of the Kordon to ask.",
        ),
    ):
        command = option(command)
    return command


@click.group(name="topics")
def topics() -> None:
    """Shows managed topics, and has topics managed, grown and shrunk.

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
    """Lists the managed topics, and what is under way.

    \b
    Examples:
      kordon topics list
      kordon topics list --admin 10.0.0.7:9190 --json
    """  # noqa: D301
    page = _fetch(admin, "/topics")
    if page is None:
        raise Failed(f"the Kordon at {admin} is of a version without managed topics")
    if as_json:
        _print_json(page)
    else:
        from kordon.proxy.commands.topics_tables import draw_all  # noqa: PLC0415

        _draw(draw_all(page))


@topics.command()
@click.argument("topic")
@_admin_options
def describe(topic: str, admin: str, *, as_json: bool) -> None:
    """Shows the partitions of a managed TOPIC as they are now, and why something is held.

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
    "--virtual", metavar="V", type=click.IntRange(min=0), help="Show the chain of this virtual partition only."
)
@_admin_options
def explain(topic: str, virtual: int | None, admin: str, *, as_json: bool) -> None:
    """Shows all about a managed TOPIC: its history, the chain of each virtual partition, and why something is held.

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
@click.option("--virtual", metavar="V", required=True, type=click.IntRange(min=1), help="Partitions that clients see.")
@click.option(
    "--quiesced",
    is_flag=True,
    help="Nobody writes to it now: proves that for 10 s, and waits for no client; all clients reconnect once.",
)
@click.option(
    "--transition",
    metavar="SECONDS",
    type=click.IntRange(min=0),
    help="Within this time all its clients have refreshed their metadata and ended what they send: "
    "metadata.max.age.ms + delivery.timeout.ms.  [default: 420]",
)
@click.option("--janitor", is_flag=True, help="It is compacted, or will be: keys' old values are to go as well.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@target_options
def manage(
    topic: str, virtual: int, *, quiesced: bool, transition: int | None, janitor: bool, yes: bool, **target: Any
) -> None:
    """Lets TOPIC be managed: clients see V virtual partitions, for good.

    V is the number of partitions it has now, times a power of two; it is the most that it can be grown to, and the most
    consumers that a group can have.

    A topic with records is taken over while its clients go on: it cannot be grown before its clients have seen the
    new partitions (--transition) and its groups have read what was there before. See kordon topics describe.

    \b
    Examples:
      kordon topics manage orders --virtual 48 --bootstrap kordon:19092
      kordon topics manage orders --virtual 48 --transition 900 --config kordon.yaml --yes
      kordon topics manage orders --virtual 48 --quiesced --bootstrap kordon:19092
      kordon topics manage prices --virtual 48 --janitor --bootstrap kordon:19092
    """  # noqa: D301

    async def do(client: TopicsClient) -> str:
        transition_ms = None if transition is None else transition * 1000
        await client.manage(topic, virtual, quiesced=quiesced, transition_ms=transition_ms, janitor=janitor)
        return f"{topic} is managed, with {virtual} virtual partitions"

    kordon = _Target(target)
    counts = kordon.counts(topic)
    if counts is not None and counts.virtual == virtual:
        click.echo(f"{topic} is managed already, with {virtual} virtual partitions")
        return
    if counts is not None:
        raise Failed(f"{topic} has {counts.virtual} virtual partitions for good; grow and shrink it within them")
    if not yes:
        click.echo(MANAGING.format(topic=topic, virtual=virtual))
        click.confirm("Go on?", abort=True)
    kordon.do(f"managing {topic}", do)


@topics.command()
@click.argument("topic")
@click.argument("state", type=click.Choice(["on", "off"]))
@target_options
def janitor(topic: str, state: str, **target: Any) -> None:
    """Has a managed TOPIC's old values taken out of the partitions that their keys have left, or not any more.

    To be switched on before cleanup.policy is set to compact, and off only after it is not compact any more.

    \b
    Examples:
      kordon topics janitor prices on --bootstrap kordon:19092
      kordon topics janitor prices off --config kordon.yaml
    """  # noqa: D301

    async def do(client: TopicsClient) -> str:
        if await client.counts(topic) is None:
            raise Failed(_unmanaged(topic))
        await client.set_janitor(topic, on=state == "on")
        return f"the janitor of {topic} is {state}"

    _Target(target).do(f"switching the janitor of {topic} {state}", do)


@topics.command(name="leave-out")
@click.argument("topic")
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@target_options
def leave_out(topic: str, groups: tuple[str, ...], **target: Any) -> None:
    """Has the takeover of TOPIC not wait for these groups, because nobody reads by them any more.

    Those it waits for stand in kordon topics describe. If one of them reads on after all, a key's new records may come
    to it before the old ones that it has not read.

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
@target_options
def grow(topic: str, count: int, **target: Any) -> None:
    """Gives a managed TOPIC more partitions: COUNT in all. Clients see latency for a moment, no error.

    \b
    Examples:
      kordon topics grow orders 6 --bootstrap kordon:19092
      kordon topics grow orders 6 --bootstrap kordon:19092 --ca ca.pem --username admin
    """  # noqa: D301
    _resize(topic, count, target, grows=True)


@topics.command()
@click.argument("topic")
@click.argument("count", type=click.IntRange(min=1))
@target_options
def shrink(topic: str, count: int, **target: Any) -> None:
    """Lets a managed TOPIC do with fewer partitions: COUNT in all. Their records stay readable until retention.

    \b
    Examples:
      kordon topics shrink orders 3 --bootstrap kordon:19092
      kordon topics shrink orders 3 --config kordon.yaml
    """  # noqa: D301
    _resize(topic, count, target, grows=False)


@topics.command()
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Do not ask.")
@target_options
def unmanage(topic: str, *, yes: bool, **target: Any) -> None:
    """Lets a managed TOPIC be an ordinary one again, with the partitions it has.

    So far only where nothing was ever grown or shrunk and V is the number of partitions.

    \b
    Examples:
      kordon topics unmanage orders --bootstrap kordon:19092
      kordon topics unmanage orders --config kordon.yaml --yes
    """  # noqa: D301

    async def do(client: TopicsClient) -> str:
        await client.unmanage(topic)
        return f"{topic} is not managed any more"

    kordon = _Target(target)
    counts = kordon.counts(topic)
    if counts is None:
        raise Failed(_unmanaged(topic))
    if not yes:
        click.echo(UNMANAGING.format(topic=topic, physical=counts.physical))
        click.confirm("Go on?", abort=True)
    kordon.do(f"letting {topic} go", do)


def _resize(topic: str, count: int, target: dict[str, Any], *, grows: bool) -> None:
    async def do(client: TopicsClient) -> str:
        counts = await client.counts(topic)
        if counts is None:
            raise Failed(_unmanaged(topic))  # a broker would grow an ordinary topic, and break the order of its keys
        if counts.physical == count:
            return f"{topic} has {count} partitions already"
        if grows != (counts.physical < count):
            cure = f"kordon topics {'shrink' if grows else 'grow'} {topic} {count}"
            raise Failed(f"{topic} has {counts.physical} partitions, so that would be: {cure}")
        with _telling(_WAITING.format(topic=topic)):
            await client.resize(topic, count)
        return f"{topic} has {count} partitions, {counts.physical} before"

    _Target(target).do(f"{'growing' if grows else 'shrinking'} {topic} to {count} partitions", do)


@contextmanager
def _telling(why: str) -> Iterator[None]:
    """Says why something lasts, if it does."""
    telling = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, partial(click.echo, why, err=True))
    try:
        yield
    finally:
        telling.cancel()


class _Target:
    """The Kordon that is to do something.

    Args:
        flags: Those of `target_options`.
    """

    def __init__(self, flags: dict[str, Any]) -> None:
        try:
            self._address, self._upstream = target_of(os.environ, **flags)
        except TargetUnknown as error:
            raise click.UsageError(str(error)) from error

    def do(self, what: str, do: Callable[[TopicsClient], Awaitable[str]]) -> None:
        """Does something, and prints what it has become and how long it took."""
        began = time.monotonic()
        click.echo(f"{self.ask(what, do)} ({time.monotonic() - began:.1f} s)")

    def counts(self, topic: str) -> PartitionCounts | None:
        """Asks how many partitions a topic has; None: it is not managed."""
        return self.ask(f"looking at {topic}", lambda client: client.counts(topic))

    def ask(self, what: str, do: Callable[[TopicsClient], Awaitable[Result]]) -> Result:
        """Does something on a connection; whatever fails is one line and exit code 1."""
        from rich.console import Console  # noqa: PLC0415

        from kordon.proxy.commands.topics_client import RequestRefused, TopicsClient  # noqa: PLC0415
        from kordon.proxy.core.errors import UpstreamUnavailable  # noqa: PLC0415
        from kordon.proxy.runtime.tls import explain  # noqa: PLC0415

        async def connected() -> Result:
            try:
                client = TopicsClient(self._address, self._upstream)
                await client.open()
            except OSError as error:
                raise Failed(f"--ca, --certificate or --key cannot be used: {explain(error)}") from error
            except UpstreamUnavailable as error:
                cure = "check --bootstrap, and what is said of TLS and log-in"
                raise Failed(f"no Kordon answers at {error}; {cure}") from error
            try:
                return await do(client)
            finally:
                client.close()

        try:
            with Console(stderr=True).status(f"{what} …"):
                return uvloop.run(connected())
        except RequestRefused as refusal:
            hint = f"; is {self._address} a broker, not a Kordon?" if "Unknown topic config" in str(refusal) else ""
            raise Failed(f"{refusal}{hint}") from refusal
        except UpstreamUnavailable as error:
            raise Failed(f"{what}: {error}") from error


def _unmanaged(topic: str) -> str:
    return f"{topic} is not managed by Kordon, or the other side is no Kordon; see kordon topics manage --help"


def _fetch(admin: str, path: str) -> dict[str, Any] | None:
    from kordon.proxy.commands.admin_client import StatusUnavailable, fetch_object  # noqa: PLC0415

    try:
        address = HostPort.parse(admin)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--admin") from error
    try:
        return fetch_object(address, path)
    except StatusUnavailable as error:
        raise Failed(str(error)) from error


def _fetch_topic(admin: str, topic: str) -> dict[str, Any]:
    from urllib.parse import quote  # noqa: PLC0415

    facts = _fetch(admin, f"/topics/{quote(topic, safe='')}")
    if facts is not None:
        return facts
    page = _fetch(admin, "/topics")
    if page is None:
        raise Failed(f"the Kordon at {admin} is of a version without managed topics")
    known = ", ".join(row["topic"] for row in page["topics"]) or "none"
    found = [each for each in page.get("findings", ()) if each["topic"] == topic]
    if found:
        from kordon.proxy.commands.topics_tables import draw_finding  # noqa: PLC0415

        raise Failed(f"{topic} is not managed any more: {draw_finding(found[0])}")
    raise Failed(f"no managed topic {topic} is known at {admin}; managed: {known}")


def _draw(drawn: Any) -> None:
    from rich.console import Console  # noqa: PLC0415

    Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS).print(drawn)


def _print_json(value: Any) -> None:
    import json  # noqa: PLC0415

    click.echo(json.dumps(value, indent=2))
