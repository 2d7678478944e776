"""What coordinators say of open transactions, and when that is not believed."""

from collections.abc import Mapping
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka import transaction_coordinators as module
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.kafka.transaction_coordinators import OpenTransaction, TransactionCoordinators
from kordon.testing.fake_broker import Asked, FakeBroker

PROBE = module._PROBE


class Cluster:
    """One broker, which coordinates all transactions."""

    def __init__(self) -> None:
        self.leaders = [1, 1]
        """Of the one partition of `__transaction_state`, before and after."""
        self.state_code = Code.NONE
        self.list_code = Code.NONE
        self.denied = False
        """Whether Kordon may see no transaction."""
        self.rows: dict[str, dict[str, Any]] = {}
        self.asked: list[Mapping[str, Any]] = []
        self.broker = FakeBroker(
            handlers={
                apis.METADATA: self.metadata,
                apis.LIST_TRANSACTIONS: self.list,
                apis.DESCRIBE_TRANSACTIONS: self.describe,
            }
        )
        self.coordinators = TransactionCoordinators(Brokers(self.broker))

    def metadata(self, _: Any) -> dict[str, Any]:
        leader = self.leaders.pop(0)
        partition = {"partition_index": 0, "leader_id": leader, "leader_epoch": leader, "error_code": 0}
        topic = {"error_code": self.state_code, "name": "__transaction_state", "partitions": [partition]}
        return {"brokers": [{"node_id": 1, "host": "b", "port": 9092}], "controller_id": 1, "topics": [topic]}

    def list(self, asked: Asked) -> dict[str, Any]:
        self.asked.append(asked.body)
        states = [
            {"transactional_id": name, "producer_id": row["producer_id"], "transaction_state": "Ongoing"}
            for name, row in self.rows.items()
        ]
        return {"error_code": self.list_code, "transaction_states": states}

    def describe(self, asked: Asked) -> dict[str, Any]:
        probe = {"error_code": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if self.denied else Code.NOT_COORDINATOR}
        return {
            "transaction_states": [
                {"transactional_id": each, **self.rows.get(each, probe)} for each in asked.body.transactional_ids
            ]
        }

    def add(self, name: str, state: str = "Ongoing", code: int = 0) -> None:
        topics = [{"topic": "orders", "partitions": [0, 3]}]
        self.rows[name] = {
            "error_code": code,
            "transaction_state": state,
            "transaction_timeout_ms": 60_000,
            "transaction_start_time_ms": 5,
            "producer_id": 7,
            "producer_epoch": 2,
            "topics": topics,
        }


async def test_open_transactions_are_told_with_their_partitions() -> None:
    """Those that ended between the two questions are left out."""
    cluster = Cluster()
    cluster.add("billing")
    cluster.add("ended", "CompleteCommit")
    cluster.add("expired", code=Code.TRANSACTIONAL_ID_NOT_FOUND)
    partitions = {"orders": frozenset({0, 3})}
    assert await cluster.coordinators.open({7}) == [OpenTransaction("billing", 7, "Ongoing", 5, 60_000, partitions)]
    assert cluster.asked[0]["producer_id_filters"] == [7]
    assert "PrepareEpochFence" in cluster.asked[0]["state_filters"]


async def test_a_cluster_without_transactions_has_none() -> None:
    cluster = Cluster()
    cluster.state_code = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert await cluster.coordinators.open() == []
    assert cluster.asked == []


@pytest.mark.parametrize("leaders", [[1, 2], [2, 2], [-1, -1]], ids=["moves", "is another broker", "is away"])
async def test_an_answer_is_not_believed_while_coordinators_move(leaders: list[int]) -> None:
    """A transaction could be missing that is known, and be taken for one that hangs."""
    cluster = Cluster()
    cluster.leaders = leaders
    with pytest.raises(UpstreamUnavailable, match="moving"):
        await cluster.coordinators.open()


async def test_a_coordinator_that_is_loading_is_asked_again_later() -> None:
    cluster = Cluster()
    cluster.list_code = Code.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(UpstreamUnavailable, match="LOAD_IN_PROGRESS"):
        await cluster.coordinators.open()
    cluster = Cluster()
    cluster.add("billing", code=Code.NOT_COORDINATOR)
    with pytest.raises(UpstreamUnavailable, match="NOT_COORDINATOR"):
        await cluster.coordinators.open()


async def test_a_right_that_lacks_is_named() -> None:
    """Coordinators leave out what Kordon may not see, so it asks for an id that nobody has."""
    cluster = Cluster()
    cluster.rows[PROBE] = {"error_code": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "producer_id": -1}
    with pytest.raises(TopicsRefused, match="Describe on all transactional ids"):
        await cluster.coordinators.refuse_lacking()
    await Cluster().coordinators.refuse_lacking()


async def test_nothing_is_told_by_coordinators_that_leave_out_what_kordon_may_not_see() -> None:
    """OLDER-FIRST, PROVEN-ABSENCE: an empty answer would be taken for transactions that are over."""
    cluster = Cluster()
    cluster.denied = True
    with pytest.raises(TopicsRefused, match="Describe on all transactional ids"):
        await cluster.coordinators.open({7})


async def test_more_than_can_be_looked_at_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TRANSACTIONS", 1)
    cluster = Cluster()
    cluster.add("a")
    cluster.add("b")
    with pytest.raises(UpstreamUnavailable, match="too many"):
        await cluster.coordinators.open()
