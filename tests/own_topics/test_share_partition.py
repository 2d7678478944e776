"""A share group's virtual partition at its workers: what is given, what counts, what is written and taken out again."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from kordon.codecs.error_codes import Code
from kordon.codecs.ranges import NONE
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.ordering.claim_records import key_of
from kordon.proxy.ordering.claims import RENEW_AFTER_CLAIMS, PlaceKey
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch, ShareAcknowledgeType
from kordon.proxy.ordering.share.acquiring import Terms, Wish
from kordon.proxy.ordering.share.lock_records import KIND, dump
from kordon.proxy.ordering.share.locks import LockOutcome
from kordon.proxy.ordering.share.window import WindowRecord
from kordon.proxy.own_topics import share_log, share_partition
from kordon.proxy.own_topics.compacted_topic import SHARE_GROUPS
from kordon.proxy.own_topics.share_partition import LEAST_AHEAD, SharePartition, ShareProgress
from kordon.testing.share_log_in_memory import SharedRecords, ShareLogInMemory
from kordon.testing.waiting import turns

# pyright: reportPrivateUsage=false

PLACE = PlaceKey("workers", UUID(int=1), 0)
TERMS = Terms(30.0, most_tries=2)
ACCEPT, RELEASE, RENEW = ShareAcknowledgeType.ACCEPT, ShareAcknowledgeType.RELEASE, ShareAcknowledgeType.RENEW


def served(records: SharedRecords, writer: str = "w") -> SharePartition:
    return ShareLogInMemory(records, writer).partition(PLACE)


def look(partition: SharePartition, *keys: int | None) -> None:
    """Has it look at records of these keys at all offsets, so far as it has not."""
    begin, _ = partition.ahead()
    ahead = [WindowRecord(offset, key) for offset, key in enumerate(keys) if offset >= begin]
    partition.look(begin, len(keys), ahead)


async def give(partition: SharePartition, session: str, most: int = 10, terms: Terms = TERMS) -> list[int]:
    return [each.offset for each in (await partition.acquire(Wish(session, most), terms)).records]


async def say(partition: SharePartition, session: str, kind: ShareAcknowledgeType, *offsets: int) -> Code:
    batches = [AcknowledgementBatch(each, each, (kind,)) for each in offsets]
    return await partition.acknowledge(session, batches, TERMS, may_renew=True)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Returns what has time pass."""
    now = [1000.0]

    def pass_by(seconds: float) -> None:
        now[0] += seconds

    for module in (share_log, share_partition):
        monkeypatch.setattr(module, "clock", lambda: now[0])
    return pass_by


async def test_two_workers_give_each_record_once_and_each_key_in_order() -> None:
    """What one has written the other has read; either may be told that a record is done."""
    records = SharedRecords()
    one, other = served(records, "one"), served(records, "other")
    assert await one.begin(0)
    for each in (one, other):
        look(each, 1, 1, 2, None)
    assert await give(one, "a", most=2) == [0, 2]
    assert await give(other, "b") == [3]
    assert await say(other, "a", ACCEPT, 0) is Code.NONE
    assert await give(one, "b") == [1]
    assert one.progress() == other.progress() == ShareProgress(stable=1, in_hand=3)


async def test_what_another_worker_locks_first_is_not_given() -> None:
    """Though neither knew of the other when it asked (FIRST-LOCK, READ-BACK)."""
    records = SharedRecords()
    one, other = served(records, "one"), served(records, "other")
    await one.begin(0)
    for each in (one, other):
        look(each, 1, 2)
    log = records.followers[1]
    records.followers.remove(log)  # it has not read yet what comes now
    assert await give(one, "a") == [0, 1]
    records.between = lambda: records.follow(log)
    assert await give(other, "b") == []
    assert log.outcomes["missed"] == 2


async def test_a_lock_is_kept_longer_than_members_are_told(passes: Callable[[float], None]) -> None:
    """Its answer is on its way for a while; then another member gets the record, as its next turn and try."""
    records = SharedRecords()
    partition = served(records)
    await partition.begin(0)
    look(partition, 1)
    assert await give(partition, "a") == [0]
    passes(TERMS.lock_seconds + share_partition.MARGIN_SECONDS - 0.1)
    assert await give(partition, "b") == []
    passes(0.2)
    [given] = (await partition.acquire(Wish("b", 1), TERMS)).records
    assert given.tries == 2
    assert await say(partition, "a", ACCEPT, 0) is Code.INVALID_RECORD_STATE


async def test_what_is_read_back_too_late_is_not_given_and_does_not_count(passes: Callable[[float], None]) -> None:
    """The lock runs since others have read it; a worker that is slow for minutes archives nothing by that."""
    records = SharedRecords()
    partition, other = served(records), served(records, "other")
    await partition.begin(0)
    for each in (partition, other):
        look(each, 1, 1)
    records.between = lambda: passes(share_partition.SEND_WITHIN_SECONDS + 0.1)
    for _ in range(TERMS.most_tries + 1):
        assert await give(partition, "a") == []
    records.between = lambda: None
    assert partition.progress() == ShareProgress(stable=0, in_hand=0)
    assert await give(other, "b") == [], "others know of a lock, and wait for its end"
    [given] = (await partition.acquire(Wish("b", 1), TERMS)).records
    assert (given.offset, given.tries) == (0, 1)
    assert await give(partition, "c") == []
    assert await say(partition, "b", ACCEPT, 0) is Code.NONE


async def test_two_requests_at_once_do_not_ask_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being locked for one is as good as in hand for the other."""
    records = SharedRecords()
    partition = served(records)
    await partition.begin(0)
    look(partition, 1, 2, 3)
    may_write = asyncio.Event()
    write = records.followers[0].log.write

    async def later(entries: object, timeout: float = 0) -> int:
        await may_write.wait()
        return await write(entries)  # type: ignore[arg-type]

    monkeypatch.setattr(records.followers[0].log, "write", later)
    first, second = (asyncio.ensure_future(give(partition, each, most=2)) for each in ("a", "b"))
    await turns()
    may_write.set()
    assert (await first, await second) == ([0, 1], [2])


async def test_nothing_counts_that_was_made_of_a_log_that_was_lost() -> None:
    """Whoever asked is told that it is not known; the group begins anew."""
    records = SharedRecords()
    partition = served(records)
    await partition.begin(0)
    look(partition, 1, 2)
    records.between = records.followers[0].forget
    with pytest.raises(UpstreamUnavailable, match="read anew"):
        await partition.acquire(Wish("a", 1), TERMS)
    assert not records.followers[0].partition(PLACE).state.done.has(0)


async def test_what_was_written_to_another_log_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic was deleted and made anew: an offset behind which all was read says nothing (READ-BACK)."""
    records = SharedRecords()
    partition, log = served(records), records.followers[0]
    await partition.begin(0)
    look(partition, 1)
    assert await give(partition, "a") == [0]

    async def elsewhere(entries: object, timeout: float = 0) -> int:
        return 0

    monkeypatch.setattr(log.log, "write", elsewhere)
    with pytest.raises(UpstreamUnavailable, match="not the log"):
        await say(partition, "a", ACCEPT, 0)
    assert not log._expected


async def test_who_knows_too_little_reads_on_before_it_says_anything() -> None:
    """The group was reset, so what its member has done is not passed by all (READ-BACK)."""
    records = SharedRecords()
    partition, behind = served(records), served(records, "behind")
    await partition.begin(0)
    look(partition, 1)
    assert await give(partition, "a") == [0]
    assert await say(partition, "a", ACCEPT, 0) is Code.NONE
    log = records.followers.pop()
    assert await partition.begin(0)
    assert behind.state.done.stable == 1
    assert await say(behind, "a", ACCEPT, 0) is Code.INVALID_RECORD_STATE
    assert log in records.followers


async def test_who_acknowledges_when_another_member_has_the_record_is_told(passes: Callable[[float], None]) -> None:
    """Its worker had not read that when it wrote (READ-BACK)."""
    records = SharedRecords()
    partition, behind = served(records), served(records, "behind")
    await partition.begin(0)
    look(partition, 1)
    assert await give(partition, "a") == [0]
    log = records.followers.pop()
    passes(60.0)
    assert await give(partition, "b") == [0]
    records.between = lambda: None if log in records.followers else records.follow(log)
    assert await say(behind, "a", ACCEPT, 0) is Code.INVALID_RECORD_STATE
    assert await say(behind, "b", ACCEPT, 0) is Code.NONE


async def test_a_session_that_ends_gives_back_what_it_has() -> None:
    """At once, and it counts as given."""
    records = SharedRecords()
    partition = served(records)
    await partition.begin(0)
    look(partition, 1, 2)
    assert await give(partition, "a") == [0, 1]
    await partition.release("a", TERMS)
    again = (await partition.acquire(Wish("b", 9), TERMS)).records
    assert [(each.offset, each.tries) for each in again] == [(0, 2), (1, 2)]


async def test_what_was_deleted_is_passed_over() -> None:
    """Its records cannot be given; what members had of them they may still acknowledge."""
    records = SharedRecords()
    partition = served(records)
    await partition.begin(0)
    look(partition, 1, 1, 1)
    assert await give(partition, "a") == [0]
    await partition.pass_over(2)
    assert partition.state.done.stable == 2
    assert await say(partition, "a", ACCEPT, 0) is Code.NONE
    await partition.pass_over(1)
    assert partition.state.done.stable == 2


async def test_a_group_is_reset_and_what_it_had_in_hand_counts_for_nothing() -> None:
    """Its members are told so, and the records of before are taken out of the log."""
    records = SharedRecords()
    partition = served(records)
    await partition.begin(0)
    look(partition, 1, 2, 3)
    assert await give(partition, "a") == [0, 1, 2]
    assert await partition.begin(1)
    assert await say(partition, "a", ACCEPT, 0) is Code.NONE, "all have passed that"
    assert await say(partition, "a", ACCEPT, 1) is Code.INVALID_RECORD_STATE
    look(partition, 1, 2, 3)
    assert await give(partition, "a") == [1, 2]
    assert await say(partition, "a", ACCEPT, 1, 2) is Code.NONE
    await turns()
    assert sorted(key.rpartition("-")[2] for key in records.standing) == ["3", "5"], "a start and an outcome"


async def test_what_is_done_leaves_a_start() -> None:
    """Locks go with what they are for, and outcomes with the start that says the same (COVER-BEHIND)."""
    records = SharedRecords()
    partition = served(records)
    await partition.begin(0)
    count = RENEW_AFTER_CLAIMS + 1
    look(partition, *range(count))
    for offset in range(count):
        assert await give(partition, "a", most=1) == [offset]
        assert await say(partition, "a", ACCEPT, offset) is Code.NONE
        await turns(3)
    assert len(records.standing) == 2, "a start, and the outcome that was written with it"
    assert served(records, "late").progress() == ShareProgress(stable=count, in_hand=0)


async def test_what_another_worker_says_while_a_start_is_written_stays() -> None:
    """The start does not say it (COVER-BEHIND)."""
    records = SharedRecords()
    partition = served(records)
    await partition.begin(0)
    look(partition, *range(RENEW_AFTER_CLAIMS + 2))
    incarnation = partition.state.incarnation
    other = key_of(PLACE, "other", 1, KIND)
    for offset in range(RENEW_AFTER_CLAIMS):
        assert await give(partition, "a", most=1) == [offset]
        assert await say(partition, "a", ACCEPT, offset) is Code.NONE
    said = LockOutcome(incarnation, 0, partition.window.covered([RENEW_AFTER_CLAIMS + 1]), NONE)
    assert await give(partition, "a", most=1) == [RENEW_AFTER_CLAIMS]
    records.between = lambda: None if other in records.standing else records.put(other, dump(said))
    assert await say(partition, "a", ACCEPT, RENEW_AFTER_CLAIMS) is Code.NONE
    await turns()
    assert other in records.standing
    assert served(records, "late").state.done.stable == RENEW_AFTER_CLAIMS + 2


async def test_a_record_that_kills_its_members_is_done_with_or_holds_up_its_key(
    passes: Callable[[float], None],
) -> None:
    """As the topic says; a worker that comes later knows how often it was given (TRIES-KEPT)."""
    records = SharedRecords()
    partition = served(records)
    await partition.begin(0)
    look(partition, 1, 1, 2)
    for number in range(TERMS.most_tries):
        assert await give(partition, f"m{number}", most=1) == [0]
        passes(60.0)
    late = served(records, "late")
    look(late, 1, 1, 2)
    passes(60.0)
    assert await give(late, "b", terms=TERMS._replace(archives=False)) == [2]
    assert late.blocked == 1
    assert await give(late, "b") == []
    assert records.followers[1].outcomes["archived"] == 1
    assert await give(late, "b") == [1]


async def test_a_worker_that_has_no_room_gives_what_it_has_looked_at_and_looks_at_little() -> None:
    """Or else nothing would be done, and nothing would become free."""
    records = SharedRecords()
    partition = served(records)
    await partition.begin(0)
    look(partition, *range(LEAST_AHEAD))
    records.followers[0]._is_full = lambda: True
    assert partition.ahead().most == 0
    assert await give(partition, "a", most=1) == [0]
    assert await say(partition, "a", ACCEPT, 0) is Code.NONE
    assert partition.ahead().most == 1


async def test_there_is_room_for_the_locks_of_all_that_was_looked_at() -> None:
    records = SharedRecords()
    partition, log = served(records), records.followers[0]
    await partition.begin(0)
    look(partition, 1, 2, 3)
    wanted = log.held().bytes_if_given
    await give(partition, "a")
    assert log.held().bytes == log.held().bytes_if_given == wanted


async def test_what_is_reckoned_is_what_is_there() -> None:
    """In hand, looked at, and since when something is open."""
    records = SharedRecords()
    partition, log = served(records), records.followers[0]
    await partition.begin(0)
    assert (log.held().in_hand, log.held().oldest_ms) == (0, None)
    look(partition, 1, 2, 3)
    records.now_ms = 5_000
    await give(partition, "a")
    records.now_ms = 6_000
    await say(partition, "a", ACCEPT, 1)
    held = log.held()
    assert (held.places, held.in_hand, held.looked, held.oldest_ms) == (1, 2, 3, 5_000)
    await say(partition, "a", ACCEPT, 0)
    assert log.held().oldest_ms == 6_000
    await say(partition, "a", RENEW, 2)
    await say(partition, "a", RELEASE, 2)
    assert (log.held().in_hand, log.held().oldest_ms) == (0, None)
    assert dict(log.outcomes) == {"given": 3, "missed": 0, "archived": 0, "accepted": 2, "renewed": 1, "released": 1}


def test_partitions_that_somebody_adds_are_left_unused() -> None:
    """Workers that found a group in different ones would give its records twice."""
    sound = {"cleanup.policy": "compact"}
    assert SHARE_GROUPS._problem(50, sound) is None
    assert SHARE_GROUPS._problem(60, sound) is None
    assert SHARE_GROUPS._problem(49, sound) == "has 49 partitions, and must have 50; add partitions"
    assert SHARE_GROUPS._problem(50, {"cleanup.policy": "compact,delete"}) is not None
