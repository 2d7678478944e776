"""The metrics of a worker's managed topics, and the table of all metrics of the proxy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kordon.proxy.decisions.families import DECISIONS
from kordon.proxy.member.control_state import ControlState, state_of
from kordon.proxy.ordering import findings, records
from kordon.proxy.ordering.reading import Hidden
from kordon.proxy.process.waits import seconds_by_stage, waited_for
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.runtime.families import Family, counter, gauge, histogram
from kordon.proxy.runtime.metrics import WORKER

if TYPE_CHECKING:
    from kordon.proxy.controller.controller_role import ControllerRole
    from kordon.proxy.controller.topic_janitor import JanitorCounts
    from kordon.proxy.member.layout_member import LayoutMember
    from kordon.proxy.own_topics.followed_log import LogTally
    from kordon.proxy.own_topics.group_positions import GroupPositions
    from kordon.proxy.process.managed_worker import ManagedWorker
    from kordon.proxy.topics.managed_topics import ManagedTopics


@dataclass(frozen=True, slots=True)
class ManagedLook:
    """A worker's managed topics during one scrape, with what would be costly to ask for each family."""

    worker: ManagedWorker
    topics: ManagedTopics
    member: LayoutMember
    reports: GroupPositions
    role: ControllerRole | None
    """None: the worker is not the controller."""
    control: ControlState
    janitors: Mapping[str, JanitorCounts]
    commits_held: Mapping[str, float]

    @classmethod
    def at(cls, worker: ManagedWorker) -> ManagedLook:
        """Looks at a worker."""
        member, role = worker.layout_member, worker.layout_member.leadership.role
        janitors = role.janitors.counts() if role is not None else {}
        held = worker.individual_commits.held()
        return cls(worker, worker.topics, member, worker.group_positions, role, state_of(member), janitors, held)

    def of_janitors(self, count: Callable[[JanitorCounts], float]) -> dict[str, float]:
        """Returns one count of each janitor, by topic."""
        return {topic: count(each) for topic, each in self.janitors.items()}


def _records(log: LogTally) -> dict[str, float]:
    return {"written": log.written, "read": log.read, "unreadable": log.unreadable}


def _failures(log: LogTally) -> dict[str, float]:
    return {"lost": log.lost, "unavailable": log.failed}


# fmt: off
MANAGED: Final[tuple[Family[ManagedLook], ...]] = (
    gauge("kordon_managed_topics", lambda m: len(m.topics), "Managed topics of the cluster."),
    gauge("kordon_managed_partitions", lambda m: {each.name: each.layout.u for each in m.topics},
          "Partitions that are written to.", "topic"),
    gauge("kordon_managed_layout_epoch", lambda m: {each.name: each.layout.epoch for each in m.topics},
          "Layout epoch in force here; the same everywhere.", "topic"),
    gauge("kordon_managed_producers_carried", lambda m: {each.name: each.producers_carried for each in m.topics},
          "Producers whose past is kept for a change of partitions, by partition they wrote to.", "topic"),
    gauge("kordon_managed_serving", lambda m: m.control.serves,
          "1 while this worker may serve managed topics, else 0."),
    gauge("kordon_managed_leading", lambda m: m.role is not None, "1 while this worker is the controller, else 0."),
    gauge("kordon_managed_change_seconds", lambda m: seconds_by_stage(m.topics, m.control, now_ms()),
          "How long a change or takeover of a topic has been under way, by what it waits for now.", "topic", "stage"),
    gauge("kordon_managed_takeover_groups", lambda m: waited_for(m.topics) if m.role is not None else {},
          "Groups that a takeover waits for.", "topic"),
    gauge("kordon_managed_lease_seconds", lambda m: m.control.lease_seconds_left,
          "Seconds until this worker's lease ends; 0: it has none."),
    gauge("kordon_managed_missing_lease_seconds", lambda m: m.control.missing_lease_seconds,
          "Seconds until the leases of missing proxies end, for which changes wait."),
    gauge("kordon_managed_fences", lambda m: sum(each.fence is not None for each in m.topics),
          "Changes of partitions that hold writes now."),
    histogram("kordon_managed_fence_seconds",
              lambda m: {phase.value: seconds for phase, seconds in m.member.times.seconds.items()},
              "How long changes of partitions hold writes, by phase.", "phase"),
    histogram("kordon_managed_pause_seconds", lambda m: m.member.times.pauses,
              "How long changes paused a topic's writes and reads.", "topic"),
    gauge("kordon_managed_waiting_bytes",
          lambda m: {each.name: m.worker.dispatcher.waiting_bytes(each.name) for each in m.topics},
          "Bytes of writes that are not sent to brokers yet.", "topic"),
    counter("kordon_managed_writes_total", lambda m: m.worker.dispatcher.counts.by_outcome(),
            "Batches for managed topics by their outcome.", "outcome"),
    counter("kordon_managed_written_bytes_total", lambda m: m.worker.dispatcher.counts.bytes,
            "Bytes written to managed topics."),
    counter("kordon_managed_holds_total", lambda m: m.worker.dispatcher.counts.held,
            "Times that writes of a virtual partition were held."),
    counter("kordon_managed_stalls_total", lambda m: m.worker.dispatcher.stall_avoidance.stalls,
            "Connections whose oldest write got no answer for long."),
    gauge("kordon_managed_partitions_apart", lambda m: m.worker.dispatcher.stall_avoidance.apart,
          "Partitions written to on connections of their own."),
    counter("kordon_managed_transaction_witnesses_total",
            lambda m: m.worker.transactions.witnesses if m.worker.transactions is not None else {},
            "Witnesses in front of transactions' data, by what brokers answered.", "outcome"),
    counter("kordon_managed_transaction_questions_total",
            lambda m: m.worker.transactions.questions if m.worker.transactions is not None else {},
            "Questions to brokers about transactions, by who was asked.", "asked"),
    counter("kordon_managed_pulled_bytes_total", lambda m: m.worker.reads.tally.pulled_bytes,
            "Bytes read from brokers for managed topics."),
    counter("kordon_managed_served_bytes_total", lambda m: m.worker.reads.tally.served_bytes,
            "Bytes of managed topics given to clients."),
    counter("kordon_managed_cache_looks_total",
            lambda m: {"hit": m.worker.reads.tally.hits, "miss": m.worker.reads.tally.misses},
            "Lookups in the cache of what was read from brokers before.", "outcome"),
    gauge("kordon_managed_cached_bytes", lambda m: m.worker.reads.tally.cached_bytes,
          "Bytes read from brokers that are kept for other readers."),
    counter("kordon_managed_hidden_batches_total",
            lambda m: {kind.value: m.worker.reads.tally.hidden[kind.value] for kind in Hidden},
            "Batches that are not given to readers as they are, by kind.", "kind"),
    counter("kordon_managed_late_batches_total", lambda m: m.worker.reads.tally.late,
            "Batches written after the end of their transaction that read_committed readers passed.", "topic"),
    gauge("kordon_managed_undecided_seconds", lambda m: m.worker.reads.logs.undecided_seconds,
          "How long read_committed readers have waited for the transaction that they wait for longest."),
    counter("kordon_managed_bypassed_batches_total", lambda m: m.worker.reads.tally.bypassed,
            "Batches that somebody wrote to the brokers without Kordon.", "topic"),
    counter("kordon_managed_passed_over_batches_total", lambda m: m.worker.reads.opener.passed,
            "Batches that Kordon cannot open and so passes over.", "topic", "reason"),
    gauge("kordon_managed_lag_records", lambda m: m.worker.lags.told,
          "Offsets that a group has not committed yet, reported by the leading worker.", "topic", "group", "partition"),
    counter("kordon_managed_findings_total",
            lambda m: {kind: m.member.findings.counted[kind] for kind in findings.KINDS},
            "What the controller found wrong with topics.", "kind"),
    counter("kordon_own_refusals_total", lambda m: m.worker.own.refusals,
            "Requests refused as they named something of Kordon's own."),
    counter("kordon_layouts_unreadable_records_total",
            lambda m: {kind: m.member.findings.unread.counted[kind] for kind in (*records.KINDS, records.OTHER)},
            "Records of __kordon.layouts that could not be read, or were forged.", "kind"),
    gauge("kordon_managed_topics_unserved", lambda m: len(m.topics.unserved),
          "Managed topics not served, as records of theirs in __kordon.layouts cannot be read."),
    counter("kordon_janitor_markers_total", lambda m: m.of_janitors(lambda each: each.markers),
            "Tombstones that janitors wrote to partitions that keys have left.", "topic"),
    counter("kordon_janitor_read_bytes_total", lambda m: m.of_janitors(lambda each: each.read_bytes),
            "Bytes that janitors have read.", "topic"),
    counter("kordon_janitor_opened_records_total", lambda m: m.of_janitors(lambda each: each.opened_records),
            "Records that janitors looked at one by one.", "topic"),
    counter("kordon_janitor_values_brought_back_total", lambda m: m.of_janitors(lambda each: each.values_brought_back),
            "Last values that janitors wrote again, as compaction would have removed them.", "topic"),
    counter("kordon_janitor_values_given_up_total", lambda m: m.of_janitors(lambda each: each.values_given_up),
            "Last values that janitors could not write again.", "topic"),
    counter("kordon_janitor_failures_total", lambda m: m.of_janitors(lambda each: each.failures),
            "Reads and writes of janitors that failed.", "topic"),
    gauge("kordon_janitor_doubtful_keys", lambda m: m.of_janitors(lambda each: each.doubts),
          "Keys whose last value compaction may remove, and which the janitor looks for.", "topic"),
    gauge("kordon_janitor_behind_records", lambda m: m.of_janitors(lambda each: each.behind_records),
          "Offsets that the janitor has not looked at.", "topic"),
    gauge("kordon_janitor_behind_seconds", lambda m: m.of_janitors(lambda each: each.behind_seconds),
          "How long the janitor has not reached the end of some partition.", "topic"),
    counter("kordon_gate_holds_total", lambda m: m.worker.gates.tally.holds,
            "Times that a dialect client's partition was held.", "topic"),
    counter("kordon_gate_held_seconds_total", lambda m: m.worker.gates.tally.held_seconds,
            "How long dialect clients' partitions were held.", "topic"),
    gauge("kordon_gate_held_partitions", lambda m: m.worker.gates.tally.held,
          "Partitions of dialect clients that are held now."),
    counter("kordon_gate_refusals_total", lambda m: m.worker.gates.tally.refused,
            "Fetches of dialect clients refused because the number of partitions has changed.", "topic"),
    counter("kordon_positions_reports_total", lambda m: m.worker.position_reports.outcomes,
            "Reports of members of dialect groups.", "outcome"),
    counter("kordon_positions_records_total", lambda m: _records(m.reports.log.tally),
            "Records of __kordon.groups.", "kind"),
    counter("kordon_positions_failures_total",
            lambda m: _failures(m.reports.log.tally) | {"forgotten": m.reports.positions.forgotten},
            "What went wrong with __kordon.groups.", "kind"),
    gauge("kordon_positions_groups", lambda m: len(m.reports.positions), "Dialect groups whose positions are known."),
    gauge("kordon_positions_members", lambda m: m.reports.positions.member_count,
          "Members of dialect groups whose reports are known."),
    gauge("kordon_positions_bytes", lambda m: m.reports.positions.bytes,
          "Memory of the reports of dialect groups' members, estimated."),
    counter("kordon_epochs_lent_total", lambda m: m.worker.lending.outcomes,
            "InitProducerId requests of transactional producers that Kordon answered in front of brokers before "
            "2.5.", "outcome"),
    counter("kordon_epochs_records_total",
            lambda m: _records(m.worker.lent_epochs.log.tally) | {"late": m.worker.lent_epochs.late},
            "Records of __kordon.producers.", "kind"),
    counter("kordon_epochs_failures_total", lambda m: _failures(m.worker.lent_epochs.log.tally),
            "What went wrong with __kordon.producers.", "kind"),
    gauge("kordon_epochs_ids", lambda m: len(m.worker.lent_epochs.table),
          "Transactional ids whose epochs Kordon keeps."),
    counter("kordon_individual_commits_total", lambda m: m.worker.individual_commits.outcomes,
            "Rows of individual commits, by what came of them.", "outcome"),
    counter("kordon_individual_commits_records_total", lambda m: _records(m.worker.individual_commits.counts()),
            "Records of __kordon.individual_commits.", "kind"),
    counter("kordon_individual_commits_failures_total", lambda m: _failures(m.worker.individual_commits.counts()),
            "What went wrong with __kordon.individual_commits.", "kind"),
    gauge("kordon_individual_commits_places", lambda m: m.commits_held["places"],
          "Groups and partitions of which individual commits are known."),
    gauge("kordon_individual_commits_ranges", lambda m: m.commits_held["ranges"],
          "Ranges that groups have done after their stable offsets."),
    gauge("kordon_individual_commits_bytes", lambda m: m.commits_held["bytes"],
          "Memory of what groups have done, estimated."),
    gauge("kordon_individual_commits_log_bytes", lambda m: m.commits_held["log_bytes"],
          "Records of __kordon.individual_commits that count, in bytes."),
    gauge("kordon_individual_commits_oldest_gap_seconds", lambda m: m.commits_held["oldest_gap_seconds"],
          "Time for which the oldest stable offset with later ranges has not moved; 0: none has any."),
    gauge("kordon_individual_commits_left_out", lambda m: m.commits_held["left_out"],
          "Whether other proxies take individual commits, or did, and this one does not: 1 or 0."),
    counter("kordon_share_groups_outcomes_total", lambda m: m.worker.share_groups.outcomes,
            "Records that share groups were given of managed topics, by what became of them.", "outcome"),
    counter("kordon_share_groups_records_total", lambda m: _records(m.worker.share_groups.counts()),
            "Records of __kordon.share_groups.", "kind"),
    counter("kordon_share_groups_failures_total", lambda m: _failures(m.worker.share_groups.counts()),
            "What went wrong with __kordon.share_groups.", "kind"),
    gauge("kordon_share_groups_places", lambda m: m.worker.share_groups.held().places,
          "Share groups and virtual partitions that are known."),
    gauge("kordon_share_groups_in_hand", lambda m: m.worker.share_groups.held().in_hand,
          "Records that members of share groups have in hand."),
    gauge("kordon_share_groups_window_records", lambda m: m.worker.share_groups.held().looked,
          "Records that were looked at ahead of what share groups have done."),
    gauge("kordon_share_groups_blocked_records", lambda m: m.worker.share_groups.held().blocked,
          "Records at their delivery limit that hold up later records in their order."),
    gauge("kordon_share_groups_oldest_seconds", lambda m: m.worker.share_groups.oldest_seconds(),
          "Longest time that a share group has had an offset open while it finishes later ones; 0: none has any."),
    gauge("kordon_share_groups_bytes", lambda m: m.worker.share_groups.held().bytes,
          "Memory of what share groups have in hand and have done, estimated."),
    gauge("kordon_share_groups_log_bytes", lambda m: m.worker.share_groups.held().log_bytes,
          "Records of __kordon.share_groups that count, in bytes, estimated."),
    gauge("kordon_source_topics", lambda m: len(m.topics.sources), "Source topics of the cluster."),
    counter("kordon_source_refusals_total", lambda m: m.topics.sources.refused,
            "Partitions of requests that source topics have refused, by reason.", "reason"),
    counter("kordon_source_group_visits_total", lambda m: m.worker.source_groups.outcomes,
            "Visits to groups of sources without members, so that brokers keep their restart points.", "outcome"),
    counter("kordon_source_topics_records_total", lambda m: _records(m.worker.source_topics.log.tally),
            "Records of __kordon.source_topics.", "kind"),
    counter("kordon_source_topics_failures_total", lambda m: _failures(m.worker.source_topics.log.tally),
            "What went wrong with __kordon.source_topics.", "kind"),
    gauge("kordon_positions_lag_records", lambda m: m.reports.log.lag,
          "Records of __kordon.groups that are not read yet."),
    gauge("kordon_subscriptions_bytes", lambda m: m.worker.subscriptions.remembered_bytes,
          "Memory of what members of KIP-848 groups subscribe to."),
    counter("kordon_subscriptions_forgotten_total", lambda m: m.worker.subscriptions.forgotten,
            "Members of KIP-848 groups whose subscription was forgotten for lack of room."),
    gauge("kordon_client_quotas", lambda m: m.worker.quotas.counts(),
          "Quotas of users and client ids at the brokers, by kind.", "kind"),
    counter("kordon_client_quota_throttles_total", lambda m: m.worker.quotas.throttled,
            "Answers behind which a client had to wait because of its quota, by the quota's kind.", "kind"),
    counter("kordon_client_quota_unknown_users_total", lambda m: m.worker.quotas.unbound,
            "Requests of clients whose users Kordon does not know, while quotas name users."),
    gauge("kordon_client_quotas_refused", lambda m: int(bool(m.worker.quotas.refusal)),
          "Whether brokers refuse to tell the quotas of clients, so that none is held: 1 or 0."),
    gauge("kordon_client_quotas_of_kordon_bytes", lambda m: m.worker.quotas.on_kordon(),
          "Bytes per second to which brokers hold Kordon itself, and so all of its clients, by the quota's kind.",
          "kind"),
    gauge("kordon_managed_alien_members",
          lambda m: m.control.generation.aliens if m.control.generation is not None else 0,
          "Members of the proxies' group that are no proxies."),
)
# fmt: on
_ALL: Final[tuple[Family[Any], ...]] = (*WORKER, *MANAGED, *DECISIONS)
FAMILIES: Final[Mapping[str, Family[Any]]] = {each.name: each for each in _ALL}
"""Every family that a worker exports, besides the `process_` ones of prometheus_client."""
