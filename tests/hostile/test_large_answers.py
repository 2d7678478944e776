"""Little that a client sends may have its broker answer with very much; nobody else waits while Kordon reads that."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed, create_ordinary
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

pytestmark = pytest.mark.broker

TOPIC = "large-answers"
PLAIN = "large-answers-plain"
PARTITIONS = 100
TIMES = 1000
"""How often a group is asked about in one request of 15 KB, which gets 2 MB."""
LEAST_ANSWERS, ATTACKS = 10, 5
"""Of good clients, meanwhile, in so many attacks at most; it was one in each when such an answer was read at once."""


@pytest.fixture(scope="module")
def kordon(open_cluster: Cluster) -> Iterator[ProxyProcess]:
    with ProxyProcess.start(open_cluster.bootstrap("PLAINTEXT")) as proxy:
        create_managed(proxy.bootstrap, TOPIC)
        yield proxy


def asked(group: str) -> dict[str, Any]:
    """The same group, again and again, for all that it has committed."""
    return {"groups": [{"group_id": group, "topics": None}] * TIMES, "require_stable": False}


@pytest.fixture(scope="module")
def group(open_cluster: Cluster) -> str:
    """A group of a client's own whose name holds that of the proxies', so that what is said of it has to be read."""
    name = "of-kordon-or-not"
    create_ordinary(open_cluster.bootstrap("PLAINTEXT"), PLAIN, PARTITIONS)
    with PlainConnection(open_cluster.bootstrap("PLAINTEXT")) as direct:
        partitions = [{"partition_index": at, "committed_offset": 1} for at in range(PARTITIONS)]
        fields = {"group_id": name, "topics": [{"name": PLAIN, "partitions": partitions}]}

        def is_committed() -> bool:
            (topic,) = direct.ask(apis.OFFSET_COMMIT, 8, fields).topics
            return {each.error_code for each in topic.partitions} == {0}

        wait_until("the broker knows the topic", is_committed)
    return name


def test_answer_of_megabytes_holds_up_nobody(open_cluster: Cluster, kordon: ProxyProcess, group: str) -> None:
    """It is what the broker has answered, and good clients get their answers while it is read."""
    with PlainConnection(open_cluster.bootstrap("PLAINTEXT")) as direct:
        wanted = direct.ask_bytes(apis.OFFSET_FETCH, 8, asked(group))
    got: list[bytes] = []

    def attack() -> None:
        with PlainConnection(kordon.bootstrap) as hostile:
            got.append(hostile.ask_bytes(apis.OFFSET_FETCH, 8, asked(group)))

    partition = {"partition_index": 0, "timestamp": -1}
    answers = 0
    with PlainConnection(kordon.bootstrap) as good:
        while answers <= LEAST_ANSWERS and len(got) < ATTACKS:
            attacker = threading.Thread(target=attack)
            attacker.start()
            while attacker.is_alive():
                good.ask(apis.LIST_OFFSETS, 7, {"topics": [{"name": PLAIN, "partitions": [partition]}]})
                answers += bool(kordon.metric("kordon_turns_total")) and attacker.is_alive()
            assert got[-1:] == [wanted]
    assert len(wanted) > 1_500_000
    assert kordon.metric("kordon_turns_total") > TIMES * PARTITIONS / 1000
    assert answers > LEAST_ANSWERS
