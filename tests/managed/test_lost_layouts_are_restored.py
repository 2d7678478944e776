"""The layouts are deleted under traffic: nobody writes a key elsewhere, and a backup brings them back."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.proxy.commands.cli import main
from kordon.proxy.own_topics.compacted_topic import LAYOUTS as LAYOUTS_LOG
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, Sender, create_managed, resize, set_configs, watermarks
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.short_leases import PROGRAM
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker

LAYOUTS = "__kordon.layouts"


def run(*arguments: str) -> Result:
    """`kordon layouts …`."""
    return CliRunner().invoke(main, ["layouts", *arguments], catch_exceptions=False)


def done(*arguments: str) -> str:
    """What a command says that does what it shall."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str) -> str:
    """What a command says that does nothing."""
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    return result.output


def delete(direct: AdminClient, topic: str) -> None:
    """Has the broker delete a topic, and waits until it shows it no longer."""
    direct.delete_topics([topic])[topic].result(60)
    wait_until(f"{topic} is gone", lambda: topic not in direct.list_topics(timeout=60).topics)


def unserved(proxy: ProxyProcess) -> list[str]:
    """The topics whose layouts a proxy misses."""
    return [each["topic"] for each in proxy.topics()["findings"] if each["kind"] == "layout_lost"]


def test_layouts_that_are_deleted_under_traffic_are_restored_and_every_key_is_in_order(
    unled_cluster: Cluster, tmp_path: Path
) -> None:
    """Running proxies stop, a new one serves no topic that has a face, and all goes on from the backup."""
    brokers = unled_cluster.bootstrap("PLAINTEXT")
    to, file = ("--bootstrap", brokers), str(tmp_path / "layouts.json")
    direct = AdminClient({"bootstrap.servers": brokers})
    direct.create_topics([NewTopic("plain", 3, 1)])["plain"].result(60)
    with ProxyProcess.start(brokers, program=PROGRAM) as first:
        admin = create_managed(first.bootstrap, "orders")
        create_managed(first.bootstrap, "other")
        sender = Sender(first.bootstrap, "orders")
        sender.send_for(0.5)
        resize(admin, "orders", 6).result(CHANGE_SECONDS)
        sender.send_for(0.5)
        assert "2 topics of cluster" in done("export", file, *to)
        assert "orders: layout epoch 1: in force" in done("verify", file, *to)
        assert "serve managed topics" in refused("import", file, "--yes", *to)

        sender.send_for(0.5)
        delete(direct, LAYOUTS)
        wait_until("it is said", lambda: first.events("layouts_lost"))
        before = watermarks(brokers, "orders", range(6))
        with ProxyProcess.start(brokers, program=PROGRAM) as second:
            assert unserved(second) == ["orders", "other"]
            admin = AdminClient({"bootstrap.servers": second.bootstrap})
            assert not admin.list_topics("orders", 60).topics["orders"].partitions
            Sender.sent_for(0.2, second.bootstrap, "plain").assert_read_by(second.bootstrap)
            with pytest.raises(KafkaException, match="is lost"):
                create_managed(second.bootstrap, "third")
            with pytest.raises(KafkaException, match="has no layout of it"):
                set_configs(admin, "orders", {"kordon.virtual.partitions": "12"}).result(60)
            sender.send_for(1.0)
            assert watermarks(brokers, "orders", range(6)) == before, "somebody wrote without a layout"

            done("import", file, "--dry-run", *to)
            assert LAYOUTS not in direct.list_topics(timeout=60).topics
            assert "2 topics restored" in done("import", file, "--yes", *to)
            wait_until("all is served", lambda: not unserved(second))
            assert "orders: layout epoch 1: in force" in done("verify", file, *to)

            first.stop()
            first.start_again()
            sender.send_for(0.5)
            admin = AdminClient({"bootstrap.servers": first.bootstrap})
            resize(admin, "orders", 4).result(CHANGE_SECONDS)
            sender.send_for(0.5)
            sender.finish()
            for proxy in (first, second):
                sender.assert_read_by(proxy.bootstrap)


def test_a_backup_that_is_older_than_the_data_is_refused(unled_cluster: Cluster, tmp_path: Path) -> None:
    """The logs tell, when the layouts do not any more."""
    brokers = unled_cluster.bootstrap("PLAINTEXT")
    to, file, newer = ("--bootstrap", brokers), tmp_path / "older.json", tmp_path / "newer.json"
    direct = AdminClient({"bootstrap.servers": brokers})
    with ProxyProcess.start(brokers, program=PROGRAM) as proxy:
        admin = create_managed(proxy.bootstrap, "orders")
        Sender.sent_for(0.5, proxy.bootstrap, "orders")
        done("export", str(file), *to)
        resize(admin, "orders", 6).result(CHANGE_SECONDS)
        resize(admin, "orders", 3).result(CHANGE_SECONDS)
        sender = Sender.sent_for(0.5, proxy.bootstrap, "orders")
        create_managed(proxy.bootstrap, "later")
        said = refused("verify", str(file), *to)
        assert "the backup is older: it has layout epoch 0 with 3 partitions, and epoch 2 with 3 is in force" in said
        assert "later: not in the backup: differs" in said
        done("export", str(newer), *to)
        assert proxy.stop() == 0
        before = done("verify", str(newer), *to)
        assert "nothing to restore" in done("import", str(newer), "--yes", *to)
        assert "the backup is older" in refused("import", str(file), "--yes", *to), "no epoch is lowered"
        delete(direct, LAYOUTS)

        delete(direct, "__kordon.later")
        said = refused("import", str(file), "--yes", *to)
        assert "has a record at offset" in said
        assert "which layout epoch 0 does not know: the backup is older than the data" in said
        assert "its face is not there" in refused("import", str(newer), "--yes", *to)
        damaged = tmp_path / "damaged.json"
        damaged.write_text(newer.read_text().replace('"u": 6', '"u": 5'))
        assert "does not match its checksum" in refused("import", str(damaged), "--yes", *to)
        assert LAYOUTS not in direct.list_topics(timeout=60).topics, "nothing was written"

        assert "1 topic restored" in done("import", str(newer), "--topic", "orders", "--yes", *to)
        proxy.start_again()
        sender.send_for(0.3)
        sender.finish()
        assert json.loads(newer.read_text())["format"] == 1
        assert "orders: layout epoch 2: in force" in before


def test_layouts_that_came_back_empty_are_restored(unled_cluster: Cluster, tmp_path: Path) -> None:
    """Somebody has made the topic again: a Kordon takes nothing in it for no managed topics, and writes nothing."""
    brokers = unled_cluster.bootstrap("PLAINTEXT")
    to, file = ("--bootstrap", brokers), str(tmp_path / "layouts.json")
    direct = AdminClient({"bootstrap.servers": brokers})
    with ProxyProcess.start(brokers, program=PROGRAM) as proxy:
        admin = create_managed(proxy.bootstrap, "orders")
        sender = Sender(proxy.bootstrap, "orders")
        sender.send_for(0.3)
        resize(admin, "orders", 4).result(CHANGE_SECONDS)
        sender.send_for(0.3)
        sender.finish()
        done("export", file, *to)
        assert proxy.stop() == 0
        delete(direct, LAYOUTS)
        direct.create_topics([NewTopic(LAYOUTS, 1, 1, config=LAYOUTS_LOG.configs(1))])[LAYOUTS].result(60)
        wait_until("the layouts are there", lambda: LAYOUTS in direct.list_topics(timeout=60).topics)
        before = watermarks(brokers, "orders", range(4))
        assert "nothing was written" in refused("export", file, *to)

        proxy.start_again()
        assert unserved(proxy) == ["orders"]
        sender.send_for(0.5)
        assert watermarks(brokers, "orders", range(4)) == before, "somebody wrote without a layout"
        wait_until("it is a member", lambda: proxy.status()["ordering"]["generation"] is not None)
        assert "serve managed topics" in refused("import", file, "--yes", *to)
        assert proxy.stop() == 0
        assert "1 topic restored" in done("import", file, "--yes", *to)
        proxy.start_again()
        sender.send_for(0.3)
        sender.finish()
        sender.assert_read_by(proxy.bootstrap)
