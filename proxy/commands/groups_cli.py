"""`kordon groups`: shows what groups that commit offset by offset have left open.

It asks the brokers, not Kordon: from clients of Kordon `__kordon.individual_commits` is hidden.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Unpack

import click

from kordon.codecs.counted import counted
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.asked_cluster import AskedCluster, broker_options
from kordon.proxy.runtime.clock import now_ms

if TYPE_CHECKING:
    from kordon.proxy.commands.topics_target import TargetFlags
    from kordon.proxy.own_topics.group_gaps import OpenRanges

_SHOWN: Final = 3
"""Open ranges of a partition that are shown to a person."""


@click.group(name="groups")
def groups() -> None:
    """Shows what consumer groups that commit offset by offset have left open.

    \b
    Examples:
      kordon groups gaps billing --bootstrap kafka:9092
      kordon groups gaps billing --config kordon.yaml --json
    """  # noqa: D301


@groups.command()
@click.argument("group", metavar="GROUP")
@click.option("--json", "as_json", is_flag=True, help="Print each partition as a line of JSON, with all open ranges.")
@broker_options
def gaps(group: str, *, as_json: bool, **target: Unpack[TargetFlags]) -> None:
    """Shows which offsets of GROUP are open while later ones are done, since when, and which member has them.

    It reads __kordon.individual_commits, and changes nothing. What is before the first open offset is done; what is
    behind the last done one is not shown. A reset is seen when a member has asked again where the group stands.

    Exit codes: 0 shown, also if nothing is open; 1 nothing is known of the group, or the brokers do not answer.

    \b
    Examples:
      kordon groups gaps billing --bootstrap kafka:9092
      kordon groups gaps billing --config kordon.yaml --json
    """  # noqa: D301
    from kordon.proxy.own_topics.group_gaps import NoClaims, open_ranges  # noqa: PLC0415

    found = AskedCluster(target).ask("reading", lambda brokers: open_ranges(brokers, group), NoClaims)
    if as_json:
        for each in found:
            click.echo(json.dumps(_facts(each)))
    elif not found:
        click.echo(f"Group {shown(group)} has no open offsets before finished ones.")
    else:
        at_ms = now_ms()
        for each in found:
            click.echo(shown(_line(each, at_ms)))


def _facts(row: OpenRanges) -> dict[str, object]:
    holder = row.holder
    return {
        "topic": row.topic,
        "partition": row.partition,
        "stable_offset": row.stable,
        "open": [[begin, end - 1] for begin, end in row.open],
        "done_behind": row.done,
        "since": datetime.fromtimestamp(row.since_ms / 1000, UTC).isoformat(timespec="seconds"),
        "member_id": holder.member_id if holder is not None else None,
        "client_id": holder.client_id if holder is not None else None,
        "host": holder.host if holder is not None else None,
    }


def _line(row: OpenRanges, at_ms: int) -> str:
    ranges = [f"{begin}" if begin == end - 1 else f"{begin} to {end - 1}" for begin, end in row.open[:_SHOWN]]
    more = len(row.open) - len(ranges)
    told = ", ".join(ranges) + (f" and {counted(more, 'range')} more" if more else "")
    holder = row.holder
    whose = f"{holder.client_id} at {holder.host} has it" if holder is not None else "no member has it now"
    age = _age(max(0, at_ms - row.since_ms) // 1000)
    return f"{row.topic}-{row.partition}: open for {age}: {told}; {counted(row.done, 'later offset')} done; {whose}"


def _age(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
