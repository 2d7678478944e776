"""All that one worker needs for managed topics, put together."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

import kordon
from kordon.proxy.access.acl_mirror import AclMirror
from kordon.proxy.access.authorizer import Authorizer
from kordon.proxy.access.client_quotas import ClientQuotas
from kordon.proxy.access.wrong_rights import Access, principal_of
from kordon.proxy.config.config import Config
from kordon.proxy.controller.compaction import Compaction
from kordon.proxy.controller.controller_role import ControllerRole
from kordon.proxy.controller.leading_worker import LeadingWorker
from kordon.proxy.controller.marker_writer import MarkerWriter
from kordon.proxy.controller.obstacles import Obstacles
from kordon.proxy.controller.takeovers import Takeovers
from kordon.proxy.controller.topic_janitor import JanitorTools
from kordon.proxy.controller.wish_checks import WishChecks
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.handlers.caught_up import CaughtUp
from kordon.proxy.handlers.epoch_lending import EpochLending
from kordon.proxy.handlers.position_reports import MemberReports
from kordon.proxy.handlers.regexes import TopicNames
from kordon.proxy.handlers.service import ManagedService
from kordon.proxy.handlers.source_wishes import SourceWishes
from kordon.proxy.handlers.subscriptions import Subscriptions
from kordon.proxy.handlers.tables import WorkerParts, physical_handlers, virtual_handlers
from kordon.proxy.handlers.transaction_permits import Permits
from kordon.proxy.handlers.transactional_produce import TransactionalProduce
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.group import About
from kordon.proxy.kafka.opening import Opener
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.kafka.witness_writer import WitnessWriter
from kordon.proxy.member.layout_member import LayoutMember
from kordon.proxy.member.membership import Membership, new_incarnation
from kordon.proxy.member.served import NothingPassed, PassedRequests, ServedParts
from kordon.proxy.member.transactions_allowed import TransactionsAllowed
from kordon.proxy.ordering.wishes import Wish
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.proxy.own_topics.individual_commits import IndividualCommits
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.own_topics.layouts_writer import LayoutsWriter
from kordon.proxy.own_topics.lent_epochs_log import LentEpochsLog
from kordon.proxy.own_topics.own_ids import OwnIds
from kordon.proxy.own_topics.own_things import OwnThings
from kordon.proxy.own_topics.share_groups import ShareGroups
from kordon.proxy.own_topics.sources_log import SourcesLog
from kordon.proxy.process.common_faults import CommonFaults
from kordon.proxy.process.group_lags import GroupLags
from kordon.proxy.process.managed_pages import ManagedPages
from kordon.proxy.process.source_groups import SourceGroups
from kordon.proxy.reads.gating import Gates
from kordon.proxy.reads.read_control import ReadControl
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.writes.transactions import Transactions
from kordon.proxy.writes.write_dispatcher import WriteDispatcher

_LOOK_SECONDS: Final = 0.2
_SOURCES_SECONDS: Final = 5.0
"""After which requests pass though source topics are not known yet."""
_LEARN_SECONDS: Final = 10.0
"""After which requests pass again, for the sake of ordinary topics, though the layouts cannot be read."""

log = structlog.get_logger(__name__)


class ManagedWorker:
    """One worker's managed topics: what keeps them current and what serves them.

    Args:
        config: The configuration, of which `ordering` and `admin` are used.
        incarnation: The worker's name from its start to its end.
        turns: The turns of the worker, by which its long work alternates with the rest; None: nothing else is there.
        passed: Returns what passes clients' requests. It exists once the worker has started.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        journal: Journal = NO_JOURNAL,
        incarnation: str | None = None,
        turns: Turns | None = None,
        *,
        passed: Callable[[], PassedRequests] = NothingPassed,
    ) -> None:
        ordering = config.ordering
        self._topology = topology
        self.journal = journal
        self._tasks = Tasks()
        turns = turns or Turns(Tally())
        self.topics = ManagedTopics()
        self.links = BrokerConnections(topology)
        self.own = own = OwnThings(ordering.group)
        brokers = Brokers(self.links)
        self.source_topics = SourcesLog(brokers, self.topics.sources)
        self._own_ids = OwnIds(self.links, own, self._look_at_own)
        leaders = brokers.leaders
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
        self.dispatcher = WriteDispatcher(self.links, leaders, self._may_serve, self.journal)
        self.reads = WorkerReads(
            self.topics,
            self.links,
            leaders,
            read_layouts_to_end=layouts.read_to_end,
            may_serve=self._may_serve,
            journal=self.journal,
            opener=Opener(config.limits.opened_bytes),
        )
        self.group_positions = GroupPositions(brokers)
        self.gates = Gates(self.group_positions, self.reads.ends.of)
        topics_admin = TopicsAdmin(brokers)
        upstream = topology.config
        principal = principal_of(upstream)
        access = Access(brokers, principal, ordering.group, share_groups=ordering.share_groups)
        shows_certificate = upstream.tls is not None and upstream.tls.certificate is not None
        self.quotas = ClientQuotas(brokers, self.topics, principal, own_user=shows_certificate)
        self._holds_quotas = ordering.client_quotas
        self._authorizer = Authorizer(access, AclMirror(brokers))
        self._read_control = ReadControl(self.reads)
        self._janitor_tools = JanitorTools(
            self.reads.fetcher.fetch,
            MarkerWriter(brokers, self.dispatcher.counted),
            self._may_mark,
            self.reads.opener,
            ordering.janitor_lag_ms,
        )
        self._brokers, self._topics_admin = brokers, topics_admin
        self.layout_member = LayoutMember(
            topics=self.topics,
            layouts=layouts,
            membership=membership,
            served=ServedParts(self.dispatcher, self._read_control, passed),
            make_role=self._make_role,
            admit=self._authorizer.admit,
            journal=self.journal,
        )
        self.source_groups = SourceGroups(
            self.topics.sources,
            brokers,
            topics_admin,
            leads=lambda: not self.topics or self._topics_led() is not None,
            session_ms=ordering.session_ms,
        )
        self._faults = CommonFaults(brokers, ordering.group)
        self.pages = ManagedPages(
            self.topics,
            self.layout_member,
            self.reads.tally.bypassed,
            self.group_positions,
            faults=self._faults,
            knows=lambda: self.service.knows,
        )
        self._names = TopicNames(self.links)
        self.subscriptions = Subscriptions(self._names.known)
        self.position_reports = MemberReports(self.group_positions, journal=self.journal)
        self.lent_epochs = LentEpochsLog(brokers)
        self.lending = EpochLending(self.lent_epochs)
        caught_up = CaughtUp(self.topics, self.reads)
        self.lags = GroupLags(
            self.topics,
            topics_admin.groups,
            self.reads,
            caught_up,
            leads=lambda: self._topics_led() is not None,
            seconds=ordering.group_lag_ms / 1000,
            most=ordering.group_lag_series,
        )
        checks = WishChecks(
            self.topics,
            topics_admin,
            refuse_lacking=self._authorizer.refuse_lacking,
            obstacles=Obstacles(topics_admin, Compaction(topics_admin, ordering.janitor_lag_ms), self._takeovers()),
            wishes=self._wishes,
        )
        wishes = SourceWishes(self.topics, self.source_topics, topics_admin, self.layout_member.wish, checks.check)
        self.transactions = self._make_transactions() if ordering.transactions else None
        self.individual_commits = IndividualCommits(
            brokers, about.incarnation, ordering.individual_commit_bytes, is_served=ordering.individual_commits
        )
        self.share_groups = ShareGroups(
            brokers, about.incarnation, ordering.share_group_bytes, is_served=ordering.share_groups
        )
        parts = WorkerParts(
            topics=self.topics,
            journal=self.journal,
            turns=turns,
            links=self.links,
            leaders=leaders,
            dispatcher=self.dispatcher,
            reads=self.reads,
            gates=self.gates,
            subscriptions=self.subscriptions,
            reports=self.position_reports,
            caught_up=caught_up,
            lending=self.lending,
            wish=wishes.fulfil,
            check=wishes.check,
            state_of=self.pages.state,
            read_layouts_to_end=layouts.read_to_end,
            may_serve=self._may_serve,
            transactions=self.transactions,
            most_rows=config.limits.request_rows,
            opened_bytes=config.limits.opened_bytes,
            offers_dialect=ordering.dialect,
            individual_commits=self.individual_commits,
            share_groups=self.share_groups,
            quotas=self.quotas if ordering.client_quotas else None,
        )
        self.service = ManagedService(
            virtual_handlers(parts),
            physical_handlers(parts),
            asks_rights=self._asks_rights,
            rights_max_age_seconds=ordering.rights_ms / 1000,
            journal=self.journal,
            claim=config.decisions.oauth_claim,
            own=own,
        )

    def _make_transactions(self) -> TransactionalProduce:
        witnesses = WitnessWriter(self.links)
        transactions = Transactions(
            self._brokers.leaders, self._topics_admin.ends, witnesses, self.dispatcher, self._tasks
        )
        permits = Permits(TransactionsAllowed(self.layout_member.wish).allow)
        return TransactionalProduce(transactions, permits, self._may_serve)

    def _make_role(self, worker: LeadingWorker) -> ControllerRole:
        return ControllerRole(
            worker,
            admin=self._topics_admin,
            writer=LayoutsWriter(self._brokers),
            admit=self._authorizer.admit,
            takeovers=self._takeovers(),
            tools=self._janitor_tools,
            journal=self.journal,
        )

    def _wishes(self) -> Iterable[Wish]:
        return self.layout_member.state.wishes.values()

    def _takeovers(self) -> Takeovers:
        return Takeovers(self._topics_admin, self._read_control.nothing_between)

    def _may_mark(self, topic: str, epoch: int, fence: str | None) -> bool:
        return self.layout_member.may_mark(topic, epoch, fence)

    def _look_at_own(self, topics: Collection[str]) -> None:
        """Takes in which topics of Kordon's own there are."""
        self.source_topics.look(topics)
        self.individual_commits.look(topics)

    def _names_managed(self) -> list[str]:
        return [topic.name for topic in self.topics]

    def _topics_led(self) -> frozenset[str] | None:
        leading = self.layout_member.leadership.role
        return leading.topics if leading is not None and leading.controller is not None else None

    def _asks_rights(self) -> bool:
        """Whether clients differ in what they may do, or have to log in to do anything."""
        return self._authorizer.present or self._topology.config.sasl is not None

    def _may_serve(self) -> bool:
        return self.layout_member.may_serve()

    def start(self) -> None:
        """Begins to keep managed topics current, until `close`."""
        self.layout_member.start()
        self._tasks.keep(self._learn, name="first look at managed topics")
        self._tasks.keep(self._own_ids.run, name="look at own topics")
        self._tasks.keep(partial(self._authorizer.run, self._names_managed, self._topics_led), name="follow ACLs")
        look = partial(self._faults.run, lambda: self.pages.is_served)
        self._tasks.keep(look, name="look for faults of all proxies")
        self._tasks.keep(self.lags.run, name="look at the lag of groups")
        if self._holds_quotas:
            self._tasks.keep(self.quotas.run, name="look at the quotas of clients")
        self._tasks.keep(self.source_groups.run, name="visit groups of sources")
        if self.share_groups.is_served:
            self._tasks.start(self.share_groups.prepare(), name="make the log of share groups")

    async def _learn(self) -> None:
        """Lets requests pass as soon as the layouts are known, or where Kordon may know nothing of the cluster.

        Where only clients may log in there are no managed topics: nobody could have kept their layouts.
        """
        known = self._tasks.keep(self.layout_member.know, name="read what is managed")
        sources = self._tasks.start(self._know_sources(), name="read which topics are source topics")
        while not (known.done() or self._topology.needs_log_in):
            await asyncio.wait({known}, timeout=_LOOK_SECONDS)
        known.cancel()
        if not self._topology.needs_log_in:
            await asyncio.wait({sources}, timeout=_SOURCES_SECONDS)
        self.service.know()

    async def _know_sources(self) -> None:
        with suppress(UpstreamUnavailable):
            await self._own_ids.look()
            if self.source_topics.is_there:
                await self.source_topics.log.ready(_SOURCES_SECONDS)

    def doubt(self) -> None:
        """Lets no request of a new connection pass before the layouts are read again: this process has stood still."""
        self.service.doubt()
        self._tasks.start(self._learn_again(), name="read again what is managed")

    async def _learn_again(self) -> None:
        try:
            async with asyncio.timeout(_LEARN_SECONDS):
                await self.layout_member.know()
        except TimeoutError:
            log.warning("layouts_not_read_again", seconds=_LEARN_SECONDS)
        finally:
            self.service.know()

    async def close(self, *, in_order: bool = True) -> None:
        """Ends the serving of managed topics.

        Args:
            in_order: Whether nothing of clients is under way to brokers, so that no other proxy waits for this one's
                lease.
        """
        await self._tasks.stop()
        await self.layout_member.leave(in_order=in_order)
        await self.dispatcher.close()
        await self._names.close()
        await self.group_positions.close()
        await self.lending.close()
        await self.lent_epochs.close()
        await self.individual_commits.close()
        await self.share_groups.close()
        await self.source_topics.close()
        await self.reads.close()
        self._layouts.close()
        await self.links.close()
