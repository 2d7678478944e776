"""`kordon topics apply`: what is done for a file is worked out before anything is done."""

import re
from pathlib import Path
from typing import Any

import pytest

from kordon.proxy.commands.model_file import FileUnusable, load_model
from kordon.proxy.commands.topics_apply import CannotApply, steps_of
from kordon.proxy.commands.topics_client import PartitionCounts, TopicNow
from kordon.proxy.commands.topics_file import WantedTopic, WantedTopics

KEPT = {"retention.ms": ("1000", True), "cleanup.policy": ("delete", False), "retention.bytes": ("-1", False)}
MANAGED = TopicNow(12, PartitionCounts(virtual=12, physical=4, initial=3), {**KEPT, "kordon.janitor": ("false", False)})
ORDINARY = TopicNow(3, None, KEPT)


def wanted(**fields: Any) -> WantedTopic:
    """A topic of a file: managed, with 4 of 12 partitions, unless `fields` say otherwise."""
    return WantedTopic.model_validate({"name": "orders", "partitions": 4, "virtual_partitions": 12, **fields})


def texts(topic: WantedTopic, now: TopicNow | None, **options: bool) -> list[str]:
    """What is done, in its order."""
    return [step.text for step in steps_of(topic, now, **options)]


@pytest.mark.parametrize(
    ("topic", "now", "expected"),
    [
        (wanted(), MANAGED, []),
        (wanted(configs={"retention.ms": 1000, "cleanup.policy": "delete"}), MANAGED, []),
        (wanted(configs={"retention.ms": "1e3", "retention.bytes": None}), MANAGED, []),
        (wanted(partitions=6), MANAGED, ["grow from 4 to 6 partitions: 4 of 12 virtual partitions move"]),
        (wanted(partitions=3), MANAGED, ["shrink from 4 to 3 partitions: 2 of 12 virtual partitions move"]),
        (wanted(configs={"retention.ms": 2000}), MANAGED, ["set retention.ms=2000"]),
        (wanted(configs={"min.insync.replicas": 2}), MANAGED, ["set min.insync.replicas=2"]),
        (wanted(partitions=3), ORDINARY, ["manage with 12 virtual partitions"]),
        (
            wanted(partitions=6, configs={"kordon.janitor": True, "enable.ordered.delivery": False, "a": "b"}),
            ORDINARY,
            [
                "manage with 12 virtual partitions",
                "set enable.ordered.delivery=false",
                "set a=b",
                "grow from 3 to 6 partitions: 6 of 12 virtual partitions move",
            ],
        ),
        (wanted(partitions=3, virtual_partitions=None), ORDINARY, []),
        (
            wanted(initial_partitions=3, replicas=2, configs={"retention.ms": 5, "b": None}),
            None,
            [
                "create with 3 partitions, 12 virtual partitions, 2 replicas, retention.ms=5",
                "grow from 3 to 4 partitions: 2 of 12 virtual partitions move",
            ],
        ),
        (wanted(partitions=1, virtual_partitions=None), None, ["create with 1 partition"]),
    ],
)
def test_what_differs_is_done_and_nothing_else(topic: WantedTopic, now: TopicNow | None, expected: list[str]) -> None:
    """So a second run has nothing to do, and configs that the file does not name stay."""
    assert texts(topic, now) == expected


def test_a_topic_has_its_janitor_before_it_is_compacted() -> None:
    """Kordon refuses it otherwise."""
    topic = wanted(configs={"cleanup.policy": "compact", "kordon.janitor": True})
    assert texts(topic, MANAGED, allows_deletion=True) == ["set kordon.janitor=true", "set cleanup.policy=compact"]


@pytest.mark.parametrize(
    ("topic", "now", "says"),
    [
        (wanted(virtual_partitions=24), MANAGED, "it has 12 virtual partitions, and that number never changes"),
        (wanted(virtual_partitions=None), MANAGED, "it is managed"),
        (wanted(partitions=13), MANAGED, "13 partitions are more than the 12 virtual ones"),
        (wanted(partitions=2), MANAGED, "the least there can be"),
        (wanted(initial_partitions=4), MANAGED, "it began with 3 partitions"),
        (wanted(partitions=4, virtual_partitions=None), ORDINARY, "would break the order of its keys"),
        (wanted(partitions=2, virtual_partitions=None), ORDINARY, "brokers cannot take any away"),
        (wanted(partitions=3, virtual_partitions=10), ORDINARY, "not 3 times a power of two"),
        (wanted(partitions=5, virtual_partitions=12), None, "not 5 times a power of two"),
        (wanted(configs={"retention.ms": 999}), MANAGED, "delete records earlier"),
        (wanted(configs={"retention.ms": None}), MANAGED, "delete records earlier"),
        (wanted(configs={"retention.bytes": 10**9}), MANAGED, "delete records earlier"),
        (wanted(configs={"cleanup.policy": "compact,delete"}), MANAGED, "delete records earlier"),
    ],
)
def test_what_cannot_be_or_loses_records_is_refused(topic: WantedTopic, now: TopicNow | None, says: str) -> None:
    """Before anybody is asked to do anything."""
    with pytest.raises(CannotApply, match=says):
        steps_of(topic, now)


GOOD = "topics: [{name: orders, partitions: 3}]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "topics.yaml: options are expected here"),
        (b"\xff\xfe\xff", "YAML"),
        (b"a: [", "topics.yaml:1:5"),
        (b"[" * 100_000, "YAML"),
        (b"topics: []", "at least 1"),
        (b"topics: 5", "topics: a list is expected here"),
        (b"topics: [{name: orders}]", "topics.0.partitions: this option is missing"),
        (b"topics: [{name: orders, partitions: 3, vitual: 4}]", "topics.0.vitual: there is no such option"),
        (b"topics: [{name: a, partitions: 3}, {name: a, partitions: 4}]", "a is listed twice"),
        (b"topics: [{name: a, partitions: 3, partitions: 4}]", "partitions is given twice"),
        (b"topics: [{name: __kordon.layouts, partitions: 1}]", "internal topic"),
        (b"topics: [{name: 'a b', partitions: 1}]", "topics.0.name"),
        (b"topics: [{name: a, partitions: 99999}]", "topics.0.partitions"),
        (b"topics: [{name: a, partitions: 1, configs: {kordon.janitor: true}}]", "give the topic virtual_partitions"),
        (
            b"topics: [{name: a, partitions: 1, virtual_partitions: 2, configs: {kordon.x: 1}}]",
            "cannot be set as a config",
        ),
        (b"topics: [{name: a, partitions: 1, configs: {cleanup.policy: [compact]}}]", "valid string"),
        (b"a: &a [1]\nb: *a", "topics.yaml:2:4: aliases"),
        (b"topics: [{name: a, partitions: 1, configs: {b: 2026-13-45}}]", "not readable as YAML"),
        (b"topics: " + b"x" * 1_100_000, "bytes"),
    ],
)
def test_a_file_that_says_no_topics_is_refused(text: bytes, says: str, tmp_path: Path) -> None:
    """With the place, whatever it holds."""
    file = tmp_path / "topics.yaml"
    file.write_bytes(text)
    with pytest.raises(FileUnusable, match=says):
        load_model(file, WantedTopics)


def test_a_file_is_read(tmp_path: Path) -> None:
    """What people write in YAML is what brokers call it."""
    file = tmp_path / "topics.yaml"
    file.write_text(GOOD.replace("}]", ", configs: {a: true, b: 5, c: 0.5, d: null, e: delete}}]"))
    (topic,) = load_model(file, WantedTopics).topics
    assert topic.configs == {"a": "true", "b": "5", "c": "0.5", "d": None, "e": "delete"}


def test_the_manuals_file_is_read_and_can_be_applied(tmp_path: Path) -> None:
    """What is printed beside it is what is done."""
    manual = (Path(__file__).parents[2] / "docs" / "managing.md").read_text()
    (text,) = re.findall(r"<!-- file: topics.yaml -->\n```yaml\n(.*?)```", manual, flags=re.DOTALL)
    file = tmp_path / "topics.yaml"
    file.write_text(text)
    for step in (step for topic in load_model(file, WantedTopics).topics for step in steps_of(topic, None)):
        assert f"\n{step.topic}: {step.text}\n" in manual
