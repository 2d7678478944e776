"""One decision as one line for a person."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from kordon.codecs.counted import counted
from kordon.codecs.decision import Decision, Entry, Kind
from kordon.codecs.shown_text import shown

_COLOURS: Final = {
    Kind.ADMIT: "green",
    Kind.DELIVER: "cyan",
    Kind.REFUSE: "red",
    Kind.LIMIT: "red",
    Kind.GAP: "bold red",
    Kind.HOLD: "yellow",
    Kind.RELEASE: "yellow",
    Kind.REWIND: "yellow",
    Kind.FENCE: "magenta",
    Kind.ACKNOWLEDGE: "magenta",
    Kind.CUT: "magenta",
    Kind.COMMIT: "bold magenta",
    Kind.CANCEL: "bold magenta",
    Kind.ADOPT: "magenta",
    Kind.FORGET: "magenta",
}
_VERDICTS: Final = {Kind.REFUSE: "time", Kind.DELIVER: "answer", Kind.GAP: "decision"}
"""What a record stands for several of."""
_WORKER_DIGITS: Final = 6
_FENCE_DIGITS: Final = 8
_EVIDENCE_COLUMNS: Final = 160
_KIND_COLUMNS: Final = max(map(len, Kind))


class Screen(Console):
    """The terminal or file that decisions are printed to."""

    def on_broken_pipe(self) -> None:
        """Leaves it to whoever prints what to do when nobody reads any more.

        Raises:
            BrokenPipeError: Always.
        """
        raise BrokenPipeError


def draw(entry: Entry) -> Text:
    """Draws a decision: when, by which worker under which number, what, about whom and what, and why."""
    decision = _shown(entry.decision)
    moment = datetime.fromtimestamp(entry.at_ms / 1000).astimezone()
    line = Text(f"{moment:%H:%M:%S}.{entry.at_ms % 1000:03} ", "dim")
    line.append(f"{entry.worker[:_WORKER_DIGITS]}:{entry.number:<6} ", "dim")
    line.append(f"{decision.kind.value:<{_KIND_COLUMNS}} ", _COLOURS.get(decision.kind, "blue"))
    line.append("  ".join(_parts(decision)))
    if decision.evidence:
        line.append("  " + _evidence(decision.evidence), "dim")
    return line


def _shown(decision: Decision) -> Decision:
    """Escapes texts that clients choose: their ids, groups and users."""
    texts: dict[str, Any] = {
        each.name: shown(value) for each in fields(decision) if type(value := getattr(decision, each.name)) is str
    }
    return replace(decision, **texts)


def _parts(decision: Decision) -> Iterator[str]:
    yield from _place(decision)
    yield from _ranges(decision)
    yield from _who(decision)
    yield from _why(decision)


def _place(decision: Decision) -> Iterator[str]:
    if decision.topic is not None:
        yield decision.topic
    stream, partition = decision.stream, decision.partition
    if stream is not None and stream >= 0:
        yield f"v{stream}" + (f" in q{partition}" if partition is not None else "")
    elif stream is not None or partition is not None:
        yield f"q{partition if partition is not None else ~(stream or 0)}"
    if decision.move and (stream or 0) >= 0:
        yield f"move {decision.move}"
    if decision.layout_epoch is not None:
        yield f"epoch {decision.layout_epoch}"
    if decision.layouts_offset is not None:
        yield f"@{decision.layouts_offset}"
    if decision.fence is not None:
        yield f"fence {decision.fence[:_FENCE_DIGITS]}"


def _ranges(decision: Decision) -> Iterator[str]:
    if decision.producer_id is not None and decision.producer_id >= 0:
        yield f"producer {decision.producer_id}.{decision.producer_epoch} #{_range(decision, 'sequence')}"
    if decision.first_number is not None:
        yield f"numbers {_range(decision, 'number')}"
    if decision.kind is Kind.REWIND:
        yield f"from {decision.last_offset} to {decision.first_offset}"
    elif decision.first_offset is not None:
        yield f"offsets {_range(decision, 'offset')}"
    elif decision.last_offset is not None:
        yield f"offset {decision.last_offset}"
    counts = [(decision.batches, _VERDICTS.get(decision.kind, "batch")), (decision.records, "record")]
    told = [counted(count, what) for count, what in counts if count is not None]
    if told := told + ([counted(decision.bytes, "byte")] if decision.bytes is not None else []):
        yield ", ".join(told)


def _range(decision: Decision, what: str) -> str:
    first, last = getattr(decision, f"first_{what}"), getattr(decision, f"last_{what}")
    return f"{first}" if first == last else f"{first}-{last}"


def _who(decision: Decision) -> Iterator[str]:
    if decision.group_id is not None:
        yield f"group {decision.group_id}"
    if decision.generation_id is not None:
        yield f"generation {decision.generation_id}"
    if decision.connection is not None:
        client = decision.client_id or "client"
        yield f"{client}/{decision.connection}" + (f" as {decision.principal}" if decision.principal else "")


def _why(decision: Decision) -> Iterator[str]:
    if decision.api_key is not None:
        yield f"api {decision.api_key}"
    if decision.rule is not None:
        yield f"({decision.rule})"
    if decision.reason is not None:
        yield decision.reason


def _evidence(evidence: Mapping[str, object]) -> str:
    """Writes evidence down as far as a line takes it; of a layout only that it is there."""
    told = {name: "…" if name == "layout" else value for name, value in evidence.items()}
    text = shown(json.dumps(told, ensure_ascii=False, separators=(", ", ": ")))
    return text if len(text) <= _EVIDENCE_COLUMNS else text[: _EVIDENCE_COLUMNS - 1] + "…"
