"""KEY-HOME: keys lie where their producer's partitioner sends them; what Kordon has moved is told from free choice."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.spark_jobs.judging.partitioners import PARTITIONERS
from kordon.spark_jobs.judging.rules import key_home
from kordon.spark_jobs.judging.rules.belonging import NO_V
from kordon.spark_jobs.key_hashes import hashes_of
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_batches import TOPIC, batch, layout_rows, tagged
from kordon.testing.audits.rule_plays import MicroBatch, Played, Row, decided

pytestmark = pytest.mark.slow

N: Final = 3
V: Final = 12
LAYOUT: Final = Layout.created(TOPIC, UUID(int=1), N, V)
NAMES: Final = [each.name for each in PARTITIONERS]
ALL_KEYS: Final = [b"order-%d" % number for number in range(3_000)]
Choice = Callable[[bytes], int]


def chosen(name: str, count: int = V) -> dict[bytes, int]:
    """Where a partitioner puts all keys."""
    table = pl.DataFrame({column: pl.Series(each) for column, each in hashes_of(ALL_KEYS)._asdict().items()})
    partitioner = next(each for each in PARTITIONERS if each.name == name)
    places = table.select(partitioner.partition(pl.lit(count)).alias("v")).get_column("v").to_list()
    return dict(zip(ALL_KEYS, places, strict=True))


_HASHES: Final = hashes_of(ALL_KEYS).murmur2 & 0x7FFFFFFF
MURMUR2: Final[dict[bytes, int]] = dict(zip(ALL_KEYS, (_HASHES % V).tolist(), strict=True))
"""Where Java's clients put all keys; by numpy, as Polars' threads do not outlive a fork (`testing/forks.py`)."""


def _differing(keys: Iterable[bytes]) -> list[bytes]:
    """Of keys that share a mark, the first."""
    marks = {key: int(a) >> 26 ^ int(b) >> 26 for key in keys for a, b, _ in zip(*hashes_of([key]), strict=True)}
    return list({mark: key for key, mark in reversed(marks.items())}.values())


STRANGE: Final = _differing(key for key, v in MURMUR2.items() if v == 4)
"""Keys of virtual partition 4."""


class Log:
    """What clients have written, with all batches opened."""

    def __init__(self, layout: Layout = LAYOUT) -> None:
        self.layout = layout
        self.batches: list[Row] = []
        self.keys: list[Row] = []
        self._ends: dict[int, int] = defaultdict(int)

    def write(self, v: int, keys: Sequence[bytes], producer: int = 7) -> None:
        """A stock client's batch, as Kordon has put it into a virtual partition."""
        home = self.layout.chain(v).stays[-1]
        self._add(
            home.partition, keys, lambda at: tagged(v, home.move, home.partition, at, len(keys), producer=producer)
        )

    def write_dialect(self, partition: int, keys: Sequence[bytes]) -> None:
        """A batch of a client of the dialect."""
        epoch = self.layout.chain(~partition).stays[-1].move
        self._add(partition, keys, lambda at: tagged(NO_V, epoch, partition, at, len(keys)))

    def write_untagged(self, partition: int, keys: Sequence[bytes]) -> None:
        """A batch from before the takeover."""
        self._add(partition, keys, lambda at: batch(partition, at, len(keys)))

    def write_unreadable(self, v: int) -> None:
        """A batch that was opened in vain."""
        self.write(v, [])

    def _add(self, partition: int, keys: Sequence[bytes], make: Callable[[int], Row]) -> None:
        at = self._ends[partition]
        self.batches.append(make(at))
        hashes = zip(*(each.tolist() for each in hashes_of(keys)), strict=True) if keys else [(None, None, None)]
        named = [dict(zip(("murmur2", "crc32", "fnv1a"), each, strict=True)) for each in hashes]
        self.keys += [{"topic": TOPIC, "partition": partition, "base_offset": at, **each} for each in named]
        self._ends[partition] += max(len(keys), 1)

    @property
    def ends(self) -> dict[int, int]:
        """Where each partition ends."""
        return {q: self._ends[q] for q in range(V)}

    def pieces(self, count: int, chance: random.Random | None = None) -> list[MicroBatch]:
        """What there is, in micro-batches: each partition in order, and cut anywhere."""
        pieces: list[dict[str, list[Row]]] = [defaultdict(list) for _ in range(count)]
        keys: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for key in self.keys:
            keys[key["partition"], key["base_offset"]].append(key)
        for q in range(self.layout.v_count):
            rows = [each for each in self.batches if each["partition"] == q]
            cuts = sorted((chance or random.Random(1)).choices(range(count), k=len(rows)))
            for row, piece in zip(rows, cuts, strict=True):
                pieces[piece]["batches"].append(row)
                pieces[piece]["keys"] += keys[q, row["base_offset"]]
        told = [MicroBatch(batches=each["batches"], keys=each["keys"]) for each in pieces]
        return [
            MicroBatch(**layout_rows(self.layout), decisions=[decided("lease", 0)]),
            *told,
            MicroBatch(is_last=True),
        ]

    def judged(self) -> Played:
        """What the rule says of it."""
        return play(key_home.RULE, self.pieces(1))


def by_partition(keys: Iterable[bytes], place: Choice) -> dict[int, list[bytes]]:
    """Keys by where a client puts them."""
    lots: dict[int, list[bytes]] = defaultdict(list)
    for key in keys:
        lots[place(key)].append(key)
    return lots


def wrote(
    log: Log, place: Choice, *, moved: Mapping[int, int] | None = None, at_once: int = 8, producer: int = 7
) -> Log:
    """A client writes all keys in batches of one partition each; `moved` says where Kordon has put them."""
    for v, keys in sorted(by_partition(ALL_KEYS[:600], place).items()):
        for first in range(0, len(keys), at_once):
            lot = keys[first : first + at_once]
            log.write((moved or {}).get(v, v), lot, producer)
    return log


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at_once", [1, 8])
def test_keys_at_home_by_any_known_partitioner_are_right(name: str, at_once: int) -> None:
    """However many of them a batch has."""
    played = wrote(Log(), chosen(name).__getitem__, at_once=at_once).judged()
    assert played.findings == []
    assert (played.count("pass") > 70, played.count("unknown")) == (True, 0)


@pytest.mark.parametrize("name", NAMES)
def test_what_kordon_puts_into_another_virtual_partition_is_found(name: str) -> None:
    """Two virtual partitions changed places, for one producer: each direction is a finding, and it names all of it."""
    log = wrote(Log(), chosen(name).__getitem__, moved={0: 1, 1: 0})
    played = log.judged()
    assert played.found("kind", "verdict", "stream") == [("misplaced-key", "fail", 0), ("misplaced-key", "fail", 1)]
    one = next(each for each in played.findings if each["stream"] == 1)
    strange = [each for each in log.batches if each["v"] == 1]
    assert (one["first_offset"], one["last_offset"]) == (strange[0]["base_offset"], strange[-1]["last_offset"])
    records = sum(each["records"] for each in strange)
    assert one["text"].startswith(f"{records} records of producer 7 stand in virtual partition 1 of {TOPIC}")
    assert "belong to virtual partition 0" in one["text"]
    assert played.count("unknown") == len([each for each in log.batches if each["v"] in {0, 1}])


def test_all_virtual_partitions_moved_on_are_found() -> None:
    """No key is at home, and still each batch has keys that belong together."""
    played = wrote(Log(), MURMUR2.__getitem__, moved={v: (v + 1) % V for v in range(V)}).judged()
    assert {(each["verdict"], each["kind"]) for each in played.findings} == {("fail", "misplaced-key")}
    assert 1 <= len(played.findings) <= key_home.SUSPECTS


def test_moved_batches_of_writers_without_idempotence_are_found() -> None:
    """These have a producer id per virtual partition, which Kordon has lent them: it is of where they were put."""
    log = Log()
    for v, keys in by_partition(ALL_KEYS, MURMUR2.__getitem__).items():
        wrote_to = {0: 1, 1: 0}.get(v, v)
        for first in range(0, len(keys), 8):
            log.write(wrote_to, keys[first : first + 8], producer=100 + wrote_to)
    assert log.judged().found("verdict", "stream") == [("fail", 0), ("fail", 1)]


def test_one_producers_batches_in_the_midst_of_right_ones_are_found_once_for_all_producers() -> None:
    """A worker that goes wrong later, or for a while; and several producers are one finding."""
    log = Log()
    for producer in (7, 8):
        wrote(log, MURMUR2.__getitem__, producer=producer)
        for first in range(0, 32, 8):
            log.write(9, STRANGE[first : first + 8], producer)
    played = log.judged()
    assert played.found("verdict", "stream") == [("fail", 9)]
    assert played.findings[0]["text"].startswith("64 records of 2 producers, one of them 7, stand in")


@pytest.mark.parametrize(("count", "verdict"), [(2, "unknown"), (6, "unknown"), (7, "fail")])
def test_few_keys_are_not_enough_to_blame_kordon(count: int, verdict: str) -> None:
    """An application may have put them there by its own rule: 20 bits are five keys of 12 partitions behind the first.

    With 7 keys, all others belong to the first one's partition by chance once in 3 million times.
    """
    log = wrote(Log(), MURMUR2.__getitem__)
    log.write(9, STRANGE[:count])
    assert log.judged().found("verdict", "stream") == [(verdict, 9)]


def test_what_is_known_of_nobody_else_is_not_enough_to_blame_kordon() -> None:
    """Of a producer that has written nothing else, or places the rest freely, the partitioner is not known."""
    free, chance = Log(), random.Random(2)
    for key in ALL_KEYS[:800]:
        free.write(chance.randrange(V), [key])
    free.write(9, STRANGE[:9])
    assert free.judged().findings == []
    log = Log()
    log.write(9, STRANGE[:9])
    assert log.judged().findings == []
    log.write(9, STRANGE[9:18])
    assert log.judged().found("verdict", "stream") == [("fail", 9)]


def test_a_partitioner_is_not_known_by_a_few_keys() -> None:
    """Where they were put by chance, others lie elsewhere by chance."""
    log = Log()
    for key in ALL_KEYS[:8]:
        log.write(MURMUR2[key], [key])
    log.write(9, STRANGE[:1])
    assert log.judged().findings == []
    for key in ALL_KEYS[8:40]:
        log.write(MURMUR2[key], [key])
    assert log.judged().found("verdict", "stream") == [("unknown", 9)]


def test_a_finding_waits_for_what_speaks_against_it() -> None:
    """A mixture that is read later, as it stands on another partition, still says that the client chooses itself."""
    log = wrote(Log(), MURMUR2.__getitem__)
    log.write(9, STRANGE[:8])
    first = MicroBatch(**layout_rows(LAYOUT), decisions=[decided("lease", 0)], batches=log.batches, keys=log.keys)
    log.batches, log.keys = [], []
    log.write(5, ALL_KEYS[:8])
    told = decided("admit", 1, topic=TOPIC, partition=0, last_offset=10_000, seconds=1)
    others = [{**told, "number": q + 1, "partition": q} for q in range(N)]
    certain = MicroBatch(decisions=others)
    mixture = MicroBatch(batches=log.batches, keys=log.keys)
    assert play(key_home.RULE, [first, certain, MicroBatch(is_last=True)]).found("verdict") == ["fail"]
    assert play(key_home.RULE, [first, certain, mixture, MicroBatch(is_last=True)]).findings == []


def test_a_few_keys_again_and_again_are_no_more_than_they_are() -> None:
    """Two keys that an application always puts together elsewhere: told once, and unknown."""
    log = wrote(Log(), MURMUR2.__getitem__)
    for _ in range(40):
        log.write(9, STRANGE[:2])
    played = log.judged()
    assert played.found("verdict", "stream") == [("unknown", 9)]
    assert "80 records" in played.findings[0]["text"]


def test_a_key_alone_in_its_batch_elsewhere_is_unknown() -> None:
    """Its producer is known to use a partitioner, but may have chosen once: a mark for all partitions, for instance."""
    log = wrote(Log(), MURMUR2.__getitem__, at_once=1)
    for v in range(V):
        log.write(v, [b"mark for all"])
    played = log.judged()
    assert set(played.found("verdict")) == {"unknown"}
    assert 1 <= len(played.findings) <= key_home.SUSPECTS
    assert "Either the application has given the partition itself" in played.findings[0]["text"]


def test_what_was_moved_together_is_found_beside_single_keys() -> None:
    """Of much that lies elsewhere a few rows are kept: those that may prove something go first."""
    log = wrote(Log(), MURMUR2.__getitem__, at_once=1)
    for key in ALL_KEYS[:40]:
        log.write(0, [key])
    log.write(9, STRANGE[:8])
    assert ("fail", 9) in log.judged().found("verdict", "stream")


def test_a_key_that_another_partitioner_explains_by_chance_is_not_right() -> None:
    """What its producer is known to use counts: else one strange key of V would pass for each further partitioner."""
    log = wrote(Log(), MURMUR2.__getitem__)
    places = chosen("crc32")
    by_chance = [key for key in ALL_KEYS if places[key] == 9 != MURMUR2[key]][:5]
    for key in by_chance:
        log.write(9, [key])
    assert log.judged().count("unknown") == len(by_chance)


@pytest.mark.parametrize("at_once", [1, 2, 8])
@pytest.mark.parametrize("v_count", [2, 16, 128])
def test_an_application_that_places_keys_by_a_rule_of_its_own_is_left_alone(at_once: int, v_count: int) -> None:
    """Explicit partitions are its right: the rule does not apply, however much it has written."""
    layout = Layout.created(TOPIC, UUID(int=1), 2, v_count)
    chance = random.Random(v_count)
    log = Log(layout)
    for _ in range(1_500):
        log.write(chance.randrange(v_count), chance.sample(ALL_KEYS, at_once))
    played = log.judged()
    assert (played.findings, played.count("unknown")) == ([], 0)


def test_who_mixes_keys_within_a_batch_is_never_blamed_on_kordon() -> None:
    """Kordon does not open batches: a mixture is the client's own, and so may the rest be."""
    log = wrote(Log(), MURMUR2.__getitem__, moved={0: 1, 1: 0})
    log.write(5, ALL_KEYS[:8])
    played = log.judged()
    assert played.findings == []
    assert played.count("unknown") > 0


def test_two_clients_of_different_partitioners_behind_one_id_are_right() -> None:
    """As where Kordon lends an identity to all that write without idempotence."""
    log = wrote(wrote(Log(), MURMUR2.__getitem__), chosen("crc32").__getitem__)
    played = log.judged()
    assert played.findings == []
    assert played.count("unknown") == 0


def test_a_hash_that_is_another_number_of_the_same_is_not_held_to_it() -> None:
    """Clients exist that take murmur2 without masking its sign: half of a batch's keys belong elsewhere together."""
    hashed = hashes_of(ALL_KEYS).murmur2.tolist()
    places = dict(zip(ALL_KEYS, (each % V for each in hashed), strict=True))
    for at_once in (1, 2, 8):
        assert set(wrote(Log(), places.__getitem__, at_once=at_once).judged().found("verdict")) <= {"unknown"}


def test_dialect_writes_are_right_where_their_keys_live_and_not_judged_elsewhere() -> None:
    """Their clients choose physical partitions, by the layout of the time and a partitioner that may be any."""
    log = Log(LAYOUT.changed(LAYOUT.next_epoch(5), dict.fromkeys(range(V), 0)))
    homes = {key: log.layout.homes[v] for key, v in MURMUR2.items()}
    lots = by_partition(ALL_KEYS[:100], lambda key: homes[key] or 0)
    for q, keys in lots.items():
        log.write_dialect(q, keys[:8])
    for key in ALL_KEYS[100:400]:
        log.write_dialect(homes[key] or 0, [key])
    for first in range(0, 32, 8):
        log.write_dialect(2, STRANGE[first : first + 8])
    played = log.judged()
    assert log.layout.homes[4] != 2
    assert played.findings == []
    assert (played.count("pass"), played.count("unknown")) == (305, 0)


@pytest.mark.parametrize("way", [Placement.OWN, Placement.SHARED])
def test_a_takeover_lets_clients_see_either_number_until_it_is_over(way: Placement) -> None:
    """Keys among N and among V are right meanwhile; later, among N is not judged, and nobody's fault."""
    log = Log(Layout.unmanaged(TOPIC, UUID(int=1), N, V))
    before = chosen("murmur2", N)
    for q, keys in by_partition(ALL_KEYS[:90], before.__getitem__).items():
        log.write_untagged(q, keys[:8])
    log.layout = log.layout.changed(log.layout.next_epoch(N, way), log.ends)
    for q, keys in by_partition(ALL_KEYS[:200], before.__getitem__).items():
        log.write(q, keys[:8])
        log.write_dialect(q, keys[8:16])
    for v, keys in by_partition(ALL_KEYS[:200], MURMUR2.__getitem__).items():
        log.write(v, keys[:8])
    taken = log.judged()
    assert (taken.count("pass"), taken.count("unknown"), taken.findings) == (N + N + V, 0, [])
    log.layout = log.layout.changed(log.layout.next_epoch(N, Placement.LINEAR), log.ends)
    wrote(log, MURMUR2.__getitem__)
    right = log.judged().count("pass")
    for v, keys in by_partition(ALL_KEYS[:900], before.__getitem__).items():
        log.write(v, keys[:16])
    late = log.judged()
    assert (late.count("pass"), late.count("unknown"), late.findings) == (right, 0, [])
    assert right > N + N + V + 70
    log.write(9, STRANGE[:8])
    assert log.judged().found("verdict", "stream") == [("fail", 9)]


def test_what_cannot_be_opened_and_topics_without_layout_are_not_judged() -> None:
    """As what is not in the sample; and the producer's partitioner is known in spite of them."""
    log = wrote(Log(), MURMUR2.__getitem__)
    log.write_unreadable(3)
    assert log.judged().count("unknown") == 0
    for _ in range(400):
        log.write_unreadable(3)
    log.write(9, STRANGE[:1])
    assert log.judged().found("verdict") == ["unknown"]
    foreign = [MicroBatch(batches=log.batches, keys=log.keys, is_last=True)]
    played = play(key_home.RULE, foreign)
    assert (played.count("unknown"), played.count("pass"), played.findings) == (0, 0, [])


def test_keys_wait_for_their_batches_but_not_for_ever_nor_in_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that becomes certain later is judged then; of what never comes it is said that it was not judged."""
    log = wrote(Log(), MURMUR2.__getitem__)
    first = MicroBatch(**layout_rows(LAYOUT), decisions=[decided("lease", 0)], batches=log.batches, keys=log.keys)
    waits = play(key_home.RULE, [first])
    assert (waits.count("pass"), len([each for each in waits.state if each["what"] == "waiting"])) == (0, len(log.keys))
    later = MicroBatch(decisions=[decided("lease", 1, seconds=700)])
    assert play(key_home.RULE, [first, later]).count("pass") == len(log.batches)
    alone = MicroBatch(decisions=[decided("lease", 0)], keys=log.keys)
    assert play(key_home.RULE, [alone, later]).count("late") == len(log.batches)
    monkeypatch.setattr(key_home, "WAITING_KEYS", 100)
    few = play(key_home.RULE, [first])
    assert len([each for each in few.state if each["what"] == "waiting"]) == 100
    assert few.count("late") > 0


def everything() -> Log:
    """Right keys, moved ones, and free ones of several producers."""
    log, chance = Log(), random.Random(3)
    for place, name in enumerate(NAMES):
        wrote(log, chosen(name).__getitem__, producer=10 + place)
    wrote(log, MURMUR2.__getitem__, moved={2: 7}, producer=20)
    wrote(log, MURMUR2.__getitem__, at_once=1, producer=21)
    for v in range(V):
        log.write(v, [b"mark for all"], producer=21)
    for _ in range(200):
        log.write(chance.randrange(V), chance.sample(ALL_KEYS, 5), producer=22)
        log.write(chance.randrange(V), chance.sample(ALL_KEYS, 1), producer=23)
    log.write_unreadable(4)
    return log


def test_any_cut_into_micro_batches_says_the_same() -> None:
    """A finding waits until what is read beside it is heard, in whatever order that comes."""
    log = everything()
    whole = log.judged()
    assert {("fail", 7)} < set(whole.found("verdict", "stream"))
    for seed in range(4):
        cut = play(key_home.RULE, log.pieces(7, random.Random(seed)))
        assert sorted(each["text"] for each in cut.findings) == sorted(each["text"] for each in whole.findings)
        assert cut.found("finding_id") == whole.found("finding_id")
        assert cut.count("pass") >= whole.count("pass")  # until a partitioner is known, any will do


def test_a_finding_is_told_once_and_again_when_more_is_certain() -> None:
    """What was unknown with a few keys is a fail with more of them; what has been told is not told again."""
    log = wrote(Log(), MURMUR2.__getitem__)
    told = [MicroBatch(**layout_rows(LAYOUT), decisions=[decided("lease", 0)])]
    for number, first in enumerate(range(0, 24, 3), 1):
        log.write(9, STRANGE[first : first + 3])
        told.append(
            MicroBatch(decisions=[decided("lease", number, seconds=700 * number)], batches=log.batches, keys=log.keys)
        )
        log.batches, log.keys = [], []
    played = play(key_home.RULE, [*told, MicroBatch(is_last=True), MicroBatch(is_last=True)])
    assert [each["verdict"] for each in played.findings] == ["unknown", "fail"]


def test_the_state_is_a_row_per_producer_and_few_of_what_is_misplaced() -> None:
    """However free they place their keys; and who is silent for a day is forgotten."""
    log, chance = Log(), random.Random(5)
    for producer in range(20):
        for _ in range(60):
            log.write(chance.randrange(V), chance.sample(ALL_KEYS, 1), producer)
    pieces = log.pieces(3)
    played = play(key_home.RULE, [*pieces[:-1], MicroBatch(decisions=[decided("lease", 1, seconds=700)])])
    kept: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in played.state:
        kept[row["what"]].append(row)
    assert len(kept["producer"]) == 20
    assert 20 < len(kept["suspect"]) <= 20 * len(NAMES) * key_home.SUSPECTS
    silent = [*pieces[:-1], *(MicroBatch(decisions=[decided("lease", 1, seconds=at)]) for at in (700, 90_000))]
    assert play(key_home.RULE, silent).state == []
