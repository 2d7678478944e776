"""A run: clients at work, the topic resized meanwhile, histories checked at the end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.managed_clients import resize
from kordon.testing.order.checker import check_all
from kordon.testing.order.client import Load, Settings, now_us
from kordon.testing.order.findings import Verdict
from kordon.testing.order.history import Done, actions, note_action, writes
from kordon.testing.order.pauses import Pauses
from kordon.testing.order.processes import GROUPS, PRODUCERS, ClientFailed, Clients

FOLDER_PREFIX: Final = "kordon-order-"
BROKEN: Final = Path(".cache", "order")
"""For the histories of runs that break a promise."""
START_SECONDS: Final = 240.0
"""Against hanging only: four of them are Java, on a machine that may be busy."""
PRODUCE_SECONDS: Final = 180.0
TOPIC_SECONDS: Final = 120.0
_TELL_SECONDS: Final = 0.25
_GOES_ON: Final = (KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT)  # pyright: ignore[reportPrivateUsage]
"""What Kordon answers where a change takes longer, and what librdkafka says where no answer came."""

Resize = Callable[[int], None]
"""Changes the topic's number of partitions; raises RuntimeError if it cannot."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do while the clients work, such as killing a proxy.

    Attributes:
        at: Seconds after all clients are at work.
        do: Does it; raises RuntimeError if it cannot.
    """

    at: float
    told: str
    do: Callable[[], None]


@dataclass(frozen=True)
class Plan(Load):
    """What is run."""

    bootstraps: Sequence[str]
    """Ways to the cluster, of which each client begins at another one. Actions may cut all but the first."""
    topic: str
    seconds: float = 60.0
    """For which producers send, from when all clients are at work."""
    resize_to: Sequence[int] = ()
    """At equal distances in this time."""
    least_backlog: int = 0
    """Offsets by which each group must be behind before the first resize, which waits for that."""
    least_records: int = 0
    """That must be acknowledged before producers end, however long it takes on a busy machine."""
    drain_seconds: float = 240.0
    """For groups to catch up when producers have ended."""
    producers: Sequence[str] = PRODUCERS
    groups: Sequence[str] = GROUPS
    actions: Sequence[Action] = ()

    def settings(self, folder: Path) -> Settings:
        load = {each.name: getattr(self, each.name) for each in fields(Load)}
        return Settings(",".join(self.bootstraps), self.topic, folder, **load)


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    verdict: Verdict
    pauses: Pauses
    backlogs: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """By what was done, and by group: how many offsets were acknowledged and not processed yet at its beginning."""
    problems: list[str] = field(default_factory=list[str])
    """What went wrong besides, as sentences."""

    @property
    def passed(self) -> bool:
        return self.verdict.passed and not self.problems


class Run:
    """One run of a plan."""

    def __init__(self, plan: Plan, resize: Resize, tell: Callable[[str], None] = lambda _: None) -> None:
        self._plan = plan
        self._resize = resize
        self._tell = tell
        self._backlogs: dict[str, dict[str, int]] = {}
        self._problems: list[str] = []
        self._began = 0.0

    def run(self, keep: Path | None = None) -> Outcome:
        """Runs it and checks the histories. Those of a run that breaks a promise stay in `.cache/order`.

        Args:
            keep: An empty folder for histories that are to stay in any case.

        Raises:
            ClientFailed: A client did not get to work.
        """
        folder = keep or make_folder(FOLDER_PREFIX)
        try:
            self._work(folder)
            outcome = self._judge(folder)
            if keep is None and not outcome.verdict.passed:
                shutil.copytree(folder, BROKEN / f"{self._plan.topic}-{now_us()}")
            return outcome
        finally:
            if keep is None:
                remove_folder(folder)

    def _work(self, folder: Path) -> None:
        plan = self._plan
        with Clients(plan.settings(folder), plan.bootstraps, plan.producers, plan.groups) as clients:
            self._tell("clients join")
            clients.wait_working(START_SECONDS)
            self._began = time.monotonic()
            self._act(clients, folder)
            try:
                clients.order("finish")
                self._tell("producers wait for their last answers")
                clients.wait_produced(PRODUCE_SECONDS)
                self._tell("groups catch up")
                clients.wait_caught_up(plan.drain_seconds)
            except ClientFailed as error:
                self._problems.append(str(error))
            self._tell("clients end")
            self._problems += clients.stop()

    def _act(self, clients: Clients, folder: Path) -> None:
        steps = len(self._plan.resize_to) + 1
        resizes_due = [
            Action(self._plan.seconds * number / steps, f"resize to {count}", partial(self._resize, count))
            for number, count in enumerate(self._plan.resize_to, 1)
        ]
        for action in sorted([*resizes_due, *self._plan.actions], key=lambda each: each.at):
            self._watch(clients, action.at, action.told)
            if action in resizes_due[:1]:
                self._wait_for_backlog(clients)
            self._tell(f"{action.told} now")
            self._do(action, clients, folder)
        self._watch(clients, self._plan.seconds, "end")
        clients.wait(
            "enough is acknowledged", lambda: clients.acknowledged() >= self._plan.least_records, START_SECONDS
        )

    def _wait_for_backlog(self, clients: Clients) -> None:
        """What is due later comes as much later as this takes."""
        since, least = time.monotonic(), self._plan.least_backlog
        clients.wait("all groups behind", lambda: min(clients.backlogs().values()) >= least, START_SECONDS)
        self._began += time.monotonic() - since

    def _do(self, action: Action, clients: Clients, folder: Path) -> None:
        self._backlogs[action.told] = clients.backlogs()
        began_us = now_us()
        try:
            action.do()
        except (RuntimeError, TimeoutError) as error:
            self._problems.append(f"{action.told}: {error}")
        note_action(folder, Done(began_us, now_us(), action.told))

    def _watch(self, clients: Clients, at: float, then: str) -> None:
        """Shows how clients come on until a time after the beginning."""
        while (left := self._began + at - time.monotonic()) > 0:
            states = clients.states()
            acked, processed = (sum(s.records for s in states if s.kind == kind) for kind in ("producer", "group"))
            failed, behind = sum(s.failed for s in states), sum(clients.backlogs().values())
            counts = f"acknowledged {acked:,}, failed {failed:,}, processed {processed:,}, behind {behind:,}"
            self._tell(f"{counts}; {then} in {left:.0f} s")
            time.sleep(min(left, _TELL_SECONDS))

    def _judge(self, folder: Path) -> Outcome:
        self._tell("histories are checked")
        pauses = Pauses(actions(folder))
        verdict = check_all(folder, pauses.seeing(writes(folder)))
        return Outcome(verdict, pauses, self._backlogs, self._problems)


class Topic:
    """The topic of a run, made and resized at a given address."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._name = name

    def create(self, partitions: int, virtual: int = 0) -> None:
        """Creates the topic; an ordinary one if there is none yet.

        Args:
            virtual: How many virtual ones, through a Kordon that is to manage it; 0: it is an ordinary topic.

        Raises:
            RuntimeError: It was refused; the message says why.
        """
        config = {"kordon.virtual.partitions": str(virtual)} if virtual else {}
        try:
            self._admin.create_topics([NewTopic(self._name, partitions, 1, config=config)])[self._name].result(
                TOPIC_SECONDS
            )
        except KafkaException as error:
            if virtual or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise RuntimeError(f"{self._name} was not created: {error}") from error

    def resize(self, partitions: int) -> None:
        """Changes its number of partitions; raises RuntimeError.

        A Kordon that is asked for a change answers after a minute and goes on with it. Who asks again waits on.
        """
        until = time.monotonic() + TOPIC_SECONDS
        while not self._is_resized(partitions, until):
            pass

    def _is_resized(self, partitions: int, until: float) -> bool:
        """Asks once; returns False if that took too long for whoever was asked, and it may be asked again."""
        try:
            resize(self._admin, self._name, partitions).result(TOPIC_SECONDS)
        except KafkaException as error:
            if error.args[0].code() in _GOES_ON and time.monotonic() < until:
                return False
            raise RuntimeError(f"{self._name} was not resized: {error}") from error
        return True
