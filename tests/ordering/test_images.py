"""Images: what a move writes down of producers, what it leaves in place, when a producer is forgotten (SEQ-IMAGE)."""

import tracemalloc
from collections.abc import Mapping
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kordon.proxy.ordering.changes import Change, Commit, Producers
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.images import PRODUCERS_OF_A_PART, ImageParts, ImageRecord, Written, carried
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.member import Adopt, Member
from kordon.proxy.ordering.records import FenceRecord, TopicRecord, Unreadable, Value, dump, image_key, load
from kordon.proxy.own_topics.layouts_writer import BATCH_BYTES

DAY_MS = 24 * 60 * 60 * 1000
NOW_MS = 1_700_000_000_000
TOPIC = "orders"


def moved(before: ImageParts, here: Mapping[int, Written], *, at_ms: int, remembered_ms: int = DAY_MS) -> ImageParts:
    return carried(before, here, at_ms, at_ms - remembered_ms)


def writers(*client_ids: int, last_sequence: int = 9) -> dict[int, Written]:
    return {client_id: Written(0, last_sequence) for client_id in client_ids}


def test_a_move_leaves_what_it_knows_of_silent_producers_where_it_stands() -> None:
    """Otherwise each change would write down again everybody who ever wrote."""
    first = moved(ImageParts(), writers(*range(100)), at_ms=NOW_MS)
    second = moved(first, writers(100), at_ms=NOW_MS + 1)
    assert second.parts[1] is first.parts[1]
    assert second.parts[2] == ImageRecord(writers(100), NOW_MS + 1)
    assert set(second) == set(range(101))


def test_a_move_in_which_nobody_has_written_changes_nothing() -> None:
    """So it writes nothing down either."""
    image = moved(ImageParts(), writers(1), at_ms=NOW_MS)
    assert moved(image, {}, at_ms=NOW_MS + 1) is image


def test_a_silent_producer_is_forgotten_when_brokers_would_have_forgotten_it() -> None:
    """SEQ-IMAGE: not before, or what it sends once more is written a second time; not for ever, or images only grow."""
    image = moved(ImageParts(), writers(1), at_ms=NOW_MS)
    assert 1 in moved(image, writers(2), at_ms=NOW_MS + DAY_MS)
    assert 1 not in moved(image, writers(2), at_ms=NOW_MS + DAY_MS + 1)


def test_a_producer_that_goes_on_is_counted_from_where_it_was_however_old_its_image_is() -> None:
    """Sequences in its home lean on the image: it is asked for what it knows before it is taken away."""
    image = moved(ImageParts(), writers(1, last_sequence=9), at_ms=NOW_MS)
    later = moved(image, writers(1, last_sequence=4), at_ms=NOW_MS + 10 * DAY_MS)
    assert dict(later) == {1: Written(0, 14)}


def test_a_part_shrinks_once_others_know_better() -> None:
    """What newer parts tell of is taken out as soon as it is the half, and a part without use goes."""
    image = moved(ImageParts(), writers(1, 2, 3, 4), at_ms=NOW_MS)
    image = moved(image, writers(1, last_sequence=0), at_ms=NOW_MS + 1)
    assert len(image.parts[1].written) == 4
    image = moved(image, writers(2, last_sequence=0), at_ms=NOW_MS + 2)
    assert image.parts[1] == ImageRecord(writers(3, 4), NOW_MS), "its age is its own"
    image = moved(image, writers(3, 4, last_sequence=0), at_ms=NOW_MS + 3)
    assert 1 not in image.parts


def test_each_part_fits_into_a_batch() -> None:
    """However many producers there are, and however large their numbers."""
    many = {(1 << 40) - 1 - n: Written((1 << 15) - 1, (1 << 31) - 1) for n in range(PRODUCERS_OF_A_PART + 1)}
    image = moved(ImageParts(), many, at_ms=NOW_MS)
    assert dict(image) == many
    assert max(len(dump(part)) for part in image.parts.values()) < BATCH_BYTES // 2


moves = st.lists(
    st.tuples(st.dictionaries(st.integers(0, 12), st.integers(0, 50), max_size=6), st.integers(0, 40)), max_size=30
)


@given(moves)
@settings(max_examples=200, deadline=None)
def test_an_image_knows_who_wrote_last_and_when(history: list[tuple[dict[int, int], int]]) -> None:
    """Against a table of all who ever wrote: nobody is missing in time, nobody stays, half of it is needed."""
    image, now, known = ImageParts(), NOW_MS, dict[int, tuple[Written, int]]()
    for here, waited in history:
        now += waited
        found = {client_id: Written(0, last) for client_id, last in here.items()}
        image = moved(image, found, at_ms=now, remembered_ms=100)
        counts = {each: known[each][0].last_sequence + 1 if each in known else 0 for each in found}
        known = {each: row for each, row in known.items() if now - row[1] <= 100}
        known |= {each: (Written(0, written.last_sequence + counts[each]), now) for each, written in found.items()}
        assert dict(image) == {each: written for each, (written, _) in known.items()}
        assert {each: image.get(each) for each in range(13)} == {each: dict(image).get(each) for each in range(13)}
        assert sum(len(part.written) for part in image.parts.values()) <= 2 * len(known)


class Proxies:
    """A controller and a member that reads what it has written down."""

    def __init__(self) -> None:
        layout = Layout.created(TOPIC, UUID(int=1), 2, 8)
        self.controller = Controller(frozenset({"a"}), -80.0)
        self.controller.known.know(TopicRecord(layout, UUID(int=2)), {})
        self.member = Member("a")
        self.log: dict[str, bytes] = {}
        self.now = 0.0

    def change(self, count: int, written: Mapping[int, tuple[int, int]], *, at_ms: int) -> Adopt:
        """Comes to so many partitions; each of those sealed has these producers."""
        self.now += 1
        self.controller.begin(Change(TOPIC, count), self.now)
        self.controller.on_prepared(TOPIC, None, self.now, remembered_ms=DAY_MS)
        (commit,) = self.controller.on_tick(self.now, f"f{self.now}")
        self._take(commit)
        fence = self.member.fences[TOPIC]
        assert isinstance(fence, FenceRecord)
        self.controller.on_committed(TOPIC, self.now)
        self.controller.on_confirmed(TOPIC, self.now)
        (ask,) = self.controller.on_ack(fence.id, "a", self.now)
        ends = {q: Producers(10, written, read_ms=at_ms) for q in ask.partitions}  # type: ignore[union-attr]
        (commit,) = self.controller.on_cuts(TOPIC, fence.id, ends, self.now)
        adopted = self._take(commit)
        self.controller.on_committed(TOPIC, self.now)
        return adopted

    def _take(self, commit: object) -> Adopt:
        assert isinstance(commit, Commit)
        adopted: list[Adopt] = []
        for key, value in commit.records:
            self._log(key, value)
            adopted += [each for each in self.member.on_record(key, value) if isinstance(each, Adopt)]
        return adopted[0] if adopted else Adopt(TopicRecord(Layout.created(TOPIC, UUID(int=1), 2, 8), UUID(int=2)), {})

    def _log(self, key: str, value: Value | None) -> None:
        self.log.pop(key, None)
        if value is not None:
            self.log[key] = dump(value)


def test_what_is_forgotten_leaves_the_layouts_and_every_proxy() -> None:
    """Producers that come and go leave nothing behind: neither in the log nor in a proxy, old or new."""
    proxies, sizes = Proxies(), list[int]()
    for day in range(12):
        count = 3 if day % 2 == 0 else 2
        newcomers = {tag(v, move, 100 * day + v): (0, 5) for v in range(8) for move in range(12)}
        adopted = proxies.change(count, newcomers, at_ms=NOW_MS + day * DAY_MS)
        restarted = Member("b")
        for key, value in proxies.log.items():
            read = load(key, value)
            assert not isinstance(read, Unreadable)
            restarted.on_record(key, read)
        assert {v: dict(image) for v, image in restarted.images(TOPIC).items()} == {
            v: dict(image) for v, image in adopted.images.items() if image
        }
        sizes.append(sum(len(image) for image in adopted.images.values()))
    assert 0 < max(sizes) <= 16, "two days of eight virtual partitions"


def test_a_topic_that_is_let_go_leaves_no_image() -> None:
    """Each part has its tombstone, or the next topic of this name would begin with producers of this one."""
    proxies = Proxies()
    proxies.change(3, {tag(v, 0, 7): (0, 5) for v in range(8)}, at_ms=NOW_MS)
    assert sorted(proxies.controller.known.image_keys(TOPIC)) == sorted(
        key for key in proxies.log if key.startswith("image/")
    )
    assert proxies.controller.known.image_keys(TOPIC)


@given(st.dictionaries(st.integers(0, 1 << 62), st.builds(Written, st.integers(0, 1 << 15), st.integers(-1, 1 << 30))))
def test_packed_rows_are_found_as_in_a_dictionary(written: dict[int, Written]) -> None:
    """And come back from what is written down of them."""
    record = ImageRecord(written, 5)
    assert record.written == written
    assert [record.written.get(client_id) for client_id in written] == list(written.values())
    assert record.written.get(-1) is None
    assert record.written.get((1 << 62) + 1) is None
    assert all((client_id + 1 in record.written) == (client_id + 1 in written) for client_id in written)
    assert load(image_key("orders", 1, 1), dump(record)) == record


def test_a_producer_takes_few_bytes_of_memory() -> None:
    """Every worker keeps all of them; as a dictionary they took 130 bytes each."""
    written = dump(ImageRecord({5_000_000 + number: Written(0, number) for number in range(10_000)}, 5))
    load(image_key("orders", 1, 1), written)
    tracemalloc.start()
    parts = [load(image_key("orders", 1, 1), written) for _ in range(10)]
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / (len(parts) * 10_000) < 25
