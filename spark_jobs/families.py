"""The metrics of a running audit: the one table of names, types, labels and meanings.

It needs no PySpark, so whoever only wants the names (docs/metrics.md, alerts, dashboards and their tests) has them in
the proxy's environment, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class AuditFamily:
    """One metric as it is documented."""

    name: str
    kind: str
    """counter, gauge or histogram."""
    labels: tuple[str, ...]
    help: str
    """What it means, in one sentence."""


FAMILIES: Final = {
    family.name: family
    for family in (
        AuditFamily("kordon_audit_decisions_total", "counter", (), "Decisions that the audit has judged."),
        AuditFamily("kordon_audit_bytes_total", "counter", (), "Bytes of managed topics that the audit has read."),
        AuditFamily("kordon_audit_lag_decisions", "gauge", (), "Decisions in the log that are not judged yet."),
        AuditFamily(
            "kordon_audit_lag_seconds",
            "gauge",
            (),
            "Age of the oldest decision in the log that is not judged yet; 0: there is none.",
        ),
        AuditFamily("kordon_audit_lag_bytes", "gauge", (), "Bytes of managed topics that are not read yet, estimated."),
        AuditFamily(
            "kordon_audit_findings_total",
            "counter",
            ("rule", "verdict"),
            "Findings of the audit by rule and verdict (fail or unknown).",
        ),
        AuditFamily("kordon_audit_bypasses_total", "counter", (), "Findings of writers that bypassed Kordon."),
        AuditFamily(
            "kordon_audit_gaps_total", "counter", (), "Gaps in workers' numbers: decisions that were not written."
        ),
        AuditFamily(
            "kordon_audit_undelivered_findings",
            "gauge",
            ("to",),
            "Findings in the audit's folder that could not be written to the topic or the table yet.",
        ),
        AuditFamily("kordon_audit_late_total", "counter", ("rule",), "What came too late for a rule to judge it."),
        AuditFamily("kordon_audit_batch_seconds", "histogram", (), "How long the audit takes for a micro-batch."),
        AuditFamily(
            "kordon_audit_last_batch_timestamp_seconds",
            "gauge",
            (),
            "When the last micro-batch was finished, in seconds since 1970.",
        ),
    )
}
"""Every series is there from the start, at 0, for each rule and verdict: Prometheus sees no increase in a counter that
begins at 1."""
