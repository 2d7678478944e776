"""What `kordon topics` prints: the objects of /topics and /topics/NAME, drawn for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kordon.codecs.counted import counted, numbered, ranges
from kordon.codecs.shown_text import shown_facts
from kordon.proxy.member.topic_state import SETTLED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from kordon.proxy.process.explain import Facts


def draw_all(page: Facts) -> RenderableType:
    """Draws the object of /topics."""
    page = shown_facts(page)
    if not page["enabled"]:
        return Text("Managed topics are switched off here (ordering.enabled).", "yellow")
    if page["control"] is None:
        return Text("No worker is running.", "red")
    findings = [Text(f"  - {draw_finding(each)}", "red") for each in page.get("findings", ())]
    if not page["topics"]:
        return Group(Text("No topic is managed.", "bold"), *findings, *draw_control(page["control"]))
    table = titled_table("Managed topics", "topic", "state", ">N", ">U", ">V", ">layout epoch")
    for row in page["topics"]:
        table.add_row(
            row["topic"],
            _state(row),
            str(row["initial_partition_count"]),
            str(row["undeleted_partition_count"]),
            str(row["virtual_partitions"]),
            str(row["layout_epoch"]),
        )
    return Group(table, Text(), *findings, *draw_control(page["control"]))


def draw_finding(finding: Facts) -> str:
    """Writes a finding down."""
    return f"{finding['found']} {finding['kind']}: {finding['text']}"


def draw_topic(facts: Facts) -> RenderableType:
    """Draws what is there now of the object of /topics/NAME."""
    facts = shown_facts(facts)
    return Group(*_summary(facts), _partitions(facts))


def draw_history(facts: Facts, virtual_partition: int | None = None) -> RenderableType:
    """Draws all of the object of /topics/NAME.

    Args:
        virtual_partition: Draw the chain of this one only.
    """
    facts = shown_facts(facts)
    parts = [*_summary(facts), _epochs(facts), Text(), _partitions(facts), Text()]
    parts += [_chains(facts, virtual_partition), Text(), *draw_control(facts["control"])]
    return Group(*parts)


def draw_control(control: Facts) -> list[RenderableType]:
    """Draws how the Kordon that was asked stands among the proxies, and what is under way."""
    serves = ("serves managed topics", "green") if control["serves"] else (f"serves none: {control['why_not']}", "red")
    if control["generation"] is None:
        return [Text.assemble(serves)]
    rest = f", lease {control['lease_seconds_left']:g} s, layouts read up to {control['layouts_position']}"
    parts: list[RenderableType] = [Text.assemble(serves, rest)]
    leader = next((each["host"] for each in control["members"] if each["leads"]), "unknown")
    leads = "this worker is the controller" if control["leads"] else f"the controller is on {leader}"
    workers = counted(len(control["members"]), "worker")
    parts.append(Text(f"generation {control['generation']} of the proxies' group: {workers}; {leads}"))
    for each in control["procedures"] or ():
        missing = f"; {', '.join(each['waits_for'])} missing" if each["waits_for"] else ""
        left = f", at most {each['lease_seconds_left']:g} s more" if each.get("lease_seconds_left") else ""
        parts.append(
            Text(
                f"  {each['topic']} to {counted(each['undeleted_partition_count'], 'partition')}: {each['stage']}"
                f" for {each['seconds']:g} s, attempt {each['attempts']}{missing}{left}",
                "yellow",
            )
        )
    if control["procedures"] is None:
        parts += [Text(f"  wanted: {each['what']}", "yellow") for each in control["wishes"]]
    return parts


def _summary(facts: Facts) -> list[RenderableType]:
    state = Text.assemble((facts["topic"], "bold"), ": ", _state(facts))
    line = Text.assemble(
        f"{counted(facts['undeleted_partition_count'], 'partition')} (U),"
        f" {facts['initial_partition_count']} at first (N), {facts['virtual_partitions']} virtual (V),"
        f" layout epoch {facts['layout_epoch']}",
        "" if facts["ordered_delivery"] else ", delivery is not ordered (enable.ordered.delivery=false)",
    )
    ids = Text(f"topic id {facts['topic_id']}, to clients {facts['face_id']} ({facts['face']})", "dim")
    bypassed = facts.get("bypassed_batches", 0)
    batches = (
        f"{counted(bypassed, 'batch')} of writers that went round Kordon {'was' if bypassed == 1 else 'were'} read here"
    )
    why = f"{batches}: the order of their keys is not kept"
    found = [Text(f"  - {why}", "red")] if bypassed else []
    found += [Text(f"  - {draw_finding(each)}", "red") for each in facts.get("findings", ())]
    waits = [*facts["held"], *facts.get("held_for_groups", ())]
    return [state, line, ids, *found, *(Text(f"  - {_held(each)}", "yellow") for each in waits), Text()]


def _state(facts: Facts) -> Text:
    state = str(facts.get("state", ""))  # a Kordon of an older version does not say it
    return Text(state, "green" if state.endswith(SETTLED) else "yellow")


def _held(held: Facts) -> str:
    where = f"{numbered('partition', held['partitions'])}: " if held["partitions"] else ""
    if not where and held["virtual_partitions"]:
        where = f"{numbered('virtual partition', held['virtual_partitions'])}: "
    return where + str(held["why"])


def _epochs(facts: Facts) -> Table:
    table = titled_table("Layout epochs", ">epoch", ">partitions", "placement")
    for each in facts["epochs"]:
        table.add_row(str(each["layout_epoch"]), str(each["undeleted_partition_count"]), each["placement"])
    return table


def _partitions(facts: Facts) -> Table:
    columns = (">partition", "state", "virtual partitions", "segment", "offsets", "after")
    table = titled_table("Partitions of the brokers", *columns)
    for each in facts["partitions"]:
        first = [str(each["partition"]), each["state"], ranges(each["virtual_partitions"])]
        for segment in each["segments"]:
            offsets = _span(segment["start"], segment["end"])
            table.add_row(*first, segment["segment"], offsets, ", ".join(segment["predecessors"]))
            first = ["", "", ""]
    return table


def _chains(facts: Facts, only: int | None) -> Table:
    columns = (">virtual partitions", ">moves", "their offsets", ">partition", "its offsets", ">delta")
    table = titled_table("Chains of the virtual partitions", *columns)
    for chain in facts["chains"]:
        if only is not None and only not in chain["virtual_partitions"]:
            continue
        first = [ranges(chain["virtual_partitions"] if only is None else [only]), str(chain["moves"])]
        for row in _stays(chain["stays"]):
            table.add_row(*first, *row)
            first = ["", ""]
    return table


def _stays(stays: Iterable[Facts]) -> Iterable[list[str]]:
    rows = [
        [
            _span(each["virtual_start"], each["virtual_end"]),
            str(each["partition"]),
            _span(each["start"], each["end"]) + ("" if each["tagged"] else " (before it was managed)"),
            f"{each['delta']:+d}" if each["delta"] else "0",
        ]
        for each in stays
    ]
    return rows or [["not there yet", "", "", ""]]


def _span(start: int, end: int | None) -> str:
    return f"[{start}, {'…' if end is None else end})"


def titled_table(title: str, *columns: str) -> Table:
    """Makes a table without rows; numbers stand right in a column whose name begins with `>`."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return table
