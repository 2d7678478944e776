"""The skim finds the same position as construct, however the bytes come in, and stops at impossible lengths."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kordon.codecs.errors import WireError
from kordon.codecs.messages import REQUESTS, RESPONSES, request, response
from kordon.codecs.row import Row
from kordon.codecs.schema import Message
from kordon.codecs.skim import Skim, program
from kordon.testing.messages.values import Values

MESSAGES = [*REQUESTS.values(), *RESPONSES.values()]
EXAMPLES = settings().max_examples // 6
"""Per message: there are 120 of them."""
SEEDS = st.integers(0, 2**32)
"""As in test_round_trips.py."""
NEWEST_FETCH = 18


class Unfinished(Exception):  # noqa: N818 - no error: more bytes are needed
    """All bytes were given, the field has not ended."""


def walk(skim: Skim, data: bytes, cuts: list[int]) -> int:
    """Feeds a skim with the pieces between cuts, each at another place of a buffer; returns where it was done."""
    border = 0
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        margin = bytes(start % 3)
        chunk = memoryview(margin + data[start:end] + b"\xee\xee")
        stop = skim.advance(chunk, len(margin), len(margin) + end - start) - len(margin)
        border += stop
        if skim.done:
            return border
        assert stop == end - start
    raise Unfinished


def position(message: Message[Row], version: int, after: str, value: dict[str, Any]) -> int:
    """Where the field ends, by construct's measure."""
    return len(message.build(version, value)) - len(message.suffix(version, after).build(value))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_skim_ends_where_construct_does(message: Message[Row], data: st.DataObject) -> None:
    """Any message, version and field, for any cuts between chunks."""
    version = data.draw(st.sampled_from(message.versions))
    after = data.draw(st.sampled_from(message.fields)).name
    value = Values(Random(data.draw(SEEDS)), unknown_tags=True, longest=2).message(message, version)
    built = message.build(version, value)
    cuts = data.draw(st.lists(st.integers(0, len(built)), max_size=8).map(sorted))
    assert walk(Skim(message, version, after), built, cuts) == position(message, version, after, value)


@pytest.mark.parametrize("key", [0, 1, 3, 78, 79])
def test_skim_ends_where_construct_does_one_byte_at_a_time(key: int) -> None:
    """The messages that the proxy skims, in each version, cut at every byte."""
    message = response(key)
    after = "brokers" if key == 3 else "responses"
    for version in message.versions:
        for seed in range(5):
            value = Values(Random(seed), unknown_tags=True).message(message, version)
            built = message.build(version, value)
            expected = position(message, version, after, value)
            assert walk(Skim(message, version, after), built, list(range(1, len(built)))) == expected
            assert walk(Skim(message, version, after), built, []) == expected


def outcome(message: Message[Row], version: int, data: bytes, cuts: list[int]) -> tuple[str, int]:
    """Where a skim over all fields ends, where it fails, or that it would go on."""
    skim = Skim(message, version, message.fields[-1].name)
    try:
        return ("done", walk(skim, data, cuts))
    except WireError as error:
        return (error.reason, 0)
    except Unfinished:
        return ("unfinished", 0)


def test_skim_of_changed_bytes_does_not_depend_on_the_cuts() -> None:
    """Broken messages too have one outcome, in one piece and in many."""
    random = Random(11)
    outcomes: Counter[str] = Counter()
    for message in MESSAGES:
        for version in message.versions:
            data = bytearray(message.build(version, Values(random, unknown_tags=True).message(message, version)))
            for _ in range(4):
                if data:
                    data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
                changed = bytes(data)
                whole = outcome(message, version, changed, [])
                for _ in range(3):
                    cuts = sorted(random.choices(range(len(data) + 1), k=random.randint(1, 6)))
                    assert outcome(message, version, changed, cuts) == whole
                outcomes[whole[0] if whole[0] in ("done", "unfinished") else "refused"] += 1
    assert min(outcomes[kind] for kind in ("done", "unfinished", "refused")) > 50


def test_a_number_that_is_too_long_is_refused_alike_wherever_it_is_cut() -> None:
    """What was kept of its beginning does not make more bytes of it count."""
    data = bytes(4) + b"\xff" * 5 + b"\x01"  # of Metadata 9: a throttle time, and a count
    outcomes = {outcome(response(3), 9, data, [cut]) for cut in range(len(data))}
    assert outcomes == {("unsigned varint is longer than 5 bytes", 0)}


def test_skim_passes_records_of_many_chunks() -> None:
    """A length that reaches over chunks is skipped, not looked for again."""
    value = {"responses": [{"partitions": [{"records": bytes(1_000_000)}, {"records": b"x"}]}]}
    built = response(1).build(NEWEST_FETCH, value)
    expected = position(response(1), NEWEST_FETCH, "responses", value)
    assert walk(Skim(response(1), NEWEST_FETCH, "responses"), built, list(range(0, len(built), 65_536))) == expected


def test_skim_is_not_done_before_the_last_byte() -> None:
    """A response that ends inside of the data is noticed by its reader: the skim is not done."""
    built = response(1).build(NEWEST_FETCH, {"responses": [{"partitions": [{"records": b"abc"}]}]})
    end = position(response(1), NEWEST_FETCH, "responses", response(1).parse(NEWEST_FETCH, built))
    for length in range(end):
        skim = Skim(response(1), NEWEST_FETCH, "responses")
        assert skim.advance(built, 0, length) == length
        assert not skim.done


@pytest.mark.parametrize(
    ("message", "version", "data", "said"),
    [
        (response(1), 4, b"\0\0\0\0" + b"\xff\xff\xff\xff", "FetchResponse v4: responses: has the length -1"),
        (response(1), 4, b"\0\0\0\0" + b"\x80\0\0\0", "has the length -2147483648"),
        (response(1), 18, bytes(10) + b"\x00", "FetchResponse v18: responses: has the length -1"),
        (response(1), 18, bytes(10) + b"\xff\xff\xff\xff\xff\x01", "unsigned varint is longer than 5 bytes"),
        (response(1), 18, bytes(10) + b"\xff\xff\xff\xff\x0f", "unsigned varint 4294967295 is above"),
        (response(0), 0, b"\0\0\0\1\xff\xfe", "ProduceResponse v0: responses.name: has the length -2"),
    ],
)
def test_impossible_length_is_refused(message: Message[Row], version: int, data: bytes, said: str) -> None:
    """In one chunk and cut at every byte; the error names the field."""
    for cuts in ([], list(range(1, len(data)))):
        with pytest.raises(WireError, match=said):
            walk(Skim(message, version, "responses"), data, cuts)


def test_runs_of_fixed_fields_are_one_step() -> None:
    """What makes it fast: four steps for a partition of a Fetch response, tags included, if it has no extras."""
    steps = program(response(1), NEWEST_FETCH, "responses")
    assert len(steps) == 20
    assert max(step.before for step in steps) == 30


def test_unknown_version_is_refused() -> None:
    """As by the table itself."""
    with pytest.raises(WireError, match="no such version"):
        Skim(request(3), 99, "topics")
