"""Images that are written ahead of a fence: the same as those made under it, and they count from their layout on."""

from time import process_time
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kordon.proxy.ordering.changes import Abandoned, Change, Command, Commit, Prepare, Producers, ReadCuts, WriteAhead
from kordon.proxy.ordering.controller import MOST_FAILURES, Controller
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.images import ImageParts, ImageRecord, Written
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.member import Adopt, Member
from kordon.proxy.ordering.records import TopicRecord, Value, image_key
from kordon.proxy.ordering.tail import Tail

TOPIC = "orders"
LAYOUT = Layout.created(TOPIC, UUID(int=1), 2, 8)
REMEMBERED_MS = 1000
V = 8

rows = st.dictionaries(st.tuples(st.integers(0, V - 1), st.integers(0, 12)), st.integers(0, 50), max_size=30)
histories = st.lists(st.tuples(rows, rows, st.integers(0, 600)), min_size=1, max_size=8)


class World:
    """A controller and a member that reads what it has written down, with one change after the other."""

    def __init__(self, *, ahead: bool) -> None:
        self.controller = Controller(frozenset({"a"}), -80.0)
        self.controller.known.know(TopicRecord(LAYOUT, UUID(int=2)), {})
        self.member = Member("a")
        self.images: dict[int, dict[int, Written]] = {}
        self.log: dict[str, Value] = {}
        self.commands: list[Command] = []
        self.layout = LAYOUT
        self.now = 0.0
        self.read_ms = 1_000_000
        self._ahead = ahead

    def change(self, before: dict[tuple[int, int], int], behind: dict[tuple[int, int], int], waited_ms: int) -> None:
        """Comes to another count: some write before images could be written ahead, some behind."""
        self.now += 5
        self.read_ms += waited_ms
        count = 3 if self.layout.u == 2 else 2
        self.take(self.controller.begin(Change(TOPIC, count), self.now))
        self.take(self.controller.on_prepared(TOPIC, None, self.now, REMEMBERED_MS, has_many=self._ahead))
        self.take(self.controller.on_tick(self.now, "f"))
        if self._ahead:
            self.write_ahead(before)
            self.take(self.controller.on_tick(self.now, "f"))
        fence = self.member.fences[TOPIC]
        self.take(self.controller.on_committed(TOPIC, self.now))
        self.take(self.controller.on_confirmed(TOPIC, self.now))
        self.take(self.controller.on_ack(fence.id, "a", self.now))
        (ask,) = [each for each in self.commands if isinstance(each, ReadCuts)]
        written = self.tagged(behind if self._ahead else before | behind)
        cuts = {q: Producers(10, written.get(q, {}), read_ms=self.read_ms) for q in ask.partitions}
        self.take(self.controller.on_cuts(TOPIC, fence.id, cuts, self.now))
        self.take(self.controller.on_committed(TOPIC, self.now))

    def write_ahead(self, written: dict[tuple[int, int], int]) -> None:
        """Does what the controller's hands do, in runs of two producers."""
        (ask,) = [each for each in self.commands if isinstance(each, WriteAhead)]
        for q, found in self.tagged(written).items():
            flat = [(producer_id, epoch, last) for producer_id, (epoch, last) in found.items()]
            for begin in range(0, len(flat), 2):
                ask.images.add(q, flat[begin : begin + 2], self.read_ms)
        for _ in ask.images.carry(self.read_ms):
            pass
        parts = ask.images.take()
        in_force = self.member.images(TOPIC)
        self.put([(image_key(TOPIC, each.stream, each.number), each.part) for each in parts])
        self.controller.known.on_written_ahead(TOPIC, parts)
        epoch = self.layout.epoch
        for stream, image in in_force.items():
            assert dict(self.member.images(TOPIC)[stream].in_force(epoch)) == dict(image.in_force(epoch))
        self.take(self.controller.on_ahead(TOPIC, ask.images, self.now, None))

    def tagged(self, written: dict[tuple[int, int], int]) -> dict[int, dict[int, tuple[int, int]]]:
        """Returns by partition what brokers would tell of virtual partitions and client ids."""
        found: dict[int, dict[int, tuple[int, int]]] = {}
        for (v, client_id), last in written.items():
            home = self.layout.chains[v].home
            assert home is not None
            found.setdefault(home.partition, {})[tag(v, home.move, client_id)] = (0, last)
        return found

    def take(self, commands: list[Command]) -> None:
        """Keeps what is said, and reads what is committed."""
        self.commands = commands
        for command in commands:
            if isinstance(command, Commit):
                self.put(list(command.records))

    def put(self, records: list[tuple[str, Value | None]]) -> None:
        """Writes to the log, which the member reads."""
        for key, value in records:
            self.log.pop(key, None)
            if value is not None:
                self.log[key] = value
            for each in self.member.on_record(key, value):
                if isinstance(each, Adopt):
                    self.layout = each.record.layout
                    self.images = {stream: dict(image) for stream, image in each.images.items() if image}


def parts_in(log: dict[str, Value]) -> list[ImageRecord]:
    return [value for value in log.values() if isinstance(value, ImageRecord)]


@given(histories)
@settings(max_examples=40, deadline=None)
def test_images_written_ahead_are_those_that_a_fence_would_have_made(history: object) -> None:
    """However producers come, go, and write again while images are written; nothing is left over in the log."""
    assert isinstance(history, list)
    plain, ahead = World(ahead=False), World(ahead=True)
    for before, behind, waited_ms in history:
        grown = before | {key: before[key] + last for key, last in behind.items() if key in before}
        since = {key: grown[key] if key in before else last for key, last in behind.items()}
        plain.change(before, since, waited_ms)
        ahead.change(before, since, waited_ms)
        assert ahead.images == plain.images
        known = {each.rpartition("/")[0] for each in ahead.log if each.startswith("image/")}
        assert known == {f"image/{TOPIC}/{stream}" for stream in ahead.images}
        assert sorted(ahead.controller.known.image_keys(TOPIC)) == sorted(
            key for key in ahead.log if key.startswith("image/")
        )
        rows = sum(len(part.written) for part in parts_in(ahead.log))
        assert rows <= 3 * sum(map(len, ahead.images.values()))


def test_what_a_former_controller_wrote_ahead_never_counts() -> None:
    """It died before its fence; the layout of that number, when it comes, takes its parts out of the log."""
    world = World(ahead=True)
    world.take(world.controller.begin(Change(TOPIC, 3), 1.0))
    world.take(world.controller.on_prepared(TOPIC, None, 1.0, REMEMBERED_MS, has_many=True))
    world.take(world.controller.on_tick(1.0, "f"))
    world.write_ahead({(v, 7): 5 for v in range(V)})
    assert [key for key in world.log if key.startswith("image/")]
    restarted = Member("b")
    for key, value in world.log.items():
        restarted.on_record(key, value)
    (adopted,) = restarted.on_record(f"topic/{TOPIC}", TopicRecord(LAYOUT, UUID(int=2)))
    assert isinstance(adopted, Adopt)
    assert not any(adopted.images.values())

    world.controller = Controller(frozenset({"a"}), -80.0)
    world.controller.known.know(TopicRecord(LAYOUT, UUID(int=2)), world.member.images(TOPIC))
    world._ahead = False
    world.change({(0, 8): 1}, {}, 0)
    assert {client_id for image in world.images.values() for client_id in image} <= {8}
    assert all(part.begins == 0 for part in parts_in(world.log))


def failing(world: World, reason: str) -> list[Command]:
    """Lets attempts to write images ahead fail until the change does not go on."""
    world.take(world.controller.begin(Change(TOPIC, 3), world.now))
    for _ in range(2 * MOST_FAILURES):
        world.take(world.controller.on_prepared(TOPIC, None, world.now, REMEMBERED_MS, has_many=True))
        world.take(world.controller.on_tick(world.now, "f"))
        (ask,) = world.commands
        assert isinstance(ask, WriteAhead)
        ask.images.add(0, [(tag(v, 0, 7), 0, 5) for v in range(V)], 0)
        list(ask.images.carry(0))
        parts = ask.images.take()
        world.put([(image_key(TOPIC, each.stream, each.number), each.part) for each in parts])
        world.controller.known.on_written_ahead(TOPIC, parts)
        world.take(world.controller.on_ahead(TOPIC, ask.images, world.now, "did not work", reason))
        if world.commands:
            return world.commands
        world.now += 10
        world.take(world.controller.on_tick(world.now, "f"))
        assert world.commands == [Prepare(TOPIC, 3)]
    return []


def test_what_fails_again_and_again_for_one_reason_is_given_up_and_leaves_nothing() -> None:
    """Whoever wished it is told why; a broker that is away for long is no such reason."""
    world = World(ahead=True)
    assert failing(world, "") == []
    world = World(ahead=True)
    assert failing(world, "too many")
    assert not [key for key in world.log if key.startswith("image/")]
    (given_up,) = world.controller.on_committed(TOPIC, world.now)
    assert isinstance(given_up, Abandoned)
    assert given_up.problem == "given up after 3 attempts: too many"
    assert world.controller.changes == {}


def test_ends_that_never_stand_still_are_given_up() -> None:
    """Somebody who goes round Kordon writes all the time: to hold all others again and again would not help."""
    world = World(ahead=False)
    world.take(world.controller.begin(Change(TOPIC, 3), world.now))
    for attempt in range(MOST_FAILURES):
        world.take(world.controller.on_prepared(TOPIC, None, world.now, REMEMBERED_MS))
        world.take(world.controller.on_tick(world.now, f"f{attempt}"))
        fence = world.member.fences[TOPIC]
        world.controller.on_committed(TOPIC, world.now)
        world.controller.on_confirmed(TOPIC, world.now)
        world.controller.on_ack(fence.id, "a", world.now)
        world.take(world.controller.on_cuts(TOPIC, fence.id, None, world.now, "moves on"))
        assert TOPIC not in world.member.fences
        world.take(world.controller.on_committed(TOPIC, world.now))
        world.now += 10
        if attempt < MOST_FAILURES - 1:
            assert world.controller.on_tick(world.now, "f") == [Prepare(TOPIC, 3)]
    assert world.commands == [Abandoned(TOPIC, "given up after 3 attempts: moves on")]


def test_a_tail_tells_who_wrote_last_and_who_has_a_transaction_open() -> None:
    """Batch by batch: later epochs and sequences replace former ones, markers end transactions and write nothing."""
    tail = Tail(100, 3, in_transaction=[50])
    tail.take(7, 0, 0, 4)
    tail.take(-1, -1, -1, 9)
    tail.take(7, 0, 5, 0)
    tail.take(8, 0, 2**31 - 1, 1)
    tail.take(7, 1, 0, 2)
    tail.take(50, 0, -1, 0, is_transactional=True, is_control=True)
    tail.take(51, 0, 0, 0, is_transactional=True)
    assert tail.written == {7: (1, 2), 8: (0, 0), 51: (0, 0)}
    assert tail.in_transaction == {51}


def test_parts_that_begin_later_are_not_in_force() -> None:
    """And an image of which all is in force stays the same object: nothing is to be written of it."""
    world = World(ahead=True)
    world.change({(v, 7): 5 for v in range(V)}, {}, 0)
    for image in world.member.images(TOPIC).values():
        assert image.in_force(world.layout.epoch) is image
        assert dict(image.in_force(world.layout.epoch - 1)) == dict(ImageParts())


def test_what_is_read_again_counts_from_the_same_epoch_on() -> None:
    """A part that was written ahead is none of the layout in force, however that was come to be known."""
    member, record = Member("me"), TopicRecord(Layout.created("orders", UUID(int=1), 1, 2), UUID(int=2))
    member.on_record(image_key("orders", 0, 1), ImageRecord({7: Written(0, 41)}, 5, begins=1))
    (adopted,) = member.on_record("topic/orders", record)
    assert member.standing() == [("topic/orders", adopted)]
    assert isinstance(adopted, Adopt)
    assert not adopted.images[0]


def test_very_many_parts_are_read_in_time_that_grows_with_them() -> None:
    """Whoever writes the layouts may write as many as there is room for; each proxy reads them at its start."""
    member, part, began = Member("me"), ImageRecord({}, 5), process_time()
    for number in range(20_000):
        member.on_record(image_key("orders", 0, number), part)
    assert len(member.images("orders")[0].parts) == 20_000
    assert process_time() - began < 5
