"""Hard days of a Kordon that keeps all of its promises: the audit of them is to find nothing.

Each play has a managed topic of its own. Real clients work meanwhile, and what they saw is held against what was
acknowledged; so where the audit finds something all the same, it is wrong, or it sees more than clients do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.audits.fault_plays import GROWN, PARTITIONS, Stage, doubled_sequence
from kordon.testing.change_steps import ChangeSteps
from kordon.testing.cluster import Cluster
from kordon.testing.compacted_topics import HASTY, Writer, read_from_0
from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.managed_clients import (
    Sender,
    assert_all_once_and_in_order,
    create_managed,
    create_ordinary,
    manage,
    read,
    read_all,
    resize,
)
from kordon.testing.managed_traffic import Traffic
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.tails import Tails
from kordon.testing.waiting import wait_until

_PATIENCE_SECONDS: Final = 90.0


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a play is given: a cluster, and as many Kordons as it asks for."""

    cluster: Cluster
    topic: str
    """To be made: a managed one."""
    config: Mapping[str, Any]
    """Of each Kordon."""

    @property
    def broker(self) -> str:
        """host:port of the brokers."""
        return self.cluster.bootstrap("PLAINTEXT")

    @contextmanager
    def proxies(self, count: int, **sections: Any) -> Generator[list[ProxyProcess]]:
        """Starts some Kordons, with further sections of their configuration."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(ProxyProcess.start(self.broker, config={**self.config, **sections}))
                for _ in range(count)
            ]


def rolling_restart(scene: Scene) -> None:
    """Each of two Kordons is stopped and started again under traffic, with a change of partitions behind it."""
    with scene.proxies(2) as proxies:
        admin = create_managed(proxies[0].bootstrap, scene.topic)
        with Traffic([proxy.bootstrap for proxy in proxies], scene.topic) as traffic:
            for proxy, partitions in zip(proxies, (GROWN, PARTITIONS), strict=True):
                traffic.wait_flowing()
                proxy.stop()
                proxy.start_again()
                traffic.wait_flowing()
                resize(admin, scene.topic, partitions).result(_PATIENCE_SECONDS)
            traffic.finish()


def killed_within_a_fence(scene: Scene) -> None:
    """The Kordon that leads is killed behind its fence; the other one ends what it has begun."""
    with scene.proxies(2) as proxies:
        create_managed(proxies[0].bootstrap, scene.topic)
        wait_until("one leads", lambda: any(proxy.leads() for proxy in proxies), _PATIENCE_SECONDS)
        leading, staying = sorted(proxies, key=lambda proxy: not proxy.leads())
        admin = AdminClient({"bootstrap.servers": staying.bootstrap})
        with (
            ChangeSteps(scene.broker) as steps,
            Traffic([staying.bootstrap, leading.bootstrap], scene.topic) as traffic,
        ):
            traffic.wait_flowing()
            growth = resize(admin, scene.topic, GROWN)
            steps.wait_for("fence")
            leading.kill()
            growth.result(_PATIENCE_SECONDS)
            traffic.wait_flowing()
            traffic.finish()


def restarted_broker(scene: Scene) -> None:
    """A broker is killed and comes back, so that leaders change; nothing that was acknowledged is lost."""
    with scene.proxies(1) as (proxy,):
        create_managed(proxy.bootstrap, scene.topic, replicas=len(scene.cluster.brokers))
        with Traffic([proxy.bootstrap], scene.topic) as traffic:
            traffic.wait_flowing()
            scene.cluster.brokers[-1].kill()
            scene.cluster.brokers[-1].start()
            traffic.wait_flowing()
            traffic.finish()


def repeated_requests(scene: Scene) -> None:
    """A producer sends again, after its virtual partition has moved, what had been acknowledged: it counts once."""
    with scene.proxies(1) as (proxy,):
        doubled_sequence(Stage(proxy.bootstrap, scene.broker, scene.topic))


def rewound_group(scene: Scene) -> None:
    """A group is set back by Kafka's own tool, after a growth, and reads all once more."""
    with scene.proxies(1) as (proxy,):
        admin = create_managed(proxy.bootstrap, scene.topic)
        sender = Sender(proxy.bootstrap, scene.topic)
        sender.send_for(0.3)
        resize(admin, scene.topic, GROWN).result(_PATIENCE_SECONDS)
        sender.send_for(0.3)
        sender.finish()
        sender.close()
        group = f"readers-of-{scene.topic}"
        _read_as(proxy.bootstrap, scene.topic, group, sender.sent)
        at = ("--bootstrap-server", proxy.bootstrap, "--group", group, "--topic", scene.topic)
        scene.cluster.tool("kafka-consumer-groups", *at, "--reset-offsets", "--to-earliest", "--execute")
        _read_as(proxy.bootstrap, scene.topic, group, sender.sent)


def transactions_beside(scene: Scene) -> None:
    """A transactional producer writes to another topic: commits, aborts, and is fenced by its successor."""
    with scene.proxies(2) as proxies:
        admin = create_managed(proxies[0].bootstrap, scene.topic)
        beside = f"{scene.topic}-unmanaged"
        admin.create_topics([NewTopic(beside, 1, 1)])[beside].result(_PATIENCE_SECONDS)
        producers: list[Producer] = []
        for number in range(4):
            config = {"bootstrap.servers": proxies[number % 2].bootstrap, "transactional.id": beside}
            producers.append(Producer(config))
            producers[-1].init_transactions(90)
            for turn in range(3):
                producers[-1].begin_transaction()
                producers[-1].produce(beside, b"%d" % turn)
                (producers[-1].abort_transaction if turn % 2 else producers[-1].commit_transaction)(90)
        with Traffic([proxy.bootstrap for proxy in proxies], scene.topic) as traffic:
            traffic.wait_flowing()
            traffic.finish()
        for producer in producers:
            producer.close()


def compacted(scene: Scene) -> None:
    """A compacted topic grows and shrinks, while brokers remove old values and the janitor removes what moved."""
    with scene.proxies(2, ordering={"janitor_lag_ms": 0}) as proxies:
        admin = create_managed(proxies[0].bootstrap, scene.topic, configs=HASTY)
        writer = Writer(proxies[1].bootstrap, scene.topic)
        for partitions, numbers, value in (
            (6, range(60), b"first"),
            (4, range(40), b"second"),
            (3, range(1, 60, 3), None),
        ):
            writer.put(numbers, value)
            writer.roll()
            resize(admin, scene.topic, partitions).result(_PATIENCE_SECONDS)
        writer.put(range(2, 60, 7), b"last")
        writer.close()
        for proxy in proxies:
            assert dict(read_from_0(proxy.bootstrap, scene.topic)).items() >= writer.truth.items()


def made_again(scene: Scene) -> None:
    """A managed topic with records is deleted, and another one gets its name."""
    with scene.proxies(2) as proxies:
        for number in range(2):
            admin = create_managed(proxies[number].bootstrap, scene.topic)
            sender = Sender(proxies[1 - number].bootstrap, scene.topic)
            sender.send_for(0.3)
            resize(admin, scene.topic, GROWN).result(_PATIENCE_SECONDS)
            sender.send_for(0.3)
            sender.finish()
            sender.close()
            assert_all_once_and_in_order(sender, read_all(proxies[0].bootstrap, scene.topic, sender.sent))
            if number == 0:
                admin.delete_topics([scene.topic])[scene.topic].result(_PATIENCE_SECONDS)


def taken_over(scene: Scene) -> None:
    """A topic with records is taken over, delivers meanwhile what is written to new partitions, and grows."""
    with scene.proxies(2) as proxies:
        bootstrap = proxies[0].bootstrap
        admin = create_ordinary(bootstrap, scene.topic)
        sender = Sender.sent_for(0.5, bootstrap, scene.topic)
        _read_as(proxies[1].bootstrap, scene.topic, "readers", sender.sent)
        manage(admin, scene.topic, "delivering", transition_ms="4000").result(_PATIENCE_SECONDS)
        late = Sender.sent_for(2.0, bootstrap, scene.topic)
        _read_as(proxies[1].bootstrap, scene.topic, "readers", late.sent)
        wait_until("all is taken over", lambda: not proxies[1].topic(scene.topic)["held"], _PATIENCE_SECONDS)
        resize(admin, scene.topic, GROWN).result(_PATIENCE_SECONDS)
        last = Sender.sent_for(0.5, bootstrap, scene.topic)
        _read_as(proxies[1].bootstrap, scene.topic, "readers", last.sent)


def killed_sources(scene: Scene) -> None:
    """Producers in a group are killed while they copy; then somebody deletes the group, and all is copied anew."""
    folder, group = make_folder("kordon-honest-sources-"), f"{scene.topic}-files"
    with scene.proxies(2, ordering={"transactions": True}) as proxies:
        admin = create_managed(proxies[0].bootstrap, scene.topic)
        create_ordinary(proxies[0].bootstrap, group, 3, {"kordon.source": "true"})
        tails = Tails(proxies[0].bootstrap, group, scene.topic, folder)
        try:
            for life in (1, 2):
                for number in range(6):
                    tails.bootstrap = proxies[number % 2].bootstrap
                    tails.start()
                    if number > 2:
                        before = tails.copied().total()
                        tails.add(500)
                        wait_until("more is copied", partial(_is_more, tails, before))
                        tails.running.pop(0).kill()
                wait_until("all is copied", partial(_is_copied, tails, life), _PATIENCE_SECONDS)
                tails.stop()
                tails.running.clear()
                if life == 1:
                    wait_until("nobody is a member", lambda: not tails.shares(), _PATIENCE_SECONDS)
                    admin.delete_consumer_groups([group])[group].result(_PATIENCE_SECONDS)
        finally:
            tails.stop()
            remove_folder(folder)


def _is_more(tails: Tails, before: int) -> bool:
    return tails.copied().total() > before


def _is_copied(tails: Tails, lives: int) -> bool:
    """Whether each line has come: those that were there when the group was deleted once more."""
    return tails.copied().keys() == tails.lines.keys() and max(tails.copied().values()) == lives


PLAYS: Final[Mapping[str, Callable[[Scene], None]]] = MappingProxyType(
    {
        each.__name__.replace("_", "-"): each
        for each in (
            rolling_restart,
            killed_within_a_fence,
            restarted_broker,
            repeated_requests,
            rewound_group,
            transactions_beside,
            compacted,
            made_again,
            taken_over,
            killed_sources,
        )
    }
)
"""By name."""


def _read_as(bootstrap: str, topic: str, group: str, count: int) -> None:
    """Reads as a group until so many records are there, commits, and leaves."""
    got = read({"bootstrap.servers": bootstrap, "group.id": group}, topic, count, commits=True)
    assert len(got) >= count
