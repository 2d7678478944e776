"""One partition of the log of claims in a worker's memory: what is read, what is written, and what is taken out."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kordon.codecs.error_codes import Code
from kordon.codecs.ranges import Ranges
from kordon.codecs.row import Row
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.internal_topic_log import NO_TOPIC_ID
from kordon.proxy.ordering.claim_records import dump, key_of
from kordon.proxy.ordering.claims import RENEW_AFTER_CLAIMS, VOID_AFTER_MS, Claim, Claims, Done, PlaceKey, Start
from kordon.proxy.own_topics import logs_of_groups
from kordon.proxy.own_topics.claims_log import ClaimsLog, Gap, HeldClaims, key_with
from kordon.proxy.own_topics.compacted_topic import INDIVIDUAL_COMMITS, OwnTopicUnfit
from kordon.proxy.own_topics.followed_log import FollowedLog
from kordon.proxy.own_topics.individual_commits import IndividualCommits
from kordon.proxy.own_topics.logs_of_groups import IDLE_SECONDS
from kordon.proxy.runtime.clock import now_ms
from kordon.testing.waiting import until

PLACE = PlaceKey("readers", UUID(int=1), 0)
NOBODY = cast("Brokers", None)
IDS = {"topic_id": UUID(int=9)}


class Log(ClaimsLog):
    """One whose records are read back at once."""

    def __init__(self) -> None:
        super().__init__(NOBODY, INDIVIDUAL_COMMITS, 0, key_with("w"))
        self.records: list[NewRecord] = []
        self.between: Callable[[], None] = lambda: None
        """Happens before a write lands."""
        self.log.write = self._written  # type: ignore[method-assign]

    async def _written(self, entries: Sequence[NewRecord], timeout: float = 0) -> int:
        self.between()
        for each in entries:
            self.put(each.key, each.value)
        return len(self.records) - 1

    def put(self, key: str, value: bytes | None, *, at_ms: int | None = None, fault: str = "") -> None:
        """Has a record come."""
        self.records.append(NewRecord(key, value))
        timestamp = now_ms() if at_ms is None else at_ms
        self.log.on_record(Record(key, value, len(self.records) - 1, fault=fault, timestamp_ms=timestamp))

    @property
    def standing(self) -> list[str]:
        """The keys that compaction leaves."""
        last = {each.key: each.value for each in self.records}
        return [key for key, value in last.items() if value is not None]


def done(stable: int, *ranges: tuple[int, int]) -> Done:
    return Done(stable, Ranges(ranges))


async def test_what_is_written_is_read_and_what_it_outlives_is_taken_out() -> None:
    """After so many claims all that is known stands in one record; the others go in one batch."""
    log = Log()
    await log.write([(PLACE, Start(5, 0, done(0)))], log.read_to)
    for number in range(RENEW_AFTER_CLAIMS + 1):
        said = log.of(PLACE).to_write(5, done(0, (2 + 2 * number, 3 + 2 * number)), now_ms())
        assert said is not None
        await log.write([(PLACE, said)], log.read_to)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(log.standing) == 1
    assert len(log.of(PLACE).done.ranges) == RENEW_AFTER_CLAIMS + 1
    await log.close()


async def test_what_another_proxy_writes_meanwhile_stays() -> None:
    """Its claim may say what the union does not (COVER-BEHIND)."""
    log = Log()
    await log.write([(PLACE, Start(5, 0, done(0)))], log.read_to)
    other = key_of(PLACE, "other", 1)
    log.between = lambda: log.put(other, dump(Claim(5, done(-1, (7, 8))))) if other not in log.standing else None
    await log.write([(PLACE, Start(5, 5, done(3)))], log.read_to)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert other in log.standing
    assert len(log.standing) == 2
    await log.close()


async def test_a_start_that_begins_anew_outlives_what_came_while_it_was_written() -> None:
    """That belongs to the incarnation that it ends."""
    log = Log()
    await log.write([(PLACE, Start(5, 0, done(0)))], log.read_to)
    other = key_of(PLACE, "other", 1)
    log.between = lambda: log.put(other, dump(Claim(5, done(-1, (7, 8))))) if not log.of(PLACE).done.ranges else None
    await log.write([(PLACE, Start(6, 5, done(2)))], log.read_to)
    log.between = lambda: None
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(log.standing) == 1
    assert log.of(PLACE).incarnation == 6
    await log.close()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key_of(PLACE, "x", 1), b"\x01\x01"),
        (key_of(PLACE, "x", 1), b"\xff" * 400_000),
        ("claims/[", b""),
        ("claims/" + "[" * 100_000, None),
    ],
)
def test_junk_is_counted_and_holds_up_nothing(key: str, value: bytes | None) -> None:
    """Somebody may have written it at the brokers."""
    log = Log()
    log.put(key, value)
    log.put(key_of(PLACE, "x", 2), dump(Start(5, 0, done(3))))
    assert (log.log.tally.unreadable, log.of(PLACE).done) == (1, done(3))


@pytest.mark.parametrize(("key", "value"), [("offers/1", b"?"), (key_of(PLACE, "x", 1), b"\x07\x01later")])
def test_records_of_later_versions_are_passed_over(key: str, value: bytes) -> None:
    """They are no junk."""
    log = Log()
    log.put(key, value)
    assert (log.log.tally.unreadable, len(log.claims), log.read_to) == (0, 0, 1)


def test_what_a_worker_has_in_memory_is_reckoned() -> None:
    """Sixteen bytes a range, and something for each group and partition; nothing when they are gone."""
    log = Log()
    log.put("s", None)
    start, claim = key_of(PLACE, "x", 1), key_of(PLACE, "x", 2)
    log.put(start, dump(Start(5, 0, done(0))))
    empty = log.held.bytes
    log.put(claim, dump(Claim(5, done(-1, *((2 * each, 2 * each + 1) for each in range(1, 101))))))
    assert log.held.bytes == empty + 1600
    log.put(claim, None)
    log.put(start, None)
    assert (log.held, len(log.claims)) == (HeldClaims(), 0)


def test_what_is_reckoned_is_what_is_there_whatever_comes() -> None:
    """Records of several groups come, are said again, end incarnations, are taken out, and are void."""
    log, chance = Log(), Random(1)
    places = [PLACE._replace(group_id=f"g{number}") for number in range(3)]
    for number in range(600):
        place, name = chance.choice(places), chance.randint(1, 3)
        said = done(chance.randint(-1, 5), *((each, each + 1) for each in range(7, chance.randint(8, 30), 2)))
        value = chance.choice([None, dump(Claim(name, said)), dump(Start(name, chance.randint(0, 3), said))])
        log.put(key_of(place, "x", chance.randint(1, 9)), value, at_ms=number * VOID_AFTER_MS // 100)
        counted = HeldClaims()
        for _, each in log.claims:
            counted.add(each, 1)
        assert log.held == counted
    assert log.held.ranges > 0
    log.sweep()
    assert log.held == HeldClaims()


def test_the_gap_that_was_found_first_comes_first() -> None:
    """One that moves is a new one."""
    log = Log()
    first, second = (PLACE._replace(group_id=each) for each in "ab")
    for at_ms, place, number, said in (
        (1_000, first, 1, Start(5, 0, done(0, (3, 4)))),
        (2_000, second, 2, Start(5, 0, done(0, (3, 4)))),
        (3_000, first, 3, Claim(5, done(1))),
    ):
        log.put(key_of(place, "x", number), dump(said), at_ms=at_ms)
    assert [*log.gaps] == [second, first]


def test_the_oldest_gap_is_known_since_when_it_stands() -> None:
    """It is over when the stable offset moves, or nothing is left behind it."""
    log = Log()
    log.put(key_of(PLACE, "x", 1), dump(Start(5, 0, done(0))), at_ms=1_000)
    assert log.gaps == {}
    log.put(key_of(PLACE, "x", 2), dump(Claim(5, done(0, (3, 4)))), at_ms=2_000)
    log.put(key_of(PLACE, "x", 3), dump(Claim(5, done(0, (6, 7)))), at_ms=3_000)
    assert log.gaps == {PLACE: Gap(0, 2_000)}
    log.put(key_of(PLACE, "x", 4), dump(Claim(5, done(4))), at_ms=4_000)
    assert log.gaps == {PLACE: Gap(4, 4_000)}
    log.put(key_of(PLACE, "x", 5), dump(Claim(5, done(7))), at_ms=5_000)
    assert log.gaps == {}


def test_all_is_forgotten_when_the_log_is_another_one() -> None:
    """And whoever has made something of it knows."""
    log = Log()
    log.put(key_of(PLACE, "x", 1), dump(Start(5, 0, done(0))))
    log.forget()
    assert (len(log.claims), log.held, log.read_to, log.life) == (0, HeldClaims(), 0, 1)


class Cluster:
    """Says what topics there are."""

    def __init__(self, own: dict[str, Any], commits: dict[str, Any]) -> None:
        self.rows = [own, commits]

    async def metadata(self, topics: Sequence[str]) -> Any:
        return SimpleNamespace(topics=[Row(each) for each in self.rows])


NO_TOPIC: dict[str, Any] = {
    "error_code": Code.UNKNOWN_TOPIC_OR_PARTITION, "partitions": [], "topic_id": NO_TOPIC_ID
}  # fmt: skip
UNSEEN: dict[str, Any] = {**NO_TOPIC, "error_code": Code.TOPIC_AUTHORIZATION_FAILED}
OF_TWENTY: dict[str, Any] = {"error_code": 0, "partitions": [None] * 20, **IDS}
OF_SEVEN: dict[str, Any] = {"error_code": 0, "partitions": [None] * 7, **IDS}


@pytest.fixture
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are read to their ends as soon as they are opened."""

    async def ready(_: FollowedLog, timeout: float = 0) -> None:
        """Waits for nothing."""

    monkeypatch.setattr(FollowedLog, "ready", ready)


@pytest.mark.usefixtures("read_at_once")
@pytest.mark.parametrize(
    ("own", "commits", "count"), [(NO_TOPIC, OF_TWENTY, 20), (OF_SEVEN, OF_TWENTY, 7), (NO_TOPIC, UNSEEN, 50)]
)
async def test_it_has_as_many_partitions_as_the_groups_commits(own: Any, commits: Any, count: int) -> None:
    """When it is made; later its own number counts."""
    commits_of_all = IndividualCommits(cast("Brokers", Cluster(own, commits)), "w")
    logs = {id(await commits_of_all.of_group(f"group-{number}")) for number in range(300)}
    assert len(logs) == count
    await commits_of_all.close()


@pytest.mark.usefixtures("read_at_once")
@pytest.mark.parametrize("ids", [{}, {"topic_id": NO_TOPIC_ID}], ids=["none in answers", "none of topics"])
async def test_brokers_without_topic_ids_can_have_none(ids: dict[str, Any]) -> None:
    """A topic that is made anew would have what was done of the one before."""
    old = {"error_code": 0, "partitions": [None] * 50, **ids}
    missing = {"error_code": Code.UNKNOWN_TOPIC_OR_PARTITION, "partitions": [], **ids}
    commits = IndividualCommits(cast("Brokers", Cluster(missing, old)), "w")
    with pytest.raises(OwnTopicUnfit, match=r"Kafka 2\.8"):
        await commits.of_group("readers")


async def test_a_log_that_is_not_read_in_time_makes_nobody_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is told to come again."""

    async def never(_: FollowedLog, timeout: float = 0) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(FollowedLog, "ready", never)
    monkeypatch.setattr(logs_of_groups, "LOAD_SECONDS", 0.01)
    commits = IndividualCommits(cast("Brokers", Cluster(NO_TOPIC, OF_TWENTY)), "w")
    with pytest.raises(UpstreamUnavailable, match="not read to its end yet"):
        await commits.of_group("readers")
    await commits.close()


@pytest.mark.usefixtures("read_at_once")
async def test_what_nobody_asks_for_is_read_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory and connections go; what was counted stays."""
    monkeypatch.setattr(logs_of_groups, "SWEEP_SECONDS", 0.0)
    commits = IndividualCommits(cast("Brokers", Cluster(OF_SEVEN, OF_TWENTY)), "w", most_bytes=1)
    found = await commits.of_group("readers")
    found.take_in(Record(key_of(PLACE, "x", 1), dump(Start(5, 0, done(0, (3, 4)))), 0, timestamp_ms=now_ms()))
    found.log.tally.read = 3
    assert commits.is_full
    with monkeypatch.context() as patched:
        patched.setattr(Claims, "__iter__", None)  # it takes no longer with ten thousand groups
        assert commits.held()["ranges"] == 1
    found.log.used_at -= IDLE_SECONDS
    await until("it is closed", lambda: not commits.is_full, pause=0)
    assert (commits.held()["places"], commits.counts().read) == (0, 3)
    assert await commits.of_group("readers") is not found
    await commits.close()


def test_a_proxy_that_is_left_out_says_so_once() -> None:
    """Where others take individual commits, or did; it is over when their log is gone."""
    own = INDIVIDUAL_COMMITS.name
    served, left_out = IndividualCommits(NOBODY, "w"), IndividualCommits(NOBODY, "w", is_served=False)
    assert (served.is_wanted, left_out.is_wanted) == (True, False)
    with capture_logs() as lines:
        for commits in (served, left_out, left_out):
            commits.look({own, "__kordon.layouts"})
    assert [line["event"] for line in lines] == ["individual_commits_left_out"]
    assert (served.held()["left_out"], left_out.held()["left_out"], left_out.is_wanted) == (0, 1, True)
    left_out.look({"__kordon.layouts"})
    assert (left_out.held()["left_out"], left_out.is_wanted) == (0, False)


async def test_a_proxy_that_takes_none_opens_no_log() -> None:
    """Brokers are not asked for it."""
    with pytest.raises(OwnTopicUnfit, match=r"set ordering\.individual_commits"):
        await IndividualCommits(NOBODY, "w", is_served=False).of_group("readers")
