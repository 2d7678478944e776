"""The two tables of handlers, which say for each view what Kordon handles. All other requests pass as they came.

In the virtual view clients see virtual partitions; stock connections have it. In the physical view, the dialect's, they
see physical ones, so that more passes. `closed.py` keeps Kordon's own things from both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kordon.codecs import apis
from kordon.proxy.access.client_quotas import ClientQuotas
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.room import RecordRoom
from kordon.proxy.handlers.add_partitions_to_txn import AddPartitionsToTxn
from kordon.proxy.handlers.alter_configs import AlterConfigs
from kordon.proxy.handlers.alter_partition_reassignments import AlterPartitionReassignments
from kordon.proxy.handlers.alter_replica_log_dirs import AlterReplicaLogDirs
from kordon.proxy.handlers.alter_share_group_offsets import AlterShareGroupOffsets
from kordon.proxy.handlers.api_handler import ApiHandler, HandlerContext
from kordon.proxy.handlers.api_versions import ApiVersions, DialectApiVersions
from kordon.proxy.handlers.caught_up import CaughtUp
from kordon.proxy.handlers.consumer_group_describe import ConsumerGroupDescribe
from kordon.proxy.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeat, DialectConsumerGroupHeartbeat
from kordon.proxy.handlers.consumer_group_position import ConsumerGroupPosition
from kordon.proxy.handlers.create_partitions import CreatePartitions
from kordon.proxy.handlers.create_topics import CreateTopics
from kordon.proxy.handlers.delete_acls import DeleteAcls
from kordon.proxy.handlers.delete_groups import DeleteGroups
from kordon.proxy.handlers.delete_records import DeleteRecords
from kordon.proxy.handlers.delete_share_group_offsets import DeleteShareGroupOffsets
from kordon.proxy.handlers.delete_topics import DeleteTopics
from kordon.proxy.handlers.describe_acls import DescribeAcls
from kordon.proxy.handlers.describe_configs import DescribeConfigs
from kordon.proxy.handlers.describe_groups import DescribeGroups
from kordon.proxy.handlers.describe_producers import DescribeProducers
from kordon.proxy.handlers.describe_share_group_offsets import DescribeShareGroupOffsets
from kordon.proxy.handlers.describe_topic_partitions import DescribeTopicPartitions, DialectDescribeTopicPartitions
from kordon.proxy.handlers.describe_transactions import DescribeTransactions
from kordon.proxy.handlers.elect_leaders import ElectLeaders
from kordon.proxy.handlers.end_txn import EndTxn
from kordon.proxy.handlers.epoch_lending import EpochLending
from kordon.proxy.handlers.fetch import Fetch
from kordon.proxy.handlers.floor_wishes import FloorWishes
from kordon.proxy.handlers.handlers import Handlers
from kordon.proxy.handlers.incremental_alter_configs import IncrementalAlterConfigs
from kordon.proxy.handlers.individual_offset_commit import IndividualOffsetCommit
from kordon.proxy.handlers.individual_offset_fetch import IndividualOffsetFetch
from kordon.proxy.handlers.init_producer_id import InitProducerId
from kordon.proxy.handlers.join_group import JoinGroup
from kordon.proxy.handlers.list_offsets import ListOffsets
from kordon.proxy.handlers.metadata import DialectMetadata, Metadata
from kordon.proxy.handlers.offset_commit import DialectOffsetCommit, OffsetCommit
from kordon.proxy.handlers.offset_delete import OffsetDelete
from kordon.proxy.handlers.offset_fetch import DialectOffsetFetch, OffsetFetch
from kordon.proxy.handlers.offset_for_leader_epoch import OffsetForLeaderEpoch
from kordon.proxy.handlers.other_refusals import OtherRefusals
from kordon.proxy.handlers.partition_leader_epochs import PartitionLeaderEpochs
from kordon.proxy.handlers.position_reports import MemberReports
from kordon.proxy.handlers.produce import Produce
from kordon.proxy.handlers.retired_partitions import RetiredPartitions
from kordon.proxy.handlers.share_acknowledge import ShareAcknowledge
from kordon.proxy.handlers.share_fetch import ShareFetch
from kordon.proxy.handlers.share_group_describe import ShareGroupDescribe
from kordon.proxy.handlers.share_group_heartbeat import RefusedShareGroupHeartbeat, ShareGroupHeartbeat
from kordon.proxy.handlers.share_offsets import ShareOffsets
from kordon.proxy.handlers.share_serving import ShareServing
from kordon.proxy.handlers.source_assignments import HeldOwners, SyncedOwners
from kordon.proxy.handlers.source_commits import LastNumbers, SourceCommits
from kordon.proxy.handlers.streams_group_heartbeat import StreamsGroupHeartbeat
from kordon.proxy.handlers.subscriptions import Subscriptions
from kordon.proxy.handlers.sync_group import SyncGroup
from kordon.proxy.handlers.told_commits import ToldCommits
from kordon.proxy.handlers.topic_wishes import Check, Fulfil
from kordon.proxy.handlers.transactional_produce import TransactionalProduce
from kordon.proxy.handlers.txn_offset_commit import DialectTxnOffsetCommit, TxnOffsetCommit
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.leader_requests import PartitionLeaderRequests
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.share_group_configs import ShareGroupConfigs
from kordon.proxy.own_topics.individual_commits import IndividualCommits
from kordon.proxy.own_topics.share_groups import ShareGroups
from kordon.proxy.reads.aborted import AbortedTransactions
from kordon.proxy.reads.fetch_handler import FetchHandler
from kordon.proxy.reads.gating import Gates
from kordon.proxy.reads.share_reads import ShareReads
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.views import PHYSICAL, VIRTUAL, View
from kordon.proxy.writes.write_dispatcher import WriteDispatcher


@dataclass(frozen=True, kw_only=True)
class WorkerParts:
    """What handlers use of a worker.

    Attributes:
        topics: The managed topics.
        journal: Where decisions are recorded.
        turns: Share of the worker's time.
        links: Connections to brokers.
        leaders: The leaders of physical partitions.
        dispatcher: Takes what is written.
        reads: Read physical logs.
        gates: Hold partitions of dialect groups.
        subscriptions: The subscriptions of members of KIP-848 groups.
        reports: Positions of dialect groups.
        caught_up: The groups that have nothing left to read.
        lending: Lends epochs in front of old brokers.
        wish: Has a wish come true.
        check: Tells what would come of a wish now, and changes nothing.
        state_of: Says in words what happens with a topic; None: nothing that Kordon knows of.
        read_layouts_to_end: Returns when all layouts that were durable at the call are adopted.
        may_serve: Whether the worker's lease lives.
        transactions: Take what belongs to transactions; None: that is refused (`ordering.transactions`).
        most_rows: Most rows of a request that is read (`limits.request_rows`).
        opened_bytes: Most bytes of records that a compressed batch of the dialect may hold (`limits.opened_bytes`).
        offers_dialect: Whether the dialect is announced (`ordering.dialect`).
        individual_commits: What groups have done offset by offset, if such commits are taken.
        share_groups: What share groups have acquired and finished, if they are served.
        quotas: The brokers' quotas for clients. None: Kordon does not enforce them (`ordering.client_quotas`).
        numbers: The numbers of the restart points that were seen last.
    """

    topics: ManagedTopics
    journal: Journal
    turns: Turns
    links: BrokerConnections
    leaders: Leaders
    dispatcher: WriteDispatcher
    reads: WorkerReads
    gates: Gates
    subscriptions: Subscriptions
    reports: MemberReports
    caught_up: CaughtUp
    lending: EpochLending
    wish: Fulfil
    check: Check
    state_of: Callable[[str], str | None]
    read_layouts_to_end: Callable[[], Awaitable[object]]
    may_serve: Callable[[], bool]
    transactions: TransactionalProduce | None
    most_rows: int
    opened_bytes: int
    offers_dialect: bool
    individual_commits: IndividualCommits
    share_groups: ShareGroups
    quotas: ClientQuotas | None = None
    numbers: LastNumbers = field(default_factory=LastNumbers)


def virtual_handlers(worker: WorkerParts) -> Handlers:
    """Returns the handlers of stock connections."""
    topics, questions = worker.topics, PartitionLeaderRequests(worker.links, worker.leaders)
    offsets = ListOffsets(topics, questions, worker.read_layouts_to_end, worker.may_serve, reads=worker.reads)
    handlers = [
        *_in_both_views(worker),
        ApiVersions(
            offers_dialect=worker.offers_dialect,
            lends_epochs=lambda: worker.lending.is_possible,
            takes_individual_commits=worker.individual_commits.is_served,
        ),
        Produce(topics, worker.dispatcher, transactions=worker.transactions),
        AddPartitionsToTxn(worker.transactions),
        Fetch(FetchHandler(worker.reads, complete=AbortedTransactions(worker.leaders).complete)),
        offsets,
        OffsetForLeaderEpoch(topics, questions, worker.may_serve),
        DeleteRecords(topics, questions, offsets, FloorWishes(worker.wish).raise_floors),
        Metadata(),
        DescribeTopicPartitions(),
        *_of_commits(worker),
        TxnOffsetCommit(worker.journal),
        OffsetDelete(),
        JoinGroup(),
        SyncGroup(),
        ConsumerGroupHeartbeat(worker.subscriptions),
        *_of_share_groups(worker, offsets),
        AlterPartitionReassignments(),
        AlterReplicaLogDirs(),
        ElectLeaders(),
        DescribeProducers(),
        DescribeTransactions(),
    ]
    return _chosen(worker, VIRTUAL, handlers, OffsetCommit(worker.journal))


def physical_handlers(worker: WorkerParts) -> Handlers:
    """Returns the handlers of connections that speak the dialect."""
    topics, questions = worker.topics, PartitionLeaderRequests(worker.links, worker.leaders)
    aborted = AbortedTransactions(worker.leaders, PHYSICAL)
    handlers = [
        *_in_both_views(worker),
        DialectApiVersions(
            offers_dialect=worker.offers_dialect,
            lends_epochs=lambda: worker.lending.is_possible,
            takes_individual_commits=worker.individual_commits.is_served,
        ),
        Produce(topics, worker.dispatcher, PHYSICAL, worker.opened_bytes, worker.transactions),
        AddPartitionsToTxn(worker.transactions, PHYSICAL),
        Fetch(FetchHandler(worker.reads, worker.gates, complete=aborted.complete), walks=False),
        ListOffsets(topics, questions, worker.read_layouts_to_end, worker.may_serve, PHYSICAL, reads=worker.reads),
        OffsetForLeaderEpoch(topics, questions, worker.may_serve, PHYSICAL),
        DialectMetadata(RetiredPartitions(topics, worker.reads.ends.of)),
        DialectDescribeTopicPartitions(),
        *_of_dialect_commits(worker),
        DialectConsumerGroupHeartbeat(worker.subscriptions),
        RefusedShareGroupHeartbeat(),
        ConsumerGroupPosition(worker.reports),
        PartitionLeaderEpochs(topics, worker.turns),
    ]
    if worker.journal.is_on:
        handlers.append(DialectTxnOffsetCommit(worker.journal))
    commits = [DialectOffsetCommit(worker.journal), DialectTxnOffsetCommit(worker.journal)]
    return _chosen(worker, PHYSICAL, handlers, *commits)


def _chosen(worker: WorkerParts, view: View, handlers: Sequence[ApiHandler], *commits: ApiHandler) -> Handlers:
    """Returns handlers, of which those of commits are other ones at times.

    Args:
        commits: What is done with commits where they are looked at for another reason than managed topics; that of
            OffsetCommit is the first.
    """
    logs = worker.individual_commits
    left_out = [] if logs.is_served else [IndividualOffsetCommit(commits[0], logs, worker.journal, view)]
    sources = _for_sources(worker, [*commits, *handlers, *left_out])
    found = Handlers(handlers, _shared(worker, view), sources, left_out)
    logs.watch(found.leave_out)
    return found


def _for_sources(worker: WorkerParts, handlers: Iterable[ApiHandler]) -> list[ApiHandler]:
    """Returns what takes the places of handlers while there are source topics."""
    by_key, room = {each.key: each for each in handlers}, RecordRoom(worker.journal)
    found: list[ApiHandler] = [
        SourceCommits(by_key[key], worker.numbers, worker.journal, room)
        for key in (apis.OFFSET_COMMIT, apis.TXN_OFFSET_COMMIT)
    ]
    if worker.journal.is_on:
        found += [each(by_key.get(each.key), room) for each in (SyncedOwners, HeldOwners)]
    return found


def _of_commits(worker: WorkerParts) -> list[ApiHandler]:
    logs = worker.individual_commits
    commit = OffsetCommit(worker.journal)
    fetch = OffsetFetch(worker.caught_up, ToldCommits(worker.journal), takes_marks_off=logs.is_served)
    if not logs.is_served:
        return [commit, fetch]
    return [IndividualOffsetCommit(commit, logs, worker.journal), IndividualOffsetFetch(fetch, logs)]


def _of_dialect_commits(worker: WorkerParts) -> list[ApiHandler]:
    logs = worker.individual_commits
    commit = DialectOffsetCommit(worker.journal)
    fetch = DialectOffsetFetch(ToldCommits(worker.journal, PHYSICAL), takes_marks_off=logs.is_served)
    if not logs.is_served:
        return [fetch, *([commit] if worker.journal.is_on else ())]
    return [
        IndividualOffsetCommit(commit, logs, worker.journal, PHYSICAL),
        IndividualOffsetFetch(fetch, logs, PHYSICAL),
    ]


def _of_share_groups(worker: WorkerParts, offsets: ListOffsets) -> list[ApiHandler]:
    groups = worker.share_groups
    if not groups.is_served:
        return [RefusedShareGroupHeartbeat()]
    complete = AbortedTransactions(worker.leaders).complete
    sharing = ShareServing(
        worker.topics,
        groups,
        ShareGroupConfigs(Brokers(worker.links)),
        ShareReads(worker.reads, complete, worker.opened_bytes),
        offsets,
        journal=worker.journal,
    )
    stands = ShareOffsets(groups, offsets)
    return [
        ShareGroupHeartbeat(worker.subscriptions),
        ShareFetch(sharing),
        ShareAcknowledge(sharing),
        DescribeShareGroupOffsets(stands),
        AlterShareGroupOffsets(stands),
        DeleteShareGroupOffsets(stands),
        DeleteGroups(stands),
    ]


def _in_both_views(worker: WorkerParts) -> list[ApiHandler]:
    return [
        CreateTopics(worker.wish),
        DeleteTopics(worker.wish),
        CreatePartitions(worker.wish, worker.check),
        AlterConfigs(worker.wish, worker.check),
        IncrementalAlterConfigs(worker.wish, worker.check),
        DescribeConfigs(worker.state_of),
        DescribeAcls(),
        DeleteAcls(),
        DescribeGroups(),
        ConsumerGroupDescribe(),
        ShareGroupDescribe(),
        StreamsGroupHeartbeat(),
        *([EndTxn(worker.transactions.transactions)] if worker.transactions is not None else ()),
        InitProducerId(worker.lending, worker.transactions.transactions if worker.transactions else None),
    ]


def _shared(worker: WorkerParts, view: View) -> HandlerContext:
    refusals = OtherRefusals(worker.journal, worker.topics, view)
    return HandlerContext(worker.topics, refusals, worker.turns, worker.most_rows, worker.quotas)
