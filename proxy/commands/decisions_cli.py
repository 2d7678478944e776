"""`kordon decisions`: shows what Kordon decides, as it decides it.

It reads the brokers, not Kordon: from clients of Kordon the topic is hidden.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

import click

from kordon.codecs.decision import Entry, Kind
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.topics_target import TargetFlags, TargetUnknown, config_of, connection_options, target_of

if TYPE_CHECKING:
    from kordon.proxy.config.config import Upstream

_LAST: Final = 20
_ANY_COLUMNS: Final = 10_000
"""Lines are not broken: a decision is one."""
_AGO: Final = re.compile(r"(\d+)\s*(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_USER: Final = "User:"


def _moment(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Reads a time of day: so long ago, or as ISO 8601 has it, local if it names no offset; in ms since 1970."""
    if value is None:
        return None
    if ago := _AGO.fullmatch(value):
        return round((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
    try:
        return round(datetime.fromisoformat(value).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{value!r} is not a time: write 10m, 2h or 2026-11-22T09:30") from error


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
    """  # noqa: D301


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
@click.option("--json", "as_json", is_flag=True, help="Print each decision as a line of JSON, as the log has it.")
@click.option(
    "--files",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Read the files of decisions.to: files, and not the topic.",
)
@connection_options(
    "the broker",
    "A broker to read from. Kordon itself hides the topic.",
    "Kordon's own configuration, for its brokers or the folder of its files.",
)
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
    import uvloop  # noqa: PLC0415

    from kordon.proxy.commands.decisions_source import LogUnreadable, from_files, from_topic  # noqa: PLC0415

    begin = None if from_beginning or since_ms is not None else last
    upstream, folder = _place(folder, target)
    wanted = _Filter(frozenset(kinds), topic, client, group, principal, since_ms or 0)

    async def show() -> None:
        if upstream is not None:
            log = from_topic(upstream, begin, wanted.shows, follow=follow, since_ms=since_ms)
        else:
            assert folder is not None, "one of the two is named"
            log = from_files(folder, begin, wanted.shows, follow=follow)
        await _print(log, as_json=as_json)

    try:
        uvloop.run(show())
    except KeyboardInterrupt:
        return
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
    try:
        if target["bootstrap"] is not None:
            target["file"] = None
            return target_of(os.environ, **target)[1], None
        config = config_of(target["file"], os.environ)
    except TargetUnknown as error:
        raise click.UsageError(str(error)) from error
    if config is None:
        raise click.UsageError("name a broker: --bootstrap HOST:PORT, --config FILE, or --files FOLDER")
    if config.decisions.to == "files":
        return None, config.decisions.folder
    return config.upstream, None
