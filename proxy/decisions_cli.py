"""`kordon decisions`: shows what Kordon decides, as it decides it.

It reads the brokers, not Kordon: from clients of Kordon the topic is hidden.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kordon.codecs.decision import Entry, Kind
from kordon.proxy.topics_target import TargetUnknown, config_of, connection_options, target_of

if TYPE_CHECKING:
    from kordon.proxy.config import Upstream

_LAST: Final = 20
_ANY_COLUMNS: Final = 10_000
"""Lines are not broken: a decision is one."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which decisions are shown."""

    kinds: frozenset[str]
    topic: str | None
    client: str | None
    group: str | None

    def shows(self, entry: Entry) -> bool:
        """Whether a decision is among them."""
        decision = entry.decision
        return (
            (not self.kinds or decision.kind.value in self.kinds)
            and self.topic in (None, decision.topic)
            and self.client in (None, decision.client_id, str(decision.connection))
            and self.group in (None, decision.group_id)
        )


@click.group(name="decisions")
def decisions() -> None:
    """Shows the decision log: what Kordon admitted, held, refused, delivered and changed, and why.

    \b
    Examples:
      kordon decisions tail --bootstrap kafka:9092
      kordon decisions tail --config kordon.yaml --topic orders --kind admit --kind deliver
      kordon decisions tail --files /var/log/kordon --from-beginning --no-follow --json
    """  # noqa: D301


@decisions.command()
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in Kind]),
    metavar="KIND",
    help="Only these: admit, refuse, hold, deliver, fence, commit, gap, …; may be given several times.",
)
@click.option("--topic", metavar="TOPIC", help="Only about this topic.")
@click.option("--client", metavar="ID", help="Only of this client id, or connection number.")
@click.option("--group", metavar="GROUP", help="Only of this consumer group.")
@click.option("--from-beginning", is_flag=True, help="All there is, instead of the last.")
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(min=0),
    default=_LAST,
    show_default=True,
    help="Begin with so many of those that are there.",
)
@click.option("--follow/--no-follow", default=True, show_default=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print each as it stands in the log: JSON lines.")
@click.option(
    "--files",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Read files (decisions.to: files), not the topic.",
)
@connection_options(
    "the broker",
    "A broker to read from; not Kordon, which hides the topic.",
    "Kordon's own configuration: its brokers, or the folder of its files.",
)
def tail(
    *,
    folder: Path | None,
    kinds: tuple[str, ...],
    topic: str | None,
    client: str | None,
    group: str | None,
    last: int,
    from_beginning: bool,
    follow: bool,
    as_json: bool,
    **target: Any,
) -> None:
    """Shows decisions as they are taken, one line each.

    \b
    Examples:
      kordon decisions tail --bootstrap kafka:9092 --kind refuse --kind hold
      kordon decisions tail --config kordon.yaml --topic orders --client app-1
      kordon decisions tail --files /var/log/kordon --from-beginning --no-follow --json
    """  # noqa: D301
    import uvloop  # noqa: PLC0415

    from kordon.proxy.decisions_source import LogUnreadable, from_files, from_topic  # noqa: PLC0415

    begin = None if from_beginning else last
    upstream, folder = _place(folder, target)
    wanted = _Wanted(frozenset(kinds), topic, client, group)

    async def show() -> None:
        if upstream is not None:
            log = from_topic(upstream, begin, wanted.shows, follow=follow)
        else:
            assert folder is not None, "one of the two is named"
            log = from_files(folder, begin, wanted.shows, follow=follow)
        await _print(log, as_json=as_json)

    try:
        uvloop.run(show())
    except KeyboardInterrupt:
        return
    except (LogUnreadable, OSError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)


async def _print(log: AsyncIterator[Entry], *, as_json: bool) -> None:
    from rich.console import Console  # noqa: PLC0415

    from kordon.proxy.decisions_line import draw  # noqa: PLC0415

    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else _ANY_COLUMNS, highlight=False)
    async for entry in log:
        if as_json:
            click.echo(entry.dump())
        else:
            console.print(draw(entry), soft_wrap=True)


def _place(folder: Path | None, target: Mapping[str, Any]) -> tuple[Upstream | None, Path | None]:
    """Returns where the log is: brokers, or a folder."""
    if folder is not None:
        return None, folder
    try:
        if target["bootstrap"] is not None:
            flags: dict[str, Any] = {**target, "file": None}
            return target_of(os.environ, **flags)[1], None
        config = config_of(target["file"], os.environ)
    except TargetUnknown as error:
        raise click.UsageError(str(error)) from error
    if config is None:
        raise click.UsageError("name a broker: --bootstrap HOST:PORT, --config FILE, or --files FOLDER")
    if config.decisions.to == "files":
        return None, config.decisions.folder
    return config.upstream, None
