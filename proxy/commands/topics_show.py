"""The commands of `kordon topics` that show something: what the admin pages of a Kordon say of managed topics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click

from kordon.proxy.commands.command_parts import Failed, admin_option, fetch, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kordon.proxy.commands.topics_target import Command
    from kordon.proxy.process.explain import Facts

_FILE_COLUMNS: Final = 200
"""Where nobody looks at a terminal, lines are for tools."""


def _admin_options(command: Command) -> Command:
    command = click.option("--json", "as_json", is_flag=True, help="Print the answer of the admin page as JSON.")(
        command
    )
    return admin_option("The admin address of the Kordon to ask.")(command)


@click.command(name="list")
@_admin_options
def list_topics(admin: str, *, as_json: bool) -> None:
    """Lists the managed topics and the changes under way.

    \b
    Examples:
      kordon topics list
      kordon topics list --admin 10.0.0.7:9190 --json
    """  # noqa: D301
    page = fetch(admin, "/topics")
    if page is None:
        raise Failed(f"the Kordon at {admin} has no managed topics: its version is too old")
    if as_json:
        print_json(page)
    else:
        from kordon.proxy.commands.topics_tables import draw_all  # noqa: PLC0415

        _draw(draw_all(page))


@click.command()
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
        print_json({name: facts[name] for name in facts if name not in ("chains", "epochs", "control")})
    else:
        from kordon.proxy.commands.topics_tables import draw_topic  # noqa: PLC0415

        _draw(draw_topic(facts))


@click.command()
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
        print_json(facts)
    else:
        from kordon.proxy.commands.topics_tables import draw_history  # noqa: PLC0415

        _draw(draw_history(facts, virtual))


def _fetch_topic(admin: str, topic: str) -> Facts:
    facts = fetch(admin, f"/topics/{quote(topic, safe='')}")
    if facts is not None:
        return facts
    page = fetch(admin, "/topics")
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
