"""The SDK's clients in trouble, while a topic grows and shrinks: every key in order, callbacks in theirs."""

import pytest

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, resize
from kordon.testing.order.findings import WRITES
from kordon.testing.order.run import Action, Outcome, Plan, Run
from kordon.testing.order.scenarios import dialect_in_trouble
from kordon.testing.proxy_process import ProxyProcess

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


def kills(proxy: ProxyProcess, *times: float) -> list[Action]:
    """Kills a proxy at some times; it comes back on the same addresses."""

    def kill() -> None:
        proxy.kill()
        proxy.start_again()

    return [Action(at, f"kill -9 of a proxy at {at:g} s", kill) for at in times]


def run(plan: Plan) -> Outcome:
    """Runs a plan on a topic that is made for it."""
    admin = create_managed(plan.bootstraps[0], plan.topic)

    def change(partitions: int) -> None:
        resize(admin, plan.topic, partitions).result(CHANGE_SECONDS)

    return Run(plan, change).run()


def kept(outcome: Outcome, group: str = "dialect-group") -> None:
    """Asserts that no promise was broken, and that they were put to the test."""
    assert outcome.problems == []
    assert outcome.verdict.passed, str(outcome.verdict.findings)
    accounts = outcome.verdict.accounts
    assert accounts[group].records == accounts[WRITES].records
    assert min(accounts["dialect-group"].flushes, accounts["dialect-group"].loads) > 0


def test_keys_keep_their_order_for_sdk_clients_in_trouble(open_cluster: Cluster) -> None:
    """3 -> 6 -> 3; members are killed, go back and do not answer; at the end a proxy is killed, and comes back."""
    upstream = open_cluster.bootstrap()
    with ProxyProcess.start(upstream) as first, ProxyProcess.start(upstream) as second:
        bootstraps = [first.bootstrap, second.bootstrap]
        kept(run(dialect_in_trouble(bootstraps, "order-dialect", actions=kills(second, 9.0))))


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2])
def test_keys_keep_their_order_for_sdk_clients_through_much_trouble(open_cluster: Cluster, seed: int) -> None:
    """Six changes, each of two proxies killed between them, beside clients without the SDK."""
    upstream, topic = open_cluster.bootstrap(), f"order-dialect-deep-{seed}"
    with ProxyProcess.start(upstream) as first, ProxyProcess.start(upstream) as second:
        actions = [*kills(second, 12.0, 34.0), *kills(first, 25.0)]
        bootstraps = [first.bootstrap, second.bootstrap]
        sizes = [6, 4, 12, 7, 3, 5]
        plan = dialect_in_trouble(bootstraps, topic, resize_to=sizes, seconds=45, actions=actions, beside=True)
        outcome = run(plan)
    kept(outcome)
    kept(outcome, "librdkafka-group")
