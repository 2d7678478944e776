"""`kordon decisions`: shows what Kordon decides, as it decides it.

It reads the brokers, not Kordon: from clients of Kordon the topic is hidden.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

import click

from kordon.codecs.decision import Entry, Kind
from kordon.codecs.moments import moment_ms
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.topics_target import Command, TargetFlags, TargetUnknown, brokers_of, connection_options
from kordon.proxy.runtime.clock import now_ms

if TYPE_CHECKING:
    from kordon.proxy.commands.decisions_found import Name
    from kordon.proxy.config.config import Upstream

_LAST: Final = 20
_ANY_COLUMNS: Final = 10_000
"""Lines are not broken: a decision is one."""
_USER: Final = "User:"


def _moment(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Reads a point in time, in milliseconds since 1970."""
    try:
        return None if value is None else moment_ms(value, now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _names(_context: click.Context, _argument: click.Parameter, values: tuple[str, ...]) -> list[Name]:
    from kordon.proxy.commands.decisions_found import Name  # noqa: PLC0415

    try:
        return [Name.parse(value) for value in values]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which decisions are shown."""

    kinds: frozenset[str]
    topic: str | None
    client: str | None
    group: str | None
    principal: str | None
    since_ms: int

    def shows(self, entry: Entry) -> bool:
        """Whether a decision is among them."""
        decision = entry.decision
        return (
            (not self.kinds or decision.kind.value in self.kinds)
            and self.topic in (None, decision.topic)
            and self.client in (None, decision.client_id, str(decision.connection))
            and self.group in (None, decision.group_id)
            and (self.principal is None or decision.principal in (self.principal, _USER + self.principal))
            and entry.at_ms >= self.since_ms
        )


@click.group(name="decisions")
def decisions() -> None:
    """Shows the decision log: what Kordon has admitted, held, refused, delivered and changed, and why.

    \b
    Examples:
      kordon decisions tail --bootstrap kafka:9092
      kordon decisions tail --config kordon.yaml --topic orders --kind refuse --since 1h
      kordon decisions tail --files /var/log/kordon --from-beginning --no-follow --json
      kordon decisions show --bootstrap kafka:9092 6b1f0c:8812 6b1f0c:8840
    """  # noqa: D301


def _log_options(command: Command) -> Command:
    """Adds the options that say where the log is, and how it is printed."""
    for option in (
        connection_options(
            "the broker",
            "A broker to read from, or several with commas between. Kordon itself hides the topic.",
            "Kordon's own configuration, for its brokers or the folder of its files.",
        ),
        click.option(
            "--files",
            "folder",
            metavar="FOLDER",
            type=click.Path(path_type=Path),
            help="Read the files of decisions.to: files, and not the topic.",
        ),
        click.option(
            "--json", "as_json", is_flag=True, help="Print each decision as a line of JSON, as the log has it."
        ),
    ):
        command = option(command)
    return command


@decisions.command()
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in Kind]),
    metavar="KIND",
    help="Only this kind: admit, refuse, hold, deliver, fence, commit, gap, … Repeat it for several kinds.",
)
@click.option("--topic", metavar="TOPIC", help="Only decisions about this topic.")
@click.option("--client", metavar="ID", help="Only decisions about this client id or connection number.")
@click.option("--group", metavar="GROUP", help="Only decisions about this consumer group.")
@click.option("--principal", metavar="USER", help="Only decisions about this user: alice, or User:CN=alice,O=acme.")
@click.option(
    "--since",
    "since_ms",
    callback=_moment,
    metavar="TIME",
    help="All decisions since then: 10m, 2h or 1d ago, or 2026-11-22T09:30.",
)
@click.option("--from-beginning", is_flag=True, help="All decisions, from the first one on.")
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(min=0),
    default=_LAST,
    show_default=True,
    help="Begin with the last N decisions.",
)
@click.option(
    "--follow/--no-follow", default=True, show_default=True, help="Show new decisions as they come, until Ctrl-C."
)
@_log_options
def tail(
    *,
    folder: Path | None,
    kinds: tuple[str, ...],
    topic: str | None,
    client: str | None,
    group: str | None,
    principal: str | None,
    since_ms: int | None,
    last: int,
    from_beginning: bool,
    follow: bool,
    as_json: bool,
    **target: Unpack[TargetFlags],
) -> None:
    """Shows decisions as Kordon takes them, one line each.

    \b
    Examples:
      kordon decisions tail --bootstrap kafka:9092 --kind refuse --kind hold
      kordon decisions tail --config kordon.yaml --topic orders --client app-1
      kordon decisions tail --files /var/log/kordon --from-beginning --no-follow --json
    """  # noqa: D301
    from kordon.proxy.commands.decisions_source import from_files, from_topic  # noqa: PLC0415

    begin = None if from_beginning or since_ms is not None else last
    upstream, folder = _place(folder, target)
    wanted = _Filter(frozenset(kinds), topic, client, group, principal, since_ms or 0)

    async def read() -> None:
        if upstream is not None:
            log = from_topic(upstream, begin, wanted.shows, follow=follow, since_ms=since_ms)
        else:
            assert folder is not None, "one of the two is named"
            log = from_files(folder, begin, wanted.shows, follow=follow)
        await _print(log, as_json=as_json)

    _run(read())


@decisions.command()
@click.argument("names", nargs=-1, required=True, callback=_names, metavar="WORKER:NUMBER…")
@click.option(
    "--since",
    "since_ms",
    callback=_moment,
    metavar="TIME",
    help="Search the topic from then on, and not from its beginning: 10m, 2h or 1d ago, or 2026-11-22T09:30.",
)
@_log_options
def show(
    *, names: list[Name], since_ms: int | None, folder: Path | None, as_json: bool, **target: Unpack[TargetFlags]
) -> None:
    """Shows single decisions with all that they say, by worker and number.

    The audit's report names the decisions that prove a finding in this way.

    \b
    Examples:
      kordon decisions show --bootstrap kafka:9092 6b1f0c:8812 6b1f0c:8840
      kordon decisions show --config kordon.yaml --since 2h 6b1f0c:8812 --json
      kordon decisions show --files /var/log/kordon 6b1f0c:8812

    \b
    Exit codes:
      0  all of them are shown
      1  one is not in the log, or the log cannot be read
    """  # noqa: D301
    from kordon.proxy.commands.decisions_found import results, search_files, search_topic, searches  # noqa: PLC0415

    upstream, folder = _place(folder, target)
    wanted = searches(names)

    async def search() -> None:
        if upstream is not None:
            await search_topic(upstream, wanted, since_ms)
        else:
            assert folder is not None, "one of the two is named"
            search_files(folder, wanted)

    _run(search(), interrupted=1)
    are_missing = False
    for name, result in results(wanted, names):
        if isinstance(result, Entry):
            click.echo(shown(result.dump().decode()) if as_json else _in_full(result))
        else:
            are_missing = True
            click.echo(f"{shown(name.worker)}:{name.number} was not found: {result}", err=True)
    sys.exit(int(are_missing))


def _in_full(entry: Entry) -> str:
    """Writes all that a decision says, a field to a line."""
    moment = datetime.fromtimestamp(entry.at_ms / 1000, UTC)
    head = f"{shown(entry.worker)}:{entry.number}  {entry.decision.kind.value} at {moment:%Y-%m-%d %H:%M:%S}"
    fields = shown(json.dumps(json.loads(entry.dump()), indent=2, ensure_ascii=False), keeps_lines=True)
    return f"{head}.{entry.at_ms % 1000:03} UTC\n{fields}"


def _run(reading: Coroutine[Any, Any, None], *, interrupted: int = 0) -> None:
    """Reads the log; says in a line why it cannot be read.

    Args:
        interrupted: The exit code after Ctrl-C.
    """
    import uvloop  # noqa: PLC0415

    from kordon.proxy.commands.decisions_source import LogUnreadable  # noqa: PLC0415

    try:
        uvloop.run(reading)
    except KeyboardInterrupt:
        sys.exit(interrupted)
    except BrokenPipeError:  # as of `| head`: who reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (LogUnreadable, OSError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)


async def _print(log: AsyncIterator[Entry], *, as_json: bool) -> None:
    from kordon.proxy.commands.decisions_line import Screen, draw  # noqa: PLC0415

    console = Screen(soft_wrap=True, width=None if sys.stdout.isatty() else _ANY_COLUMNS, highlight=False)
    async for entry in log:
        if as_json:
            click.echo(shown(entry.dump().decode()))
        else:
            console.print(draw(entry), soft_wrap=True)


def _place(folder: Path | None, target: TargetFlags) -> tuple[Upstream | None, Path | None]:
    """Returns where the log is: brokers, or a folder."""
    if folder is not None:
        return None, folder
    if target["bootstrap"] is None and target["file"] is None:
        raise click.UsageError("name a broker: --bootstrap HOST:PORT, --config FILE, or --files FOLDER")
    try:
        upstream, config = brokers_of(os.environ, **target)
    except TargetUnknown as error:
        raise click.UsageError(str(error)) from error
    if target["bootstrap"] is None and config is not None and config.decisions.to == "files":
        return None, config.decisions.folder
    return upstream, None
