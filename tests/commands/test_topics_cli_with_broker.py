"""`kordon topics` as an operator uses it, on a proxy in front of a real broker."""

import json
import re
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import OFFSET_END, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from kordon.proxy.commands.cli import main
from kordon.testing.cluster import Cluster
from kordon.testing.emptied import emptied
from kordon.testing.managed_clients import Sender, create_ordinary
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until


@pytest.fixture(scope="module")
def open_cluster(spare_cluster: Cluster) -> Cluster:
    """One that nobody leads yet: all proxies are listed, and the module has one."""
    return emptied(spare_cluster)


@pytest.fixture(scope="module")
def proxy(open_cluster: Cluster) -> Generator[ProxyProcess, None, None]:
    """A proxy of two workers in front of one broker without ACLs."""
    with ProxyProcess.start(open_cluster.bootstrap("PLAINTEXT"), config={"workers": 2}) as started:
        yield started


def run(*arguments: str, answer: str | None = None) -> Result:
    """`kordon topics …`."""
    return CliRunner().invoke(main, ["topics", *arguments], input=answer, catch_exceptions=False)


def done(*arguments: str) -> str:
    """What a command says that does what it shall."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def create(bootstrap: str, topic: str, partitions: int = 3) -> AdminClient:
    admin = create_ordinary(bootstrap, topic, partitions)
    wait_until("the broker knows the topic", lambda: topic in admin.list_topics(timeout=60).topics)
    return admin


def explained(proxy: ProxyProcess, topic: str) -> dict[str, object]:
    """What `explain --json` prints."""
    value: dict[str, object] = json.loads(done("explain", topic, "--json", "--admin", proxy.admin))
    return value


def test_a_topic_is_managed_grown_shrunk_and_explained(proxy: ProxyProcess) -> None:
    """The way of an operator: each step is told in a line, and the pages know of it."""
    to = ("--bootstrap", proxy.bootstrap)
    create(proxy.bootstrap, "cli-orders")

    assert "cli-orders is not managed" in run("grow", "cli-orders", "6", *to).stderr
    asks = run("manage", "cli-orders", "--virtual", "12", *to, answer="y\n")
    assert "Kafka Streams" in asks.stdout
    assert "cli-orders is managed, with 12 virtual partitions" in asks.stdout
    assert "3 → 6 partitions; clients go on seeing 12\n6 of 12 virtual" in done("plan", "cli-orders", "6", *to)
    assert done("grow", "cli-orders", "6", *to).startswith("cli-orders has 6 partitions, 3 before (")
    assert done("shrink", "cli-orders", "4", *to).startswith("cli-orders has 4 partitions, 6 before (")
    assert done("shrink", "cli-orders", "4", *to).startswith("cli-orders has 4 partitions already")

    def served() -> bool:
        facts = explained(proxy, "cli-orders")
        return (facts["layout_epoch"], facts["held"]) == (2, [])

    wait_until("all workers know of it, and hold nothing", served)
    assert explained(proxy, "cli-orders")["undeleted_partition_count"] == 4
    wait_until("both workers are members", lambda: "2 workers" in run("list", "--admin", proxy.admin).stdout)
    listed = run("list", "--admin", proxy.admin).stdout
    rows = [line.split() for line in listed.splitlines()]
    assert ["cli-orders", "serving", "4", "of", "12,", "settled", "3", "4", "12", "2"] in rows
    assert done("watch", "cli-orders", *to) == "cli-orders: serving 4 of 12, settled\n"
    assert re.fullmatch(r"(1 managed topic|\d+ managed topics), nothing to wait for\n", done("watch", *to))
    described = run("describe", "cli-orders", "--admin", proxy.admin).stdout
    assert described.startswith("cli-orders: serving 4 of 12, settled\n")
    assert "retired" in described


def test_what_cannot_be_is_one_line_that_says_what_can(proxy: ProxyProcess, open_cluster: Cluster) -> None:
    """Kafka's name of the error, the reason, and exit code 1; a broker in place of a Kordon is recognised."""
    to = ("--bootstrap", proxy.bootstrap)
    create(proxy.bootstrap, "cli-impossible")
    broker = open_cluster.bootstrap("PLAINTEXT")

    def refused(*arguments: str) -> str:
        result = run(*arguments)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.output
        return result.stderr

    manage = ("manage", "cli-impossible", "--yes", "--virtual")
    assert refused(*manage, "10", *to).startswith(
        "INVALID_PARTITIONS: 10 virtual partitions are not 3 times a power of"
    )
    assert "is not managed" in refused("grow", "cli-impossible", "6", "--bootstrap", broker)
    assert refused(*manage, "12", "--bootstrap", broker).endswith("a broker, not a Kordon?\n")
    done(*manage, "12", *to)
    assert refused(*manage, "24", *to) == (
        "cli-impossible has 12 virtual partitions, and that number never changes: grow and shrink the topic within it\n"
    )
    assert "so some would stay empty" in refused("grow", "cli-impossible", "13", *to)
    assert "the least there can be" in refused("shrink", "cli-impossible", "2", *to)
    assert refused("shrink", "cli-impossible", "6", *to).endswith(
        "so the command is: kordon topics grow cli-impossible 6\n"
    )
    assert refused("manage", "cli-nothing", "--virtual", "3", *to) == (
        "UNKNOWN_TOPIC_OR_PARTITION: there is no topic cli-nothing that may be seen\n"
    )
    assert refused("explain", "cli-nothing", "--admin", proxy.admin).startswith("no topic cli-nothing is managed at")


def dry_run(*arguments: str) -> dict[str, Any]:
    """The object that a dry run prints which says that nothing is refused."""
    line: dict[str, Any] = json.loads(done(*arguments, "--dry-run", "--json"))
    assert line["refused"] == []
    found: dict[str, Any] = line["dry_run"]
    return found


def test_a_dry_run_says_what_then_happens(proxy: ProxyProcess) -> None:
    """Records, groups, and what moves where; it changes nothing, and is refused as the command is."""
    to = ("--bootstrap", proxy.bootstrap)
    admin = create(proxy.bootstrap, "cli-dry")
    sender = Sender.sent_for(0.2, proxy.bootstrap, "cli-dry")
    group = ConsumerGroupTopicPartitions("cli-dry-group", [TopicPartition("cli-dry", 0, 1)])
    admin.alter_consumer_group_offsets([group])["cli-dry-group"].result(60)
    manage = ("manage", "cli-dry", "--virtual", "6", "--quiesced", *to)
    seen = dry_run(*manage)
    assert (seen["records"], seen["groups"]) == (sender.sent, {"cli-dry-group": sender.sent - 1})
    assert seen["bytes"] > 0
    assert len(admin.list_topics(timeout=60).topics["cli-dry"].partitions) == 3

    done(*manage, "--yes")
    waits = f"waits for 1 group: cli-dry-group has {seen['groups']['cli-dry-group']:,} records to go"
    wait_until("it waits for the group", lambda: waits in run("describe", "cli-dry", "--admin", proxy.admin).stdout)
    refused = [run("grow", "cli-dry", "5", *to, *flags) for flags in ((), ("--dry-run",))]
    assert [each.exit_code for each in refused] == [1, 1]
    assert refused[1].stderr == f"It would be refused now: {refused[0].stderr}"
    done("leave-out", "cli-dry", "cli-dry-group", *to)
    wait_until("it is taken over", lambda: explained(proxy, "cli-dry")["state"] == "serving 3 of 6, settled")

    for verb, count in (("grow", 5), ("shrink", 4)):
        before = homes_of(proxy, "cli-dry")
        plan = dry_run(verb, "cli-dry", str(count), *to)
        assert homes_of(proxy, "cli-dry") == before
        moved = {v: (move["from"], move["to"]) for move in plan["moves"] for v in move["virtual_partitions"]}
        done(verb, "cli-dry", str(count), *to)
        wait_until("all workers know", partial(is_served, proxy, "cli-dry", count))
        after = homes_of(proxy, "cli-dry")
        assert moved == {v: (before[v], after[v]) for v in before if before[v] != after[v]}
    refused = [run("unmanage", "cli-dry", *flags, *to) for flags in (("--yes",), ("--dry-run",))]
    assert [each.exit_code for each in refused] == [1, 1]
    assert refused[1].stderr == f"It would be refused now: {refused[0].stderr}"


def homes_of(proxy: ProxyProcess, topic: str) -> dict[int, int]:
    """By virtual partition, where it lives."""
    rows: Any = explained(proxy, topic)["partitions"]
    return {v: row["partition"] for row in rows for v in row["virtual_partitions"]}


def is_served(proxy: ProxyProcess, topic: str, count: int) -> bool:
    """Whether the worker that answers has a layout with so many partitions, and holds nothing."""
    facts = explained(proxy, topic)
    return (facts["undeleted_partition_count"], facts["held"]) == (count, [])


def test_a_topic_of_which_nothing_was_changed_can_be_let_go(proxy: ProxyProcess) -> None:
    """Where each virtual partition has a partition of its own, the topic becomes an ordinary one again."""
    to = ("--bootstrap", proxy.bootstrap)
    admin = create(proxy.bootstrap, "cli-alone")
    done("manage", "cli-alone", "--virtual", "3", "--yes", *to)
    assert admin.list_topics(timeout=60).topics["cli-alone"].error is None

    assert run("unmanage", "cli-alone", *to, answer="n\n").exit_code == 1
    assert done("unmanage", "cli-alone", "--yes", *to).startswith("cli-alone is not managed any more")
    wait_until("nobody knows it", lambda: run("describe", "cli-alone", "--admin", proxy.admin).exit_code == 1)
    assert len(admin.list_topics(timeout=60).topics["cli-alone"].partitions) == 3


def test_a_topic_that_was_resized_can_be_let_go_once_it_is_empty(proxy: ProxyProcess) -> None:
    """As an ordinary topic its keys lie elsewhere, so none may be left; the refusal says how to get there."""
    admin, to = create(proxy.bootstrap, "cli-leaving"), ("--bootstrap", proxy.bootstrap)
    done("manage", "cli-leaving", "--virtual", "6", "--yes", *to)
    sender = Sender(proxy.bootstrap, "cli-leaving")
    sender.send_for(0.2)
    done("grow", "cli-leaving", "4", *to)
    sender.finish()
    refused = run("unmanage", "cli-leaving", "--yes", *to)
    assert refused.exit_code == 1
    assert "can be let go once it is empty" in refused.output
    sender.send_for(0.2)  # what was held goes on
    sender.finish()

    ends = [TopicPartition("cli-leaving", v, OFFSET_END) for v in range(6)]
    deleting = AdminClient({"bootstrap.servers": proxy.bootstrap})  # another one: `admin` remembers 3 partitions
    for answer in deleting.delete_records(ends).values():
        answer.result(60)
    done("unmanage", "cli-leaving", "--yes", *to)
    wait_until("4 partitions", lambda: len(admin.list_topics(timeout=60).topics["cli-leaving"].partitions) == 4)
    after = Sender.sent_for(0.2, proxy.bootstrap, "cli-leaving")
    after.assert_read_by(proxy.bootstrap)


def test_configs_of_a_managed_topic_are_there_for_any_admin_client(proxy: ProxyProcess) -> None:
    """What reads configs, as librdkafka's admin client, reads V and U among the topic's configs."""
    admin = create(proxy.bootstrap, "cli-configs")
    done("manage", "cli-configs", "--virtual", "6", "--yes", "--bootstrap", proxy.bootstrap)
    resource = ConfigResource(ResourceType.TOPIC, "cli-configs")

    def told() -> Any:
        return admin.describe_configs([resource])[resource].result(60)

    wait_until("it is settled", lambda: told()["kordon.state"].value == "serving 3 of 6, settled")
    configs = told()
    assert configs["kordon.virtual.partitions"].value == "6"
    assert configs["kordon.undeleted.partition.count"].value == "3"
    assert configs["retention.ms"].value is not None


def test_kafkas_own_tools_manage_grow_and_shrink(proxy: ProxyProcess, open_cluster: Cluster) -> None:
    """kafka-configs.sh and kafka-topics.sh do what `kordon topics` does, a shrink too, and show V among the configs."""
    to = ("--bootstrap-server", proxy.bootstrap)
    create(proxy.bootstrap, "cli-tools")
    alter = ("--alter", "--topic", "cli-tools")
    open_cluster.tool("kafka-configs", *to, *alter, "--add-config", "kordon.virtual.partitions=12")
    open_cluster.tool("kafka-topics", *to, *alter, "--partitions", "6")
    open_cluster.tool("kafka-topics", *to, *alter, "--partitions", "5")
    assert "has 5 partitions already" in done("grow", "cli-tools", "5", "--bootstrap", proxy.bootstrap)
    shown = open_cluster.tool("kafka-topics", *to, "--describe", "--topic", "cli-tools").stdout
    assert "PartitionCount: 12" in shown
    assert "kordon.virtual.partitions=12" in shown


def test_a_proxy_that_starts_never_shows_a_managed_topic_as_an_ordinary_one(
    proxy: ProxyProcess, open_cluster: Cluster
) -> None:
    """Its first clients see V partitions, and nothing of Kordon's own: else they would write beside all fences."""
    create(proxy.bootstrap, "cli-start")
    done("manage", "cli-start", "--virtual", "12", "--yes", "--bootstrap", proxy.bootstrap)
    for _ in range(3):
        with ProxyProcess.start(open_cluster.bootstrap("PLAINTEXT"), wait_ready=False) as started:
            topics = AdminClient({"bootstrap.servers": started.bootstrap}).list_topics(timeout=60).topics
            assert len(topics["cli-start"].partitions) == 12
            assert [name for name in topics if name.startswith("__kordon")] == []
            # who ends while he joins tells nobody that he has gone, and the next change would wait for his lease
            wait_until("it has joined", partial(started.events, "group_joined"))


def test_a_topic_with_records_is_managed_and_grown_by_one_file(proxy: ProxyProcess, tmp_path: Path) -> None:
    """The command waits for takeovers, which go on side by side; who does not wait is told to run it again."""
    file, to = tmp_path / "topics.yaml", ("--yes", "--bootstrap", proxy.bootstrap)
    for name in ("cli-over-1", "cli-over-2"):
        create(proxy.bootstrap, name)
        Sender.sent_for(0.2, proxy.bootstrap, name)
    rows = "{name: cli-over-%d, partitions: 6, virtual_partitions: 12, transition_seconds: %d}"
    file.write_text(f"topics: [{rows % (1, 2)}, {rows % (2, 3)}]")

    result = run("apply", str(file), *to)
    assert result.exit_code == 0, result.output
    assert result.stdout.count(": done: manage with 12 virtual partitions") == 2
    assert result.stdout.count(": done: grow from 3 to 6 partitions") == 2
    for name in ("cli-over-1", "cli-over-2"):
        wait_until("all workers know", partial(is_served, proxy, name, 6))

    create(proxy.bootstrap, "cli-over-3")
    Sender.sent_for(0.2, proxy.bootstrap, "cli-over-3")
    file.write_text(f"topics: [{rows % (3, 600)}]")
    for _ in range(2):
        left = run("apply", str(file), "--no-wait", *to)
        assert (left.exit_code, "cli-over-3: not done yet: grow" in left.stdout) == (3, True), left.output
        assert "cli-over-3: being taken over: " in left.stdout


def test_topics_become_what_a_file_says_and_a_second_run_has_nothing_to_do(proxy: ProxyProcess, tmp_path: Path) -> None:
    """Created, managed, grown, shrunk and configured; what cannot be is refused, and then nothing else is done."""
    file, to = tmp_path / "topics.yaml", ("--bootstrap", proxy.bootstrap)
    admin = create(proxy.bootstrap, "cli-used")
    Sender.sent_for(0.2, proxy.bootstrap, "cli-used")
    text = """
      topics:
        - {name: cli-new, partitions: 6, initial_partitions: 3, virtual_partitions: 12, configs: {retention.ms: 99000}}
        - {name: cli-used, partitions: 3, virtual_partitions: 6, quiesced: true, configs: {segment.ms: 88000}}
        - {name: cli-plain, partitions: 2, replicas: 1}
    """
    file.write_text(text)
    planned = done("apply", str(file), "--dry-run", *to)
    assert planned.count("\n") == 6, planned
    assert "cli-new: create with 3 partitions, 12 virtual partitions, retention.ms=99000\n" in planned
    assert "cli-new" not in admin.list_topics(timeout=60).topics

    asked = run("apply", str(file), *to, answer="n\n")
    assert asked.exit_code == 1
    assert "Managing cli-used with 6 virtual partitions means" in asked.stdout
    assert "cli-new" not in admin.list_topics(timeout=60).topics
    done("apply", str(file), "--yes", *to)
    assert done("apply", str(file), "--yes", *to) == "nothing to do: all topics are as wanted\n"
    wait_until("all workers know", partial(is_served, proxy, "cli-new", 6))
    topics = AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=60).topics
    assert [len(topics[name].partitions) for name in ("cli-new", "cli-used", "cli-plain")] == [12, 6, 2]

    shrunk = text.replace("partitions: 6, initial", "partitions: 4, initial")
    file.write_text(shrunk.replace("cli-plain, partitions: 2", "cli-plain, partitions: 3"))
    refused = run("apply", str(file), "--yes", *to)
    assert refused.exit_code == 1
    assert "cli-plain: it has 2 partitions, and more of them would break the order of its keys" in refused.stderr
    assert explained(proxy, "cli-new")["undeleted_partition_count"] == 6
    file.write_text(text.replace("retention.ms: 99000", "segment.bytes: nonsense"))
    refused = run("apply", str(file), "--yes", *to)
    assert (refused.exit_code, "INVALID_CONFIG" in refused.stderr) == (1, True), refused.output
    file.write_text(shrunk)
    assert "shrink from 6 to 4 partitions" in done("apply", str(file), "--yes", *to)
    wait_until("all workers know", partial(is_served, proxy, "cli-new", 4))
