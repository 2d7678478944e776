"""`kordon status`: /status of a running Kordon, fetched and drawn for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.text import Text

from kordon.codecs.counted import counted, size
from kordon.codecs.shown_text import shown_facts
from kordon.proxy.commands.admin_client import StatusUnavailable, fetch_object
from kordon.proxy.commands.topics_tables import titled_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kordon.proxy.config.host_port import HostPort
    from kordon.proxy.process.explain import Facts


def fetch_status(address: HostPort) -> Facts:
    """Asks a running Kordon how it is.

    Raises:
        StatusUnavailable: nobody answers there, or somebody else does.
    """
    status = fetch_object(address, "/status")
    if status is None or "state" not in status:
        raise StatusUnavailable(f"what answers at {address} shows no status of a Kordon; check --admin")
    return status


def render_status(status: Facts) -> RenderableType:
    """Draws a status as tables."""
    status = shown_facts(status)
    parts = [_summary(status), _brokers(status), _listeners(status), _ordering(status), _counts(status)]
    if "workers" in status:
        parts.append(_workers(status))
    return Group(*(part for part in parts if part is not None))


def print_status(status: Facts, console: Console | None = None) -> None:
    """Prints a status as tables to standard output."""
    (console or Console()).print(render_status(status))


def _summary(status: Facts) -> RenderableType:
    reasons = status.get("unready") or []
    healthy = not reasons and status["state"] == "running"
    line = Text.assemble(
        ("kordon ", "bold"),
        status.get("version", ""),
        "  ",
        (status["state"], "green" if healthy else "yellow"),
        "  ",
        ("ready" if not reasons else "not ready", "green" if not reasons else "red"),
        f"  up {_duration(status.get('uptime_seconds', 0))} since {status.get('started_at', '?')}",
    )
    notes = (Text(f"  - {note}", style="yellow") for note in status.get("notes") or [])
    return Group(line, *(Text(f"  - {reason}", style="red") for reason in reasons), *notes, Text())


def _brokers(status: Facts) -> RenderableType | None:
    upstream = status.get("upstream")
    if upstream is None:
        return None
    age = upstream.get("last_refresh_seconds_ago")
    asked = "never answered" if age is None else f"asked {_duration(age)} ago"
    cluster = upstream.get("cluster_id") or "cluster"
    table = titled_table(f"Brokers of {cluster} ({asked})", ">node", "address", "advertised as", "state", "error")
    for node in upstream.get("nodes", []):
        state = Text("up", "green") if node["up"] else Text("down", "red")
        table.add_row(str(node["node_id"]), node["address"], node["advertised"], state, node.get("error") or "")
    if not table.rows:
        bootstrap = ", ".join(upstream.get("bootstrap", []))
        return Group(Text("Brokers: none known yet", "bold"), Text(f"  bootstrap {bootstrap}"), Text())
    return Group(table, Text())


def _listeners(status: Facts) -> RenderableType | None:
    table = titled_table("Listeners", "address", "for", ">connections")
    for listener in status.get("listeners", []):
        table.add_row(listener["address"], str(listener["role"]), _number(listener["connections"]))
    return Group(table, Text()) if table.rows else None


def _ordering(status: Facts) -> RenderableType | None:
    ordering = status.get("ordering")
    if ordering is None or not ordering["enabled"] or ordering["generation"] is None:
        return None
    serves = "served" if ordering["serves"] else f"not served: {ordering['why_not']}"
    leads = ", the controller" if ordering["leads"] else ""
    line = Text.assemble(
        ("Managed topics ", "bold"),
        f"{ordering['topics']}, ",
        (serves, "green" if ordering["serves"] else "red"),
        f"; generation {ordering['generation']}{leads}, lease {ordering['lease_seconds_left']:g} s",
    )
    if ordering["fences"] or ordering["procedures"]:
        line.append(
            f"; {counted(ordering['fences'], 'fence')}, {counted(ordering['procedures'], 'change')} under way", "yellow"
        )
    return Group(line, Text())


def _counts(status: Facts) -> RenderableType | None:
    connections, requests = status.get("connections"), status.get("requests")
    if connections is None or requests is None:
        return None
    rate = requests["total"] / max(status.get("uptime_seconds") or 0, 1)
    table = titled_table("Traffic since the start", "what", ">count")
    table.add_row("connections open", _number(connections["open"]))
    table.add_row("connections accepted", _number(connections["accepted"]))
    for cause, count in sorted(connections["closed"].items()):
        table.add_row(f"  closed: {cause}", _number(count))
    table.add_row("requests", f"{_number(requests['total'])} ({rate:,.1f}/s)")
    table.add_row("requests in flight", _number(requests["in_flight"]))
    for name, count in status.get("bytes", {}).items():
        table.add_row(f"bytes {name.replace('_', ' ')}", size(count))
    for limit, count in sorted(status.get("limits", {}).get("hits", {}).items()):
        if count:
            table.add_row(Text(f"limit hit: {limit}", "yellow"), _number(count))
    return table


def _workers(status: Facts) -> RenderableType:
    table = titled_table("Workers", ">worker", ">pid", "state", ">connections", ">restarts")
    for row in status["workers"]:
        pid = str(row["pid"] or "-")
        table.add_row(str(row["worker"]), pid, row["state"], _number(row["connections"]), _number(row["restarts"]))
    return Group(Text(), table)


def _number(value: float) -> str:
    return f"{value:,}"


def _duration(seconds: float) -> str:
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {whole % 60}s" if minutes else f"{whole}s"
