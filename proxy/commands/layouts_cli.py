"""`kordon layouts`: backs up the layouts of managed topics, compares a backup with the cluster, and restores it.

It asks the brokers, not Kordon: from clients of Kordon `__kordon.layouts` is hidden.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

import click

from kordon.codecs.counted import counted
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.asked_cluster import AskedCluster, broker_options
from kordon.proxy.commands.command_parts import Failed
from kordon.proxy.commands.topics_target import TargetFlags

if TYPE_CHECKING:
    from kordon.proxy.kafka.brokers import Brokers
    from kordon.proxy.own_topics.layouts_backup import Backup
    from kordon.proxy.own_topics.layouts_check import BackupComparison

Result = TypeVar("Result")

_STDIO: Final = "-"
RESTORING: Final = """\
Restoring writes these layouts to __kordon.layouts. Kordons that start then, or that wait for it, go by them.
  - Offsets that DeleteRecords has deleted since the backup can be read again, as far as the brokers still have them.
  - Settings of these topics that were changed since the backup are as they were then.
  - Restart every Kordon that has logged layouts_lost.
"""
_topic_option: Final = click.option(
    "--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic. Repeat it for several topics."
)


@click.group(name="layouts")
def layouts() -> None:
    """Backs up and restores the layouts: what says on which partitions the keys of managed topics are.

    \b
    Examples:
      kordon layouts export layouts.json --config kordon.yaml
      kordon layouts verify layouts.json --config kordon.yaml
      kordon layouts import layouts.json --config kordon.yaml --dry-run
    """  # noqa: D301


@layouts.command(name="export")
@click.argument("path", metavar="FILE|-")
@broker_options
def export(path: str, **target: Unpack[TargetFlags]) -> None:
    """Writes the layouts of all managed topics to FILE, or to standard output. Changes nothing in the cluster.

    The exit code is 1 if there are no layouts, or if a topic is left out because its records cannot be read. If FILE
    exists then, it stays as it is, and the backup is FILE.partial.

    \b
    Examples:
      kordon layouts export layouts.json --config kordon.yaml
      kordon layouts export - --bootstrap kafka:9092 | gzip > layouts.json.gz
    """  # noqa: D301
    from kordon.proxy.own_topics.layouts_restoring import NotRestored, take_backup  # noqa: PLC0415

    backup, left_out = AskedCluster(target).ask("exporting", take_backup, NotRestored)
    if not backup.topics and not left_out:
        raise Failed("no topic is managed: nothing was written")
    if left_out and path != _STDIO and Path(path).exists():
        path += ".partial"  # the former one has what is left out
    _write(path, backup.dump())
    say = f"{counted(len(backup.topics), 'topic')} of cluster {backup.cluster_id}, read up to offset {backup.offset}"
    click.echo(say if path == _STDIO else f"{path}: {say}", err=path == _STDIO)
    if left_out:
        raise Failed("\n".join(f"left out: {topic}: {why}" for topic, why in sorted(left_out.items())))


@layouts.command(name="verify")
@click.argument("path", metavar="FILE|-")
@_topic_option
@broker_options
def verify(path: str, topics: tuple[str, ...], **target: Unpack[TargetFlags]) -> None:
    """Compares a backup in FILE with the cluster, and says what differs. Changes nothing.

    It finds a backup that is older than the layout in force. Where __kordon.layouts is lost, it looks in the logs of
    the topics for records that were written by a later layout.

    Exit codes: 0 the backup is sound, 1 it is not, or it could not be compared.

    \b
    Examples:
      kordon layouts verify layouts.json --config kordon.yaml
      kordon layouts verify layouts.json --topic orders --bootstrap kafka:9092
    """  # noqa: D301
    from kordon.proxy.own_topics.layouts_restoring import NotRestored, compared  # noqa: PLC0415

    backup = _read(path, topics)

    found = AskedCluster(target).ask(
        "comparing", lambda brokers: compared(brokers, backup, only=bool(topics)), NotRestored
    )
    _print(backup, found)
    if not found.is_sound:
        sys.exit(1)


@layouts.command(name="import")
@click.argument("path", metavar="FILE|-")
@_topic_option
@click.option("--dry-run", is_flag=True, help="Say what would be restored, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
def import_(path: str, topics: tuple[str, ...], *, dry_run: bool, yes: bool, **target: Unpack[TargetFlags]) -> None:
    """Restores the layouts of a backup in FILE that the cluster has lost.

    No Kordon may serve managed topics meanwhile. Nothing is written if the backup is not sound: see kordon layouts
    verify. A layout that is in force stays.

    \b
    Examples:
      kordon layouts import layouts.json --config kordon.yaml --dry-run
      kordon layouts import layouts.json --config kordon.yaml
      kordon layouts import layouts.json --topic orders --bootstrap kafka:9092 --yes
    """  # noqa: D301
    from kordon.proxy.own_topics.layouts_restoring import NotRestored, Restoring  # noqa: PLC0415

    if path == _STDIO and not (yes or dry_run):
        raise click.UsageError("a backup from standard input needs --yes, because it leaves no prompt")
    backup, cluster = _read(path, topics), AskedCluster(target)

    async def restore(brokers: Brokers) -> int:
        restoring = Restoring(brokers, backup, cluster.group)
        found, entries = await restoring.plan()
        _print(backup, found)
        if not entries:
            return 0
        restored = len(backup.topics.keys() - found.same)
        if dry_run:
            click.echo(f"{counted(restored, 'topic')} would be restored; nothing was changed")
            return 0
        if not yes:
            click.echo(RESTORING)
            click.confirm("Continue?", abort=True)
        await restoring.write(entries)
        return restored

    restored = cluster.ask("restoring", restore, NotRestored)
    if restored:
        click.echo(f"{counted(restored, 'topic')} restored")
    elif not dry_run:
        click.echo("nothing to restore")


def _read(file: str, topics: tuple[str, ...]) -> Backup:
    from kordon.proxy.own_topics.layouts_backup import (  # noqa: PLC0415
        MOST_FILE_BYTES,
        BackupUnreadable,
        load_backup,
    )

    try:
        with click.open_file(file, "rb") as opened:
            backup = load_backup(opened.read(MOST_FILE_BYTES + 1))
    except OSError as error:
        raise Failed(f"{file}: {error.strerror or error}") from error
    except BackupUnreadable as error:
        raise Failed(f"{file} cannot be used: {error}") from error
    if missing := sorted(set(topics) - backup.topics.keys()):
        raise Failed(f"{file} does not have {', '.join(missing)}")
    return backup.only(topics) if topics else backup


def _write(file: str, raw: bytes) -> None:
    """Writes a file as a whole or not at all, so that a backup that fails leaves the former one."""
    if file == _STDIO:
        sys.stdout.buffer.write(raw)
        return
    path = Path(file)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as made:
            try:
                made.write(raw)
                made.flush()
                os.fsync(made.fileno())
                Path(made.name).replace(path)
            except BaseException:
                with suppress(OSError):
                    Path(made.name).unlink()
                raise
    except OSError as error:
        raise Failed(f"{file}: {error.strerror or error}") from error


def _print(backup: Backup, found: BackupComparison) -> None:
    """Prints what a comparison has found, a line each."""
    for topic in sorted({*backup.topics, *found.problems}):
        record = backup.topics.get(topic)
        epoch = f"layout epoch {record.layout.epoch}" if record is not None else "not in the backup"
        problems, notes = found.problems.get(topic, []), found.notes.get(topic, [])
        state = "differs" if problems else "in force" if topic in found.same else "not in force, sound"
        click.echo(shown(f"{topic}: {epoch}: {state}"))
        for line in problems:
            click.echo(shown(f"  {line}"))
        for line in notes:
            click.echo(shown(f"  note: {line}"))
