"""The metrics of a worker's decision log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kordon.codecs.decision import Kind
from kordon.proxy.runtime.families import Family, counter, gauge

if TYPE_CHECKING:
    from kordon.proxy.decisions.recorder import Recorder

# fmt: off
DECISIONS: Final[tuple[Family[Recorder], ...]] = (
    counter("kordon_decisions_total", lambda r: {kind.value: r.backlog.counts[kind] for kind in Kind},
            "Decisions by what was decided, dropped ones included.", "kind"),
    counter("kordon_decisions_dropped_total", lambda r: r.backlog.dropped,
            "Decisions that were dropped; only a gap records them."),
    counter("kordon_decisions_written_total", lambda r: r.written, "Decisions that were written."),
    gauge("kordon_decisions_queue_bytes", lambda r: r.backlog.bytes, "Memory of decisions that are not written yet."),
    gauge("kordon_decisions_seconds", lambda r: r.lag_seconds, "How long a decision waits until it is written."),
)
# fmt: on
