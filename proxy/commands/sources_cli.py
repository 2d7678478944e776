"""`kordon sources`: source topics and restart points of producers that share a source (docs/sources.md)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

import click

from kordon.codecs.counted import counted
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.command_parts import Failed
from kordon.proxy.commands.topics_target import TargetFlags, TargetUnknown, connection_options, target_of
from kordon.proxy.runtime.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kordon.proxy.commands.sources_client import Source, SourcePartition, SourcesClient

Result = TypeVar("Result")

_MOST_PARTITIONS: Final = 10_000
_POINT_CHARACTERS: Final = 80
"""Of a restart point that are shown in a table."""
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_target_options: Final = connection_options(
    "the broker or Kordon",
    "A broker, or the Kafka port of a Kordon.",
    "Kordon's own configuration, for its address and its own log-in (upstream.sasl).",
    of_variables=True,
)
_partitions: Final = click.IntRange(1, _MOST_PARTITIONS)


@click.group(name="sources")
def sources() -> None:
    """Shows and changes sources: who of a group reads which part of a source, and where it continues.

    \b
    Examples:
      kordon sources create db1 --partitions 3 --bootstrap kafka:9092
      kordon sources list --bootstrap kafka:9092
      kordon sources describe db1 --bootstrap kafka:9092
      kordon sources alter db1 --partitions 5 --bootstrap kafka:9092
    """  # noqa: D301


@sources.command()
@click.argument("topic")
@click.option("--partitions", type=_partitions, required=True, help="The number of parts of the source.")
@_target_options
def create(topic: str, partitions: int, **target: Unpack[TargetFlags]) -> None:
    """Creates the source topic TOPIC. It has no records: its partitions stand for the parts of the source.

    \b
    Examples:
      kordon sources create db1 --partitions 3 --bootstrap kafka:9092
    """  # noqa: D301
    if not _ask(target, "creating", lambda client: client.create(topic, partitions)):
        raise Failed(f"there is a topic {topic} already: kordon sources describe {topic} shows it")
    click.echo(f"{topic}: created with {counted(partitions, 'partition')}")


@sources.command(name="list")
@_target_options
def list_(**target: Unpack[TargetFlags]) -> None:
    """Lists the groups that have restart points.

    It asks for the commits of all groups that you may describe.

    \b
    Examples:
      kordon sources list --bootstrap kafka:9092
    """  # noqa: D301
    found = _ask(target, "listing", lambda client: client.sources())
    at_ms = now_ms()
    rows = [_listed(source, at_ms) for source in found]
    _print(("GROUP", "SOURCE TOPIC", "STATE", "POINTS", "NEWEST"), rows, nothing="no group has restart points")


@sources.command()
@click.argument("topic")
@click.option("--group", metavar="GROUP", help="The group.  [default: the name of the topic]")
@_target_options
def describe(topic: str, group: str | None, **target: Unpack[TargetFlags]) -> None:
    """Shows each partition of the source topic TOPIC: its owner, its restart point, the point's number and age.

    The age is by the clock of whoever committed the point. Exit code 1 if a commit of the group is no restart point.

    \b
    Examples:
      kordon sources describe db1 --bootstrap kafka:9092
      kordon sources describe db1 --group nightly --bootstrap kafka:9092
    """  # noqa: D301
    found = _ask(target, "describing", lambda client: client.describe(topic, group or topic))
    click.echo(
        shown(f"group {found.group_id} on {topic}: {found.state or 'unknown'}, {counted(found.members, 'member')}")
    )
    at_ms = now_ms()
    rows = [_described(number, row, at_ms) for number, row in sorted(found.partitions.items())]
    _print(("PARTITION", "NUMBER", "AGE", "OWNER", "RESTART POINT"), rows, nothing="")
    damaged = sorted(number for number, row in found.partitions.items() if row.trouble)
    if damaged:
        raise Failed(
            f"partitions {damaged}: no restart point, so nobody works on them. Did another consumer commit in this "
            "group? Stop the group, find out where the committed data end, and set it: kordon sources alter "
            f"{topic} --group {found.group_id} --partition {damaged[0]} --restart-at POINT"
        )


@sources.command()
@click.argument("topic")
@click.option("--partitions", type=_partitions, help="The new number of parts of the source; more than before.")
@click.option("--group", metavar="GROUP", help="The group of --restart-at.  [default: the name of the topic]")
@click.option("--partition", type=click.IntRange(0), help="The source partition of --restart-at.")
@click.option("--restart-at", "point", metavar="POINT", help="Where the group continues. It must have no members.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_target_options
def alter(
    topic: str,
    partitions: int | None,
    group: str | None,
    partition: int | None,
    point: str | None,
    *,
    yes: bool,
    **target: Unpack[TargetFlags],
) -> None:
    """Gives the source topic TOPIC more partitions, or sets a restart point.

    After --partitions, restart the members that were told a source_partition_count with the new number: another one is
    refused. Those without one continue by themselves.

    \b
    Examples:
      kordon sources alter db1 --partitions 5 --bootstrap kafka:9092
      kordon sources alter db1 --partition 0 --restart-at 12:34:00 --bootstrap kafka:9092
    """  # noqa: D301
    if (partitions is None) == (point is None) or (point is None) != (partition is None):
        raise click.UsageError("give either --partitions, or --partition and --restart-at")
    if partitions is not None:
        had = _ask(target, "altering", lambda client: client.grow(topic, partitions))
        click.echo(f"{topic}: {had} -> {counted(partitions, 'partition')}; restart all members with this number")
    elif point is not None and partition is not None:
        _set_point(topic, group or topic, partition, point, yes=yes, target=target)


def _set_point(topic: str, group: str, partition: int, point: str, *, yes: bool, target: TargetFlags) -> None:
    from kordon.codecs.source_points import check_text  # noqa: PLC0415

    try:
        check_text(point)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--restart-at") from error

    async def do(client: SourcesClient) -> int:
        found = await client.describe(topic, group)
        row = found.partitions.get(partition)
        if not yes and row is not None:
            known = row.trouble or _text(row)
            click.echo(shown(f"{topic}-{partition} of group {group} is at {known}"))
            click.echo(shown(f"it is to continue at {point[:_POINT_CHARACTERS]}"))
            click.echo("An earlier point has data written again, and a later one has data left out.")
            click.confirm("Continue?", abort=True)
        return await client.set_point(found, partition, point)

    number = _ask(target, "altering", do)
    click.echo(shown(f"{topic}-{partition}: group {group} goes on at {point[:_POINT_CHARACTERS]} (number {number})"))


def _ask(target: TargetFlags, what: str, do: Callable[[SourcesClient], Awaitable[Result]]) -> Result:
    """Does something with the brokers; whatever fails is told, with exit code 1."""
    import uvloop  # noqa: PLC0415

    from kordon.proxy.commands.brokers_asked import with_brokers  # noqa: PLC0415
    from kordon.proxy.commands.sources_client import SourcesClient  # noqa: PLC0415
    from kordon.proxy.core.errors import KordonError  # noqa: PLC0415

    try:
        upstream = target_of(os.environ, **target)[1]
    except TargetUnknown as error:
        raise click.UsageError(str(error)) from error
    try:
        return uvloop.run(with_brokers(upstream, lambda brokers: do(SourcesClient(brokers))))
    except (KordonError, OSError) as error:
        raise Failed(f"{what}: {error}") from error


def _listed(source: Source, now_ms: int) -> tuple[str, ...]:
    points = [row.point for row in source.partitions.values() if row.point is not None and row.point.number]
    newest = max((point.written_ms for point in points), default=0)
    return source.group_id, source.topic, source.state or "-", str(len(points)), _age(newest, now_ms)


def _described(number: int, row: SourcePartition, now_ms: int) -> tuple[str, ...]:
    if row.point is None:
        return str(number), "-", "-", row.owner or "-", row.trouble
    return str(number), str(row.point.number), _age(row.point.written_ms, now_ms), row.owner or "-", _text(row)


def _text(row: SourcePartition) -> str:
    if row.point is None or row.point.text is None:
        return "(none: the source is read from its beginning)"
    text = row.point.text
    return text if len(text) <= _POINT_CHARACTERS else f"{text[:_POINT_CHARACTERS]}…"


def _age(written_ms: int, now_ms: int) -> str:
    """Returns how old a point is; `-` where there is none."""
    if not written_ms:
        return "-"
    seconds = max(0, (now_ms - written_ms) // 1000)
    size, unit = next((each for each in _UNITS if seconds >= each[0]), (1, "s"))
    return f"{seconds // size} {unit}"


def _print(head: tuple[str, ...], rows: list[tuple[str, ...]], *, nothing: str) -> None:
    """Prints a table; what comes from others is made fit for a terminal."""
    if not rows:
        click.echo(nothing)
        return
    table = [head, *(tuple(shown(cell) for cell in row) for row in rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(head))]
    for row in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
