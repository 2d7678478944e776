"""Changes of a topic with transactions wait for those from before, and for nothing else (OLDER-FIRST).

The transactions are straight at the broker, as witnesses are.
"""

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kordon.proxy.commands.cli import main
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, create_ordinary, manage, resize
from kordon.testing.native_transactions import NativeTransaction, allow_transactions, fence_producers, hang
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.short_leases import PROGRAM
from kordon.testing.waiting import wait_until

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

pytestmark = pytest.mark.broker


def waits_for(proxy: ProxyProcess, topic: str, name: str) -> bool:
    """Whether the controller says that a change of a topic waits for a transaction."""
    return f"transactions of {name}" in proxy.topic(topic)["state"]


def changed(admin: AdminClient, topic: str, name: str, value: str | None) -> str:
    """Sets a config of a topic, or (without a value) deletes it; returns the refusal."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value or "", incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    return str(admin.incremental_alter_configs([resource])[resource].exception(CHANGE_SECONDS))


def test_a_change_waits_for_older_transactions_and_names_them(unled_cluster: Cluster) -> None:
    """What hangs holds up nothing; Admin.fenceProducers, or a wish for what there is, ends a wait."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap) as proxy:
        admin = create_managed(proxy.bootstrap, "orders")
        assert "has_transactions" not in proxy.log()
        allow_transactions(proxy, bootstrap, "orders")
        hang(bootstrap, "orders", 0, 5_000_000)
        with NativeTransaction(bootstrap, "billing", "orders", 0) as billing:
            plan = CliRunner().invoke(main, ["topics", "plan", "orders", "4", "--bootstrap", proxy.bootstrap])
            assert "waits for open transactions of billing" in plan.output, plan.output
            growth = resize(admin, "orders", 4)
            wait_until("the growth waits", lambda: waits_for(proxy, "orders", "billing"))
            (procedure,) = proxy.topic("orders")["control"]["procedures"]
            assert procedure["transactions"][0]["transactional_id"] == "billing"
            assert 0 < procedure["transactions"][0]["seconds_left"] <= 600
            assert any("Admin.fenceProducers" in each["why"] for each in proxy.topic("orders")["held"])
            assert proxy.metric("kordon_managed_change_seconds", stage="waiting for older transactions") > 0
            billing.write()  # nothing is held meanwhile
            taken_back = CliRunner().invoke(main, ["topics", "grow", "orders", "3", "--bootstrap", proxy.bootstrap])
            assert taken_back.exit_code == 0, taken_back.output
            assert "stay at 3 partitions" in str(growth.exception(CHANGE_SECONDS))
            growth = resize(admin, "orders", 4)
            wait_until("it waits again", lambda: waits_for(proxy, "orders", "billing"))
            fence_producers(bootstrap, "billing")
            growth.result(CHANGE_SECONDS)
        assert proxy.topic("orders")["undeleted_partition_count"] == 4
        assert [each["producer_id"] for each in proxy.events("transaction_hangs")] == [5_000_000]
        for name, value in (
            ("cleanup.policy", "compact"),
            ("kordon.virtual.partitions", None),
            ("kordon.janitor", "true"),
        ):
            assert "has transactions" in changed(admin, "orders", name, value), name


def test_the_next_controller_waits_for_the_same_transactions_when_one_is_killed(unled_cluster: Cluster) -> None:
    """For none that began since: the announcement stands, so these have a witness in both homes."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap, program=PROGRAM) as first:
        create_managed(first.bootstrap, "orders")
        with ProxyProcess.start(bootstrap, program=PROGRAM) as second:
            allow_transactions(second, bootstrap, "orders")
            leader, other = (first, second) if first.leads() else (second, first)
            old = [NativeTransaction(bootstrap, f"old-{q}", "orders", q) for q in range(3)]
            admin = AdminClient({"bootstrap.servers": other.bootstrap})
            growth = resize(admin, "orders", 6)
            wait_until("it waits", lambda: "transactions of old-0" in leader.topic("orders")["state"])
            assert "which the controller" in other.topic("orders")["state"]
            leader.kill()
            young = [NativeTransaction(bootstrap, f"young-{q}", "orders", q) for q in range(3)]
            wait_until("the next one waits", lambda: "transactions of old-0" in other.topic("orders")["state"])
            for each in old:
                each.commit()
            wait_until("it is done", lambda: other.topic("orders")["undeleted_partition_count"] == 6)
            growth.result(CHANGE_SECONDS)
            assert "young" not in other.log()
            for each in young:
                each.commit()


def test_a_topic_in_a_transaction_is_not_managed(proxy: ProxyProcess, open_cluster: Cluster) -> None:
    """H6: its producer has added it before. It is once that has ended."""
    bootstrap = open_cluster.bootstrap()
    admin = create_ordinary(bootstrap, "added")
    through = AdminClient({"bootstrap.servers": proxy.bootstrap})
    with NativeTransaction(bootstrap, "adder", "added", 0):
        assert "open transaction" in str(manage(through, "added").exception(CHANGE_SECONDS))
        fence_producers(bootstrap, "adder")
    del admin
