"""All that one worker needs for managed topics, put together."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any, Final

import structlog

import kordon
from kordon.codecs import apis
from kordon.proxy.access.acl_mirror import AclMirror
from kordon.proxy.access.authorizer import Authorizer
from kordon.proxy.access.wrong_rights import Access, principal_of
from kordon.proxy.config.config import Config
from kordon.proxy.controller.hidden_writes import HiddenWrites
from kordon.proxy.controller.janitor import Tools
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.journal import Journal, NoJournal
from kordon.proxy.handlers import acls, dialect, groups, physical
from kordon.proxy.handlers.admin_requests import AdminRequests
from kordon.proxy.handlers.caught_up import CaughtUp
from kordon.proxy.handlers.delete_records import DeleteRecords
from kordon.proxy.handlers.describe_configs import DescribeConfigsTranslation
from kordon.proxy.handlers.dialect_metadata import RetiredPartitions
from kordon.proxy.handlers.floor_wishes import FloorWishes
from kordon.proxy.handlers.metadata import DescribeTopicPartitionsTranslation, MetadataTranslation
from kordon.proxy.handlers.partition_epochs import PartitionLeaderEpochs
from kordon.proxy.handlers.position_reports import PositionReports
from kordon.proxy.handlers.produce import ProduceService
from kordon.proxy.handlers.queries import ListOffsets, OffsetForLeaderEpoch
from kordon.proxy.handlers.refusals import REFUSALS
from kordon.proxy.handlers.regexes import TopicNames
from kordon.proxy.handlers.service import ManagedService
from kordon.proxy.handlers.subscriptions import Subscriptions
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.group import About
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.links import Links
from kordon.proxy.kafka.opening import Opener
from kordon.proxy.kafka.questions import Questions
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.member.keeper import Keeper
from kordon.proxy.member.membership import Membership, new_incarnation
from kordon.proxy.ordering import records
from kordon.proxy.ordering.findings import KINDS
from kordon.proxy.ordering.reading import Hidden
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.own_topics.layouts_writer import LayoutsWriter
from kordon.proxy.own_topics.own_ids import OwnIds
from kordon.proxy.own_topics.own_things import OwnThings
from kordon.proxy.process.common_faults import CommonFaults
from kordon.proxy.process.group_lags import GroupLags
from kordon.proxy.process.managed_pages import ManagedPages
from kordon.proxy.reads.aborted import ReadCommitted
from kordon.proxy.reads.gated_fetching import GatedFetch
from kordon.proxy.reads.gating import Gates
from kordon.proxy.reads.readers import Readers
from kordon.proxy.runtime.metrics import ManagedNumbers
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.targets import physical_partition
from kordon.proxy.writes.lanes import Lanes

_LOOK_SECONDS: Final = 0.2
_LEARN_SECONDS: Final = 10.0
"""After which requests pass again, for the sake of ordinary topics, though the layouts cannot be read."""

log = structlog.get_logger(__name__)


class ManagedWorker:
    """One worker's managed topics: what keeps them current and what serves them.

    Args:
        config: `ordering` and `admin` are used.
        topology: Where the brokers are.
        journal: Of the worker's decisions.
        incarnation: The worker's name from its start to its end.
        turns: Of the worker, with the rest of which its long work takes turns; None: nothing else is there.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        journal: Journal | None = None,
        incarnation: str | None = None,
        turns: Turns | None = None,
    ) -> None:
        ordering = config.ordering
        self._topology = topology
        self.journal = journal or NoJournal()
        self._tasks = Tasks()
        turns = turns or Turns(Tally())
        self.topics = ManagedTopics()
        self.links = Links(topology)
        self._own = own = OwnThings(ordering.group)
        self._own_ids = OwnIds(self.links, own)
        leaders = Leaders(self.links)
        brokers = Brokers(self.links)
        self._layouts = layouts = LayoutsLog(brokers)
        about = About(
            incarnation=incarnation or new_incarnation(),
            host=socket.gethostname(),
            admin=str(config.admin.address) if config.admin.address else None,
            version=kordon.__version__,
        )
        membership = Membership(
            brokers,
            about,
            lambda: layouts.position,
            group=ordering.group,
            session_ms=ordering.session_ms,
            lease_seconds=ordering.lease_ms / 1000,
        )
        self.lease_seconds = membership.lease.seconds
        """For how long others wait for this worker when they miss it."""
        self.lanes = Lanes(self.links, leaders, self._may_serve, self.journal)
        self.readers = Readers(
            self.topics,
            self.links,
            leaders,
            read_layouts_to_end=layouts.read_to_end,
            may_serve=self._may_serve,
            journal=self.journal,
            opener=Opener(config.limits.opened_bytes),
        )
        self.group_positions = GroupPositions(brokers)
        self.gates = Gates(self.group_positions, self.readers.ends_of)
        topics_admin = TopicsAdmin(brokers)
        access = Access(brokers, principal_of(topology.config), ordering.group)
        self._authorizer = Authorizer(access, AclMirror(brokers))
        self.keeper = Keeper(
            topics=self.topics,
            layouts=layouts,
            membership=membership,
            admin=topics_admin,
            writers=self.lanes,
            readers=self.readers,
            make_writer=lambda: LayoutsWriter(brokers),
            admit=self._authorizer.admit,
            tools=Tools(
                self.readers.pulls.pull,
                HiddenWrites(self.links, leaders, self.lanes.counted),
                ordering.janitor_lag_ms,
                self.readers.opener,
            ),
            journal=self.journal,
        )
        self._faults = CommonFaults(brokers, ordering.group)
        self.pages = ManagedPages(
            self.topics,
            self.keeper,
            self.readers.tally.bypassed,
            self.group_positions,
            faults=self._faults,
            knows=lambda: self.service.knows,
        )
        questions = Questions(self.links, leaders)
        offsets = ListOffsets(
            self.topics, questions, read_layouts_to_end=layouts.read_to_end, may_serve=self._may_serve
        )
        servers: dict[int, Any] = {
            apis.LIST_OFFSETS: offsets,
            apis.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpoch(self.topics, questions, self._may_serve),
            apis.DELETE_RECORDS: DeleteRecords(
                self.topics, questions, offsets, FloorWishes(self.keeper.wish).raise_floors
            ),
        }
        self._names = TopicNames(self.links)
        self._subscriptions = Subscriptions(self._names.known)
        translations: dict[int, Any] = {
            apis.METADATA: MetadataTranslation(),
            apis.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsTranslation(),
            apis.DESCRIBE_CONFIGS: DescribeConfigsTranslation(),
            **groups.TRANSLATIONS,
            **physical.TRANSLATIONS,
            **acls.TRANSLATIONS,
        }
        admin = AdminRequests(self.topics, self.keeper.wish)
        self.position_reports = PositionReports(self.group_positions, journal=self.journal)
        caught_up = CaughtUp(self.topics, self.readers)
        self._lags = GroupLags(
            self.topics,
            topics_admin.groups,
            self.readers,
            caught_up,
            leads=lambda: self._topics_led() is not None,
            seconds=ordering.group_lag_ms / 1000,
            most=ordering.group_lag_series,
        )
        read_physical = GatedFetch(self.readers, self.gates)
        dialect_service = ManagedService(
            self.topics,
            ProduceService(self.topics, self.lanes, physical_partition, config.limits.opened_bytes),
            self._dialect_servers(questions),
            dialect.TRANSLATIONS,
            admin,
            fetch=ReadCommitted(read_physical, self.topics, self.links, leaders, physical_partition),
            judges={
                **REFUSALS,
                apis.CONSUMER_GROUP_HEARTBEAT: dialect.judge_consumer_group(self._subscriptions.look),
            },
            completions={apis.METADATA: RetiredPartitions(self.topics, self.readers.ends_of).complete},
            private={
                apis.CONSUMER_GROUP_POSITION: self.position_reports,
                apis.PARTITION_LEADER_EPOCHS: PartitionLeaderEpochs(self.topics, turns),
            },
            journal=self.journal,
            request_rows=config.limits.request_rows,
            turns=turns,
        )
        self.service = ManagedService(
            self.topics,
            ProduceService(self.topics, self.lanes),
            servers,
            translations,
            admin,
            fetch=ReadCommitted(self.readers, self.topics, self.links, leaders),
            judges={**REFUSALS, apis.CONSUMER_GROUP_HEARTBEAT: self._subscriptions.look},
            completions={apis.OFFSET_FETCH: caught_up.complete},
            asks_rights=self._asks_rights,
            rights_max_age_seconds=ordering.rights_ms / 1000,
            dialect=dialect_service if ordering.dialect else None,
            journal=self.journal,
            claim=config.decisions.oauth_claim,
            request_rows=config.limits.request_rows,
            own=own,
            turns=turns,
        )

    def _dialect_servers(self, questions: Questions) -> dict[int, Any]:
        """Returns who answers, by api key, clients of the dialect about managed topics."""
        target = physical_partition
        return {
            apis.LIST_OFFSETS: ListOffsets(
                self.topics, questions, self._layouts.read_to_end, may_serve=self._may_serve, target=target
            ),
            apis.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpoch(self.topics, questions, self._may_serve, target),
        }

    def _names_managed(self) -> list[str]:
        return [topic.name for topic in self.topics]

    def _topics_led(self) -> frozenset[str] | None:
        leading = self.keeper.leading
        return leading.topics if leading is not None and leading.controller is not None else None

    def _asks_rights(self) -> bool:
        """Whether clients differ in what they may do, or have to log in to do anything."""
        return self._authorizer.present or self._topology.config.sasl is not None

    def _may_serve(self) -> bool:
        return self.keeper.may_serve()

    def numbers(self) -> ManagedNumbers:
        """Returns what is counted, as it stands."""
        written, read = self.lanes.counts, self.readers.tally
        log, reported = self.group_positions.tally, self.group_positions.positions
        found = self.keeper.findings
        janitors = self.keeper.leading.janitors.counts() if self.keeper.leading is not None else {}
        return ManagedNumbers(
            partitions={topic.name: topic.layout.u for topic in self.topics},
            epochs={topic.name: topic.layout.epoch for topic in self.topics},
            producers_carried={topic.name: topic.producers_carried for topic in self.topics},
            own_refusals=self._own.refusals,
            serving=self.keeper.may_serve(),
            leading=self.keeper.leading is not None,
            aliens=self.keeper.generation.aliens if self.keeper.generation is not None else 0,
            fences=sum(topic.fence is not None for topic in self.topics),
            fence_seconds={phase.value: seconds for phase, seconds in self.keeper.times.seconds.items()},
            writes=written.by_outcome(),
            written_bytes=written.bytes,
            holds=written.held,
            stalls=self.lanes.detours.stalls,
            apart=self.lanes.detours.apart,
            pulled_bytes=read.pulled_bytes,
            served_bytes=read.served_bytes,
            cache_hits=read.hits,
            cache_misses=read.misses,
            cached_bytes=read.cached_bytes,
            hidden={kind.value: read.hidden[kind.value] for kind in Hidden},
            bypassed=dict(read.bypassed),
            passed_over=dict(self.readers.opener.passed),
            findings={kind: found.counted[kind] for kind in KINDS},
            unreadable={kind: found.unread.counted[kind] for kind in (*sorted(records.KINDS), records.OTHER)},
            unserved=len(self.topics.unserved),
            janitor_markers={topic: each.markers for topic, each in janitors.items()},
            janitor_read_bytes={topic: each.read_bytes for topic, each in janitors.items()},
            janitor_opened={topic: each.opened_records for topic, each in janitors.items()},
            janitor_brought_back={topic: each.values_brought_back for topic, each in janitors.items()},
            janitor_given_up={topic: each.values_given_up for topic, each in janitors.items()},
            janitor_failures={topic: each.failures for topic, each in janitors.items()},
            janitor_doubts={topic: each.doubts for topic, each in janitors.items()},
            janitor_behind_records={topic: each.behind_records for topic, each in janitors.items()},
            janitor_behind_seconds={topic: each.behind_seconds for topic, each in janitors.items()},
            position_reports=dict(self.position_reports.outcomes),
            position_records={"written": log.written, "read": log.read, "unreadable": log.unreadable},
            position_failures={"lost": log.lost, "unavailable": log.failed, "forgotten": reported.forgotten},
            position_groups=len(reported),
            position_members=reported.member_count,
            position_bytes=reported.bytes,
            subscriptions_bytes=self._subscriptions.remembered_bytes,
            subscriptions_forgotten=self._subscriptions.forgotten,
            position_lag=self.group_positions.lag,
            group_lags=self._lags.told,
            gate_holds=dict(self.gates.tally.holds),
            gate_held_seconds=dict(self.gates.tally.held_seconds),
            gate_held=self.gates.tally.held,
            count_refusals=dict(self.gates.tally.refused),
        )

    def start(self) -> None:
        """Begins to keep managed topics current, until `close`."""
        self.keeper.start()
        self._tasks.keep(self._learn, name="first look at managed topics")
        self._tasks.keep(self._own_ids.run, name="look at own topics")
        self._tasks.keep(partial(self._authorizer.run, self._names_managed, self._topics_led), name="follow ACLs")
        look = partial(self._faults.run, lambda: self.pages.is_served)
        self._tasks.keep(look, name="look for faults of all proxies")
        self._tasks.keep(self._lags.run, name="look at the lag of groups")

    async def _learn(self) -> None:
        """Lets requests pass as soon as the layouts are known, or where Kordon may know nothing of the cluster.

        Where only clients may log in there are no managed topics: nobody could have kept their layouts.
        """
        known = self._tasks.keep(self.keeper.know, name="read what is managed")
        while not (known.done() or self._topology.needs_log_in):
            await asyncio.wait({known}, timeout=_LOOK_SECONDS)
        known.cancel()
        self.service.know()

    def doubt(self) -> None:
        """Lets no request of a new connection pass before the layouts are read again: this process has stood still."""
        self.service.doubt()
        self._tasks.start(self._learn_again(), name="read again what is managed")

    async def _learn_again(self) -> None:
        try:
            async with asyncio.timeout(_LEARN_SECONDS):
                await self.keeper.know()
        except TimeoutError:
            log.warning("layouts_not_read_again", seconds=_LEARN_SECONDS)
        finally:
            self.service.know()

    async def close(self, *, in_order: bool = True) -> None:
        """Ends.

        Args:
            in_order: Nothing of clients is under way to brokers: no other proxy need wait for this one's lease.
        """
        await self._tasks.stop()
        await self.keeper.leave(in_order=in_order)
        await self.lanes.close()
        await self._names.close()
        await self.group_positions.close()
        await self.readers.close()
        self._layouts.close()
        await self.links.close()
