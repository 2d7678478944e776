"""What a controller asks leaders before it cuts a log, and what it makes of the answers; with brokers in memory."""

import gc
import warnings
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import NoCommonVersion, UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import PartitionEnds
from kordon.proxy.kafka.topics_admin import TopicsRefused
from kordon.testing.fake_broker import Answer, Asked, FakeBroker, led

NAME = "orders"
DEBUGGING_CONSUMER, CONSUMER = -2, -1
LATEST = -1


class Leader(FakeBroker):
    """Leads a topic's partition in an epoch; each look at its log end finds what a test says."""

    def __init__(self, ends: list[int], mark: int, epoch: int = 3) -> None:
        super().__init__(handlers={apis.LIST_OFFSETS: self._offsets, apis.DESCRIBE_PRODUCERS: self._producers})
        self.topics[NAME] = led([0], epoch=epoch)
        self.epoch = epoch
        self.asked: list[str] = []
        self._ends, self._mark = ends, mark

    def _offsets(self, asked: Asked) -> Answer:
        ((row,),) = (topic.partitions for topic in asked.body.topics)
        assert row.timestamp == LATEST
        is_end = asked.body.replica_id == DEBUGGING_CONSUMER
        self.asked.append("end" if is_end else "mark")
        told = {"partition_index": 0, "leader_epoch": self.epoch}
        if row.current_leader_epoch != self.epoch:
            return self._of(told | {"error_code": Code.FENCED_LEADER_EPOCH, "offset": -1})
        return self._of(told | {"error_code": 0, "offset": self._ends.pop(0) if is_end else self._mark})

    def _of(self, row: dict[str, Any]) -> Answer:
        return {"topics": [{"name": NAME, "partitions": [row]}]}

    def _producers(self, asked: Asked) -> Answer:
        self.asked.append("producers")
        return self._of({"partition_index": 0, "error_code": 0, "active_producers": []})


@pytest.mark.parametrize(
    ("ends", "mark", "is_cut"),
    [
        pytest.param([7, 7], 7, True, id="it stands still and is replicated"),
        pytest.param([6, 7], 7, False, id="something came while producers were asked for"),
        pytest.param([7, 7], 6, False, id="the last record is not replicated: another leader may not have it"),
    ],
)
async def test_a_cut_is_where_the_log_end_stood_still_and_is_replicated(
    ends: list[int], mark: int, *, is_cut: bool
) -> None:
    """End and producers belong together: asked for in this order, on one connection (STILL-CUT)."""
    broker = Leader(ends, mark)
    snapshot = await PartitionEnds(Brokers(broker)).snapshot(NAME, 0)
    assert broker.asked == ["end", "producers", "end", "mark"]
    assert snapshot.is_cut is is_cut
    assert (snapshot.ends.log_end_offset, snapshot.ends.leader_epoch) == (7, 3)
    await broker.close()


@pytest.mark.parametrize("api_key", [apis.FETCH, apis.DESCRIBE_PRODUCERS])
async def test_a_leader_whose_answer_cannot_be_read_has_not_answered(api_key: int) -> None:
    """It is asked again, as one that cannot be reached; nothing is cut, and nothing else ends by it."""
    broker = Leader([7, 7], 7)
    broker.handlers[api_key] = lambda _: b"\x00"
    ends = PartitionEnds(Brokers(broker))
    asked = ends.read_behind(NAME, {0: 5}) if api_key == apis.FETCH else ends.snapshot(NAME, 0)
    with pytest.raises(UpstreamUnavailable):
        await asked
    await broker.close()


async def test_all_answers_are_of_one_leadership() -> None:
    """Whoever leads in another epoch than Metadata said refuses, and is looked for anew (STILL-CUT)."""
    broker = Leader([7, 7, 7, 7], 7)
    ends = PartitionEnds(Brokers(broker))
    await ends.snapshot(NAME, 0)
    broker.epoch = 4
    with pytest.raises(TopicsRefused):
        await ends.snapshot(NAME, 0)
    broker.topics[NAME] = led([0], epoch=4)
    assert (await ends.snapshot(NAME, 0)).ends.leader_epoch == 4
    await broker.close()


async def test_a_question_that_fails_has_the_leaders_asked_for_while_writers_go_on_by_those_that_are_known() -> None:
    """Control and clients' traffic share what is known of leaders; control alone waits for a newer answer."""
    broker = Leader([7, 7, 7, 7], 7)
    brokers = Brokers(broker)
    ends = PartitionEnds(brokers)
    await ends.snapshot(NAME, 0)
    known = brokers.leaders.known(NAME)
    assert known is not None
    broker.epoch = 4
    with pytest.raises(TopicsRefused):
        await ends.snapshot(NAME, 0)
    assert brokers.leaders.known(NAME) is known
    elections: list[tuple[str, int]] = []
    brokers.leaders.tell_elections(lambda topic, partition: elections.append((topic, partition)))
    broker.topics[NAME] = led([0], epoch=4)
    await ends.snapshot(NAME, 0)
    assert elections == [(NAME, 0)]
    await broker.close()


async def test_a_broker_that_cannot_be_asked_all_of_it_leaves_no_question_behind(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """A broker without DescribeProducers (before Kafka 2.8) is no leader to cut by; the other questions end, too."""
    broker = Leader([7, 7], 7)
    del broker.handlers[apis.DESCRIBE_PRODUCERS]
    warnings.simplefilter("always")
    with pytest.raises(NoCommonVersion):
        await PartitionEnds(Brokers(broker)).snapshot(NAME, 0)
    await broker.close()
    gc.collect()
    assert [str(each.message) for each in recwarn] == []
