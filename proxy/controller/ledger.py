"""What the controller holds to be managed, and the one way in which it writes that down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.controller_notes import ControllerNotes
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.records import FenceRecord, FindingKind, FindingRecord, TopicRecord, dump, kind_of
from kordon.proxy.ordering.standing_findings import StandingFindings
from kordon.proxy.own_topics.layouts_writer import Fenced, LayoutsWriter, Offsets, OutcomeUnknown, Records

log = structlog.get_logger(__name__)


class WishRefused(Exception):  # noqa: N818 - what is told to whoever asked
    """Raised when a wish cannot come true; carries Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def managed_in(topics: Mapping[str, TopicRecord], topic: str) -> TopicRecord:
    """Returns what is written down of a topic.

    Raises:
        WishRefused: The topic is not managed.
    """
    record = topics.get(topic)
    if record is None:
        raise WishRefused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is not managed by Kordon")
    return record


def settled_in(topics: Mapping[str, TopicRecord], topic: str) -> TopicRecord:
    """Returns what is written down of a topic whose takeover is over.

    Raises:
        WishRefused: The topic is not managed, or is still being taken over.
    """
    record = managed_in(topics, topic)
    if record.takeover is not None:
        detail = f"{topic} is still being taken over; see kordon topics describe {topic}"
        raise WishRefused(Code.REASSIGNMENT_IN_PROGRESS, detail)
    return record


class Ledger:
    """The managed topics of a controller, who is busy with them, and its writer.

    Attributes:
        topics: The records in force, by topic.
        busy: The topics with which something else than a change of the controller's is under way. Nothing else begins
            with them.
        controller: The state of all changes; None until this proxy has taken over.
        fences: The offsets in the layouts topic of the fences that this controller has written or has found.
        findings: What is wrong with topics, as the layouts say.
    """

    def __init__(self, writer: LayoutsWriter, notes: ControllerNotes, findings: StandingFindings) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.busy: set[str] = set()
        self.controller: Controller | None = None
        self.fences: set[int] = set()
        self._writer = writer
        self._notes = notes
        self.findings = findings
        self._writing = asyncio.Lock()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def managed(self, topic: str) -> TopicRecord:
        """Returns what is written down of a topic.

        Raises:
            WishRefused: The topic is not managed.
        """
        return managed_in(self.topics, topic)

    def settled(self, topic: str) -> TopicRecord:
        """Returns what is written down of a topic whose takeover is over.

        Raises:
            WishRefused: The topic is not managed, or is still being taken over.
        """
        return settled_in(self.topics, topic)

    def take(self, records: Iterable[TopicRecord]) -> None:
        """Has records be in force that are durable."""
        self.topics |= {record.layout.topic: record for record in records}

    async def renew(self, record: TopicRecord) -> None:
        """Writes down a record in which no epoch is new.

        Raises:
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        await self.write(((f"topic/{record.layout.topic}", record),))
        self.take((record,))
        if self.controller is not None:
            self.controller.known.know_again(record)

    async def write(self, records: Records) -> Offsets:
        """Writes in one transaction; when that fails the role ends.

        Returns:
            Where each record stands, by its key.

        Raises:
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        async with self._writing:
            try:
                offsets = await self._writer.commit(
                    [NewRecord(key, None if value is None else dump(value)) for key, value in records]
                )
            except (Fenced, UpstreamUnavailable) as error:
                if isinstance(error, Fenced | OutcomeUnknown) and not self._failed.done():
                    self._notes.doubted(records)
                self.fail(error)  # the writer has to be opened again, and what was written to be read
                raise
        found = dict(zip((key for key, _ in records), offsets, strict=True))
        self.fences |= {found[key] for key, value in records if isinstance(value, FenceRecord)}
        self._notes.written(records, found, self.topics)
        for key, value in records:
            if kind_of(key) == "finding" and isinstance(value, FindingRecord | None):
                self.findings.take(key, value)
        return found

    async def attempt(self, records: Records) -> None:
        """Writes in one transaction; when that fails the role ends, and nothing is raised."""
        with suppress(Fenced, UpstreamUnavailable):
            await self.write(records)

    async def write_finding(self, finding: FindingRecord) -> None:
        """Writes down what is wrong with a topic, and logs it.

        Raises:
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        await self._find(self.findings.told(finding))

    async def hold_findings(self, kind: FindingKind, found: Mapping[str, FindingRecord | None]) -> None:
        """Writes down and logs what is newly wrong with topics, and takes back what is wrong no more.

        What a former controller has found counts, so nothing is told twice and nothing stays forever. When it cannot
        be written the role ends, and nothing is raised.

        Args:
            kind: The kind of all the findings.
            found: What is wrong now, by topic that was looked at; None: nothing is wrong with the topic.
        """
        with suppress(Fenced, UpstreamUnavailable):
            await self._find(self.findings.changes(kind, found, self.topics))

    async def _find(self, changes: Mapping[str, FindingRecord | None]) -> None:
        for finding in filter(None, changes.values()):
            log.error("finding", kind=finding.kind, topic=finding.topic, detail=finding.text)
        if changes:
            await self.write(tuple(changes.items()))

    async def begin_transaction(self) -> None:
        """Has the next `write` wait for one answer less."""
        async with self._writing:
            try:
                await self._writer.begin()
            except Fenced as error:
                self.fail(error)

    def fail(self, error: Exception) -> None:
        """Ends the role; whoever leads next, this proxy or another, begins from what the layouts say."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def failed(self, seconds: float) -> bool:
        """Waits for so long; returns whether the role has failed."""
        await asyncio.wait({self._failed}, timeout=seconds)
        return self._failed.done()

    def raise_failure(self) -> None:
        """Raises what has ended the role.

        Raises:
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
            Exception: Any other error that `fail` was given.
        """
        self._failed.result()
