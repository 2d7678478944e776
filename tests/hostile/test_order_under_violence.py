"""Order under SIGSTOP and kill -9, in the surroundings where it had not been tried: deep, a minute or two each."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.broker_features import NEW_GROUPS
from kordon.testing.cluster import Cluster
from kordon.testing.compacted_topics import HASTY, Writer, read_from_0
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, manage, resize
from kordon.testing.order.findings import Anomaly
from kordon.testing.order.processes import GROUPS
from kordon.testing.order.run import Action, Outcome, Plan, Run, Topic
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.deep,
    pytest.mark.timeout(900),
    pytest.mark.skipif(NEW_GROUPS.is_missing, reason=NEW_GROUPS.reason),
]

OPEN = {"authorizer.class.name": ""}
PAST_A_LEASE_SECONDS = 26.0
RESIZE_SECONDS = 120.0


@contextmanager
def proxies(cluster: Cluster, count: int = 3, config: Mapping[str, Any] | None = None) -> Iterator[list[ProxyProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ProxyProcess.start(cluster.bootstrap(), config=config)) for _ in range(count)]


def changing(admin: AdminClient, topic: str) -> Any:
    """Returns what changes the topic's number of partitions for a run."""

    def change(partitions: int) -> None:
        try:
            resize(admin, topic, partitions).result(RESIZE_SECONDS)
        except KafkaException as error:
            raise RuntimeError(str(error)) from error

    return change


def stop_for(proxy: ProxyProcess, seconds: float) -> None:
    """SIGSTOP now, SIGCONT later."""
    sleeping = proxy.asleep()
    sleeping.__enter__()
    threading.Timer(seconds, lambda: sleeping.__exit__(None, None, None)).start()


def die_and_return(proxy: ProxyProcess) -> None:
    """Kill -9, and a start on the same address."""
    proxy.kill()
    proxy.start_again(wait_ready=False)


def controller(started: Sequence[ProxyProcess]) -> ProxyProcess:
    wait_until("one leads", lambda: any(proxy.leads() for proxy in started), 60)
    return next(proxy for proxy in started if proxy.leads())


def violence(started: Sequence[ProxyProcess], change: Any) -> list[Action]:
    """A member stopped past its lease over a change, a controller stopped in one, another one killed in the next."""
    leading = controller(started)
    member = next(proxy for proxy in started[1:] if proxy is not leading)
    return [
        Action(5, "SIGSTOP of a member", lambda: stop_for(member, PAST_A_LEASE_SECONDS)),
        Action(36, "SIGSTOP of the controller", lambda: stop_in_a_change(started, change, 9)),
        Action(52, "kill -9 of the controller", lambda: kill_in_a_change(started, change, 4)),
    ]


def in_a_change(change: Any, partitions: int) -> threading.Thread:
    thread = threading.Thread(target=change, args=(partitions,), daemon=True)
    thread.start()
    time.sleep(0.05)
    return thread


def stop_in_a_change(started: Sequence[ProxyProcess], change: Any, partitions: int) -> None:
    """Stops the controller for a while when it has just been asked for a change."""
    leading = controller(started)
    changed = in_a_change(change, partitions)
    stop_for(leading, 8.0)
    changed.join(RESIZE_SECONDS)


def kill_in_a_change(started: Sequence[ProxyProcess], change: Any, partitions: int) -> None:
    """Kills the controller when it has just been asked for a change, and starts it again."""
    leading = controller(started)
    changed = in_a_change(change, partitions)
    die_and_return(leading)
    changed.join(RESIZE_SECONDS)


def assert_whole(outcome: Outcome, groups: Sequence[str] = GROUPS) -> None:
    """Every acknowledged record was read by every group, once and in order."""
    assert outcome.problems == []
    assert outcome.verdict.passed, str(outcome.verdict.findings)
    accounts = outcome.verdict.accounts
    assert accounts["writes"].records > 1000
    assert min(accounts[group].records for group in groups) >= accounts["writes"].records


def test_three_brokers_of_which_one_dies_and_one_sleeps() -> None:
    """Replicated three times; the topic grows and shrinks while brokers and proxies are killed and stopped."""
    with Cluster.start(brokers=3, config=OPEN) as cluster, proxies(cluster) as started:
        admin = create_managed(started[0].bootstrap, "violent-three", replicas=3)
        change = changing(admin, "violent-three")
        second, third = cluster.brokers[1], cluster.brokers[2]

        def sleep_for_a_while() -> None:
            third.pause()
            threading.Timer(8.0, third.resume).start()

        def die() -> None:
            second.kill()
            second.start()

        actions = [
            *violence(started, change),
            Action(14, "kill -9 of a broker", die),
            Action(44, "SIGSTOP of a broker", sleep_for_a_while),
        ]
        plan = Plan(
            [proxy.bootstrap for proxy in started], "violent-three", seconds=75, resize_to=(6,), actions=actions,
            rate=300, drain_seconds=120,
        )  # fmt: skip
        assert_whole(Run(plan, change).run())


@pytest.mark.parametrize("acks", [0, 1])
def test_producers_without_idempotence_keep_what_they_were_promised(acks: int) -> None:
    """Nothing is sent twice, so nothing is doubled; what was acknowledged is there, and is read in order."""
    topic = f"violent-acks-{acks}"
    with Cluster.start(config=OPEN) as cluster, proxies(cluster) as started:
        admin = create_managed(started[0].bootstrap, topic)
        change = changing(admin, topic)
        plan = Plan(
            [proxy.bootstrap for proxy in started], topic, seconds=70, resize_to=(6,), acks=acks, rate=400,
            actions=violence(started, change), producers=["librdkafka"], groups=GROUPS, drain_seconds=120,
        )  # fmt: skip
        outcome = Run(plan, change).run()
    assert outcome.problems == []
    of_clients = {Anomaly.NONMONOTONIC_SEND, Anomaly.INVERSION}  # a connection that was cut, without idempotence
    assert outcome.verdict.findings.found() <= of_clients, str(outcome.verdict.findings)


def test_classic_members_of_java_keep_every_key_in_order() -> None:
    """Members that stay, of the group protocol that most applications have."""
    with Cluster.start(config=OPEN) as cluster, proxies(cluster) as started:
        admin = create_managed(started[0].bootstrap, "violent-classic")
        change = changing(admin, "violent-classic")
        plan = Plan(
            [proxy.bootstrap for proxy in started], "violent-classic", seconds=70, resize_to=(6,), churn_seconds=0,
            actions=violence(started, change), producers=["java"], groups=["java-classic"], members=4, rate=800,
            drain_seconds=120,
        )  # fmt: skip
        assert_whole(Run(plan, change).run(), ["java-classic"])


def test_a_compacted_topic_keeps_the_latest_value_of_each_key() -> None:
    """Values are written again and again while the topic changes under violence; in the end each key has its last."""
    topic, config = "violent-compacted", {"ordering": {"janitor_lag_ms": 0}}
    with Cluster.start(config=OPEN) as cluster, proxies(cluster, config=config) as started:
        admin = create_managed(started[0].bootstrap, topic, configs=HASTY)
        change = changing(admin, topic)
        writer = Writer(",".join(proxy.bootstrap for proxy in started), topic)
        writer.put(range(300), b"first")
        for turn, action in enumerate(violence(started, change)):
            writer.put(range(turn * 20, 300), b"before %d" % turn)
            action.do()
            writer.put(range(turn * 40, 300), b"behind %d" % turn)
            change(6 + turn)
        writer.put(range(100), None)
        writer.roll()
        latest = dict(read_from_0(started[0].bootstrap, topic))
        assert {key: value for key, value in latest.items() if value is not None} == writer.truth
        writer.close()


def test_records_deleted_while_a_fence_stands_are_no_loss() -> None:
    """DeleteRecords up to where all groups have committed, in the middle of changes under violence."""
    topic = "violent-deletions"
    with Cluster.start(config=OPEN) as cluster, proxies(cluster) as started:
        admin = create_managed(started[0].bootstrap, topic)
        change = changing(admin, topic)
        deleted: list[int] = []

        def delete() -> None:
            changed = in_a_change(change, 7 + len(deleted))
            bootstrap = started[0].bootstrap
            deleted.append(wait_until("commits", lambda: delete_what_is_committed(bootstrap, admin, topic)))
            changed.join(RESIZE_SECONDS)

        deletions = [Action(at, f"DeleteRecords at {at} s", delete) for at in (20, 33)]
        plan = Plan(
            [proxy.bootstrap for proxy in started], topic, seconds=70, resize_to=(), churn_seconds=0, rate=400,
            actions=[*violence(started, change), *deletions], drain_seconds=120,
        )  # fmt: skip
        assert_whole(Run(plan, change).run())
    assert len(deleted) == len(deletions)


def delete_what_is_committed(bootstrap: str, admin: AdminClient, topic: str) -> int:
    """Deletes what every group has committed; returns how many offsets that were."""
    places = [TopicPartition(topic, v) for v in range(VIRTUAL_PARTITIONS)]
    lowest = [2**62] * VIRTUAL_PARTITIONS
    for group in GROUPS:
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        committed = reader.committed(places, timeout=60)
        lowest = [min(low, max(0, each.offset)) for low, each in zip(lowest, committed, strict=True)]
        reader.close()
    wanted = [TopicPartition(topic, v, low) for v, low in enumerate(lowest) if low > 0]
    for done in admin.delete_records(wanted, request_timeout=60).values() if wanted else ():
        done.result(60)
    return sum(each.offset for each in wanted)


def test_a_topic_that_is_taken_over_meanwhile_loses_nothing() -> None:
    """Data, producers and groups there already; the topic comes to be managed and grows while proxies are hurt."""
    topic = "violent-takeover"
    with Cluster.start(config=OPEN) as cluster, proxies(cluster) as started:
        Topic(started[0].bootstrap, topic).create(3)
        admin = AdminClient({"bootstrap.servers": started[0].bootstrap})
        change = changing(admin, topic)
        create_managed(started[0].bootstrap, "violent-other")  # so that there is a controller to be hurt

        def take_over() -> None:
            manage(admin, topic, transition_ms="1000").result(RESIZE_SECONDS)

        leading = controller(started)
        member = next(proxy for proxy in started[1:] if proxy is not leading)
        actions = [
            Action(8, "SIGSTOP of a member", lambda: stop_for(member, PAST_A_LEASE_SECONDS)),
            Action(10, "takeover", take_over),
            Action(50, "kill -9 of the controller", lambda: kill_in_a_change(started, change, 6)),
        ]
        plan = Plan(
            [proxy.bootstrap for proxy in started], topic, seconds=80, actions=actions, rate=300, drain_seconds=180,
        )  # fmt: skip
        assert_whole(Run(plan, change).run())
