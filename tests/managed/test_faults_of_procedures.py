"""The controller dies at each step of a change, and changes come in each other's way."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing import short_leases
from kordon.testing.change_steps import STEPS, ChangeSteps
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, resize
from kordon.testing.managed_traffic import Traffic
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


@contextmanager
def three_proxies(
    cluster: Cluster, topic: str, program: str = "kordon.proxy"
) -> Generator[list[ProxyProcess], None, None]:
    """Three in front of a broker, with a managed topic; the one that leads the others comes first."""
    with ExitStack() as stack:
        started = [stack.enter_context(ProxyProcess.start(cluster.bootstrap(), program=program)) for _ in range(3)]
        create_managed(started[0].bootstrap, topic)
        wait_until("one leads", lambda: any(proxy.leads() for proxy in started), 40)
        yield sorted(started, key=lambda proxy: not proxy.leads())


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=() if step == "image" else pytest.mark.deep) for step in STEPS]
)
def test_a_controller_that_is_killed_at_any_step_is_carried_on(unled_cluster: Cluster, step: str) -> None:
    """Kill -9 at the moment at which the first record of a step is in the log, mostly before its transaction ends."""
    topic = f"killed-at-{step}"
    with three_proxies(unled_cluster, topic, short_leases.PROGRAM) as (controller, second, third):
        admin = AdminClient({"bootstrap.servers": second.bootstrap})
        with (
            ChangeSteps(unled_cluster.bootstrap()) as steps,
            Traffic([second.bootstrap, third.bootstrap, controller.bootstrap], topic) as traffic,
        ):
            traffic.wait_flowing()
            growth = resize(admin, topic, 6)
            steps.wait_for(step)
            controller.kill()
            growth.result(CHANGE_SECONDS)
            traffic.wait_flowing()
            traffic.finish()


def test_changes_that_meet_are_refused_or_done_side_by_side(unled_cluster: Cluster) -> None:
    """A second change of a topic is refused while one is under way (ONE-CHANGE); one of another topic is not."""
    with three_proxies(unled_cluster, "meets-one") as (first, second, sleeper):
        admins = [AdminClient({"bootstrap.servers": first.bootstrap}), create_managed(second.bootstrap, "meets-two")]
        refused = AdminClient({"bootstrap.servers": second.bootstrap})  # on a connection where no answer is waited for
        with (
            ChangeSteps(unled_cluster.bootstrap()) as steps,
            Traffic([first.bootstrap], "meets-one") as one,
            Traffic([second.bootstrap], "meets-two") as two,
        ):
            one.wait_flowing()
            two.wait_flowing()
            with sleeper.asleep():  # who does not hold the fence keeps the change under way
                growths = [resize(admins[0], "meets-one", 6)]
                steps.wait_for("fence")
                growths.append(resize(admins[1], "meets-two", 6))
                with pytest.raises(KafkaException) as refusal:
                    resize(refused, "meets-one", 12).result(CHANGE_SECONDS)
                assert refusal.value.args[0].name() == "REASSIGNMENT_IN_PROGRESS"
            for growth in growths:
                growth.result(CHANGE_SECONDS)
            resize(admins[0], "meets-one", 12).result(CHANGE_SECONDS)
            shrinks = [resize(admins[0], "meets-two", 3), resize(admins[1], "meets-one", 3)]
            for shrink in shrinks:
                shrink.result(CHANGE_SECONDS)
            resize(admins[0], "meets-one", 6).result(CHANGE_SECONDS)  # while groups still drain what the shrink retired
            one.finish()
            two.finish()
