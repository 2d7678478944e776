"""What of an admin request is Kordon's, what goes to the broker, and what is refused."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.messages import request, response
from kordon.codecs.row import Row
from kordon.proxy.core import verdicts
from kordon.proxy.core.errors import NoCommonVersion
from kordon.proxy.handlers.alter_configs import AlterConfigs
from kordon.proxy.handlers.create_partitions import CreatePartitions
from kordon.proxy.handlers.create_topics import CreateTopics
from kordon.proxy.handlers.delete_topics import DeleteTopics
from kordon.proxy.handlers.incremental_alter_configs import IncrementalAlterConfigs
from kordon.proxy.handlers.topic_wishes import TopicWishes, WishedApi
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.source_records import SourceWish
from kordon.proxy.ordering.wishes import Delete, Manage, OrderDelivery, Resize, SetShare, Unmanage, Wish
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.handled import held
from kordon.testing.messages.as_read import as_read

UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, INVALID_PARTITIONS, INVALID_CONFIG = 3, 17, 37, 40
TOPIC_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION, UNKNOWN_TOPIC_ID = 29, 35, 100
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
REAL_ID, FACE_ID, OTHER_ID = UUID(int=1), UUID(int=2), UUID(int=3)
HANDLERS: list[type[WishedApi[Any, Any]]] = [
    CreateTopics,
    DeleteTopics,
    CreatePartitions,
    AlterConfigs,
    IncrementalAlterConfigs,
]
VERSIONS = [
    (key, version) for key in sorted(each.key for each in HANDLERS) for version in verdicts.API_BY_KEY[key].versions
]
CHANGING = [each for each in VERSIONS if each[0] in {apis.ALTER_CONFIGS, apis.INCREMENTAL_ALTER}]


class Asking:
    """An admin client behind a proxy that manages `orders`, with 2 partitions and 8 virtual ones."""

    def __init__(self, api_key: int, version: int) -> None:
        self.api_key, self.version = api_key, version
        self.wishes: list[Wish | SourceWish] = []
        self.fails: Exception | None = None
        self.topics = ManagedTopics()
        self.topics.add(ManagedTopic(Layout.created("orders", UUID(int=1), 2, 8), FACE_ID))
        (self.handler,) = (each(self._fulfil) for each in HANDLERS if each.key == api_key)

    async def _fulfil(self, wish: Wish | SourceWish) -> OutcomeRecord:
        self.wishes.append(wish)
        if self.fails is not None:
            raise self.fails
        return OutcomeRecord(0, "")

    def sends(self, **fields: Any) -> Any:
        """Sends a request; returns what the broker is asked, None for nothing; `asked` is what Kordon takes."""
        table = request(self.api_key)
        decision = self.handler.decide(held(self.topics, self.api_key, self.version, fields))
        assert decision is None or isinstance(decision, TopicWishes)
        self.asked = decision
        if self.asked is None:
            return as_read(table, self.version, fields)
        return None if self.asked.rest is None else table.parse(self.version, self.asked.rest)

    async def gets(self, part: dict[str, Any] | None = None) -> dict[str, int]:
        """Returns the error codes of the answer by name; `part` is what the broker has answered."""
        rows = await self.rows(part)
        return {row.name if "name" in row else row.resource_name: row.error_code for row in rows}

    async def rows(self, part: dict[str, Any] | None) -> list[Any]:
        """Returns the rows of the answer; `part` is what the broker has answered."""
        assert self.asked is not None
        table = response(self.api_key)
        broker = None if part is None else as_read(table, self.version, part)
        answer = as_read(table, self.version, await self.handler.fulfil(self.asked, broker))
        return next(list(answer[name]) for name in ("topics", "responses", "results") if name in answer)


def configs(version: int, name: str, told: dict[str, str | None], operation: int = SET) -> dict[str, Any]:
    """Returns the row of a topic whose configs are to be changed."""
    rows = [{"name": key, "value": value, "config_operation": operation} for key, value in told.items()]
    return {"resource_type": TOPIC, "resource_name": name, "configs": rows}


@pytest.mark.parametrize(("api_key", "version"), CHANGING)
async def test_a_config_has_an_existing_topic_managed(api_key: int, version: int) -> None:
    """The broker does not know it and does not get it; other configs of the same topic go on."""
    asking = Asking(api_key, version)
    row = configs(version, "other", {"kordon.virtual.partitions": "8", "retention.ms": "1"})
    sent = asking.sends(resources=[row])
    assert [each.name for each in sent.resources[0].configs] == ["retention.ms"]
    assert await asking.gets({"responses": [{"resource_type": TOPIC, "resource_name": "other"}]}) == {"other": 0}
    assert asking.wishes == [Manage("other", 8)]


@pytest.mark.parametrize(("api_key", "version"), CHANGING)
async def test_brokers_that_are_too_old_are_the_reason(api_key: int, version: int) -> None:
    """Whoever asks hears which brokers can, and tries nothing again."""
    asking = Asking(api_key, version)
    asking.sends(resources=[configs(version, "other", {"kordon.virtual.partitions": "8"})])
    asking.fails = NoCommonVersion("no common version of DescribeCluster")
    (row,) = await asking.rows(None)
    assert row.error_code == UNSUPPORTED_VERSION
    assert row.error_message.startswith("no common version of DescribeCluster; managed topics")


@pytest.mark.parametrize(("api_key", "version"), CHANGING)
@pytest.mark.parametrize("told", [{"kordon.layout.epoch": "1"}, {"kordon.virtual.partitions": "16"}])
async def test_what_cannot_be_set_keeps_the_rest_of_its_topic_from_being_changed(
    api_key: int, version: int, told: dict[str, str]
) -> None:
    """A broker changes all configs of a topic or none."""
    asking = Asking(api_key, version)
    assert asking.sends(resources=[configs(version, "orders", {**told, "retention.ms": "1"})]) is None
    assert await asking.gets() == {"orders": INVALID_CONFIG}
    assert asking.wishes == []


@pytest.mark.parametrize("version", verdicts.API_BY_KEY[apis.ALTER_CONFIGS].versions)
async def test_configs_replaced_as_a_whole_leave_a_topic_managed(version: int) -> None:
    """Tools that write back what they read change nothing; nor do those that leave it out."""
    asking = Asking(apis.ALTER_CONFIGS, version)
    sent = asking.sends(resources=[configs(version, "orders", {"kordon.virtual.partitions": "8"})])
    assert [(row.resource_name, len(row.configs)) for row in sent.resources] == [("orders", 0)]
    assert await asking.gets({"responses": [{"resource_type": TOPIC, "resource_name": "orders"}]}) == {"orders": 0}
    assert asking.wishes == []
    asking.sends(resources=[configs(version, "orders", {"retention.ms": "1"})])
    assert asking.asked is None


@pytest.mark.parametrize("version", verdicts.API_BY_KEY[apis.INCREMENTAL_ALTER].versions)
@pytest.mark.parametrize("only_checked", [False, True])
async def test_deleting_the_config_lets_a_topic_go(version: int, *, only_checked: bool) -> None:
    """Unless it is only to be checked."""
    asking = Asking(apis.INCREMENTAL_ALTER, version)
    row = configs(version, "orders", {"kordon.virtual.partitions": None}, DELETE)
    assert asking.sends(resources=[row], validate_only=only_checked) is None
    assert await asking.gets() == {"orders": 0}
    assert asking.wishes == ([] if only_checked else [Unmanage("orders")])


@pytest.mark.parametrize("handler", [CreatePartitions, IncrementalAlterConfigs])
async def test_what_is_only_to_be_checked_is_judged_and_not_wished(handler: type[WishedApi[Any, Any]]) -> None:
    """Whoever asks is told of a refusal as if it had been wished."""
    asking, checked = Asking(handler.key, 1), list[Wish | SourceWish]()

    async def check(wish: Wish | SourceWish) -> OutcomeRecord:
        checked.append(wish)
        return OutcomeRecord(INVALID_CONFIG, "cannot be")

    asking.handler = handler(asking._fulfil, check)
    if handler is CreatePartitions:
        asking.sends(topics=[{"name": "orders", "count": 5}], validate_only=True)
    else:
        row = configs(1, "other", {"kordon.virtual.partitions": "8"})
        asking.sends(resources=[row], validate_only=True)
    (row,) = await asking.rows(None)
    assert (row.error_code, row.error_message) == (INVALID_CONFIG, "cannot be")
    assert (len(checked), asking.wishes) == (1, [])


@pytest.mark.parametrize("version", verdicts.API_BY_KEY[apis.CREATE_PARTITIONS].versions)
async def test_a_count_of_partitions_is_a_wish(version: int) -> None:
    """Up and down; what cannot be is refused, and other topics go on."""
    asking = Asking(apis.CREATE_PARTITIONS, version)
    sent = asking.sends(topics=[{"name": "orders", "count": 5}, {"name": "other", "count": 5}])
    assert [row.name for row in sent.topics] == ["other"]
    assert await asking.gets({"results": [{"name": "other"}]}) == {"orders": 0, "other": 0}
    assert asking.wishes == [Resize("orders", 5)]
    assert asking.sends(topics=[{"name": "orders", "count": 9}]) is None
    assert await asking.gets() == {"orders": INVALID_PARTITIONS}


@pytest.mark.parametrize("version", verdicts.API_BY_KEY[apis.DELETE_TOPICS].versions)
async def test_a_managed_topic_is_deleted_with_what_belongs_to_it(version: int) -> None:
    """By its name, which is what the broker is asked by."""
    asking = Asking(apis.DELETE_TOPICS, version)
    sent = asking.sends(**({"topic_names": ["orders"]} if version < 6 else {"topics": [{"name": "orders"}]}))
    assert ([row.name for row in sent.topics] if version >= 6 else list(sent.topic_names)) == ["orders"]
    assert await asking.gets({"responses": [{"name": "orders", "topic_id": REAL_ID}]}) == {"orders": 0}
    assert asking.wishes == [Delete("orders")]


@pytest.mark.parametrize("topic_id", [FACE_ID, REAL_ID], ids=["the id that clients know", "the id of before"])
async def test_a_managed_topic_is_deleted_by_an_id(topic_id: UUID) -> None:
    """The broker is asked by the one that it knows, and the client told the one that it said: Java looks for that."""
    asking = Asking(apis.DELETE_TOPICS, 6)
    sent = asking.sends(topics=[{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": OTHER_ID}])
    assert [(row.name, row.topic_id) for row in sent.topics] == [(None, REAL_ID), (None, OTHER_ID)]
    unknown = {"name": None, "topic_id": OTHER_ID, "error_code": UNKNOWN_TOPIC_ID}
    rows = await asking.rows({"responses": [{"name": "orders", "topic_id": REAL_ID}, unknown]})
    assert [(row.name, row.topic_id, row.error_code) for row in rows] == [
        ("orders", topic_id, 0),
        (None, OTHER_ID, UNKNOWN_TOPIC_ID),
    ]
    assert asking.wishes == [Delete("orders")]


@pytest.mark.parametrize("topic_id", [FACE_ID, REAL_ID])
async def test_who_may_not_delete_a_topic_is_not_told_its_name(topic_id: UUID) -> None:
    """The broker's row has none, and nothing comes of it."""
    asking = Asking(apis.DELETE_TOPICS, 6)
    asking.sends(topics=[{"name": None, "topic_id": topic_id}])
    denied = {"name": None, "topic_id": REAL_ID, "error_code": TOPIC_AUTHORIZATION_FAILED}
    (row,) = await asking.rows({"responses": [denied]})
    assert (row.name, row.topic_id, row.error_code) == (None, topic_id, TOPIC_AUTHORIZATION_FAILED)
    assert asking.wishes == []


def test_a_name_and_an_id_together_are_for_the_broker_to_refuse() -> None:
    """Nothing of Kordon's comes of it."""
    asking = Asking(apis.DELETE_TOPICS, 6)
    sent = asking.sends(topics=[{"name": "orders", "topic_id": OTHER_ID}])
    assert [(row.name, row.topic_id) for row in sent.topics] == [("orders", OTHER_ID)]
    assert asking.asked is None


@pytest.mark.parametrize("version", verdicts.API_BY_KEY[apis.CREATE_TOPICS].versions)
async def test_a_topic_is_created_managed(version: int) -> None:
    """The broker creates it without Kordon's config; impossible wishes create nothing."""
    asking = Asking(apis.CREATE_TOPICS, version)
    row = {"name": "new", "num_partitions": 3, "configs": [{"name": "kordon.virtual.partitions", "value": "12"}]}
    sent = asking.sends(topics=[row])
    assert [list(each.configs) for each in sent.topics] == [[]]
    assert await asking.gets({"topics": [{"name": "new"}]}) == {"new": 0}
    assert asking.wishes == [Manage("new", 12)]
    row["configs"] = [{"name": "kordon.virtual.partitions", "value": "7"}]
    assert asking.sends(topics=[row]) is None
    assert await asking.gets() == {"new": INVALID_PARTITIONS}


@pytest.mark.parametrize("version", verdicts.API_BY_KEY[apis.INCREMENTAL_ALTER].versions)
@pytest.mark.parametrize(
    ("value", "operation", "wish"),
    [
        ("false", SET, OrderDelivery("orders", ordered=False)),
        (" TRUE ", SET, OrderDelivery("orders", ordered=True)),
        (None, DELETE, OrderDelivery("orders", ordered=True)),
    ],
)
async def test_ordered_delivery_is_set_as_brokers_set_a_boolean(
    version: int, value: str | None, operation: int, wish: OrderDelivery
) -> None:
    """KIP-253's config, with the number of virtual partitions that the topic has beside it or not."""
    asking = Asking(apis.INCREMENTAL_ALTER, version)
    told = configs(version, "orders", {"enable.ordered.delivery": value}, operation)
    told["configs"] += configs(version, "orders", {"kordon.virtual.partitions": "8"})["configs"]
    assert asking.sends(resources=[told]) is None
    assert await asking.gets() == {"orders": 0}
    assert asking.wishes == [wish]


async def test_what_share_groups_are_promised_is_set_word_by_word() -> None:
    """Both at once or one; what is so already needs no change, and a word that nobody knows is refused."""
    asking = Asking(apis.INCREMENTAL_ALTER, 1)
    told = configs(1, "orders", {"kordon.share.order": "Virtual", "kordon.share.poison": "block"}, SET)
    assert asking.sends(resources=[told]) is None
    assert await asking.gets() == {"orders": 0}
    assert asking.wishes == [SetShare("orders", "virtual", "block")]
    asking.sends(resources=[configs(1, "orders", {"kordon.share.order": None}, DELETE)])
    await asking.gets()
    assert asking.wishes[1:] == [SetShare("orders", "key", None)]
    asking.sends(resources=[configs(1, "orders", {"kordon.share.order": "key"}, SET)])
    assert await asking.gets() == {"orders": 0}
    for value, operation in (("keys", SET), ("key", 2)):
        asking.sends(resources=[configs(1, "orders", {"kordon.share.order": value, "a": "b"}, operation)])
        assert await asking.gets() == {"orders": INVALID_CONFIG}, value
    assert len(asking.wishes) == 2


@pytest.mark.parametrize(("value", "operation"), [("maybe", SET), ("", SET), ("false", 2), ("false", 3)])
async def test_what_is_no_boolean_is_refused(value: str, operation: int) -> None:
    """With the code and nearly the words of brokers."""
    asking = Asking(apis.INCREMENTAL_ALTER, 1)
    row = configs(1, "orders", {"enable.ordered.delivery": value, "retention.ms": "1"}, operation)
    assert asking.sends(resources=[row]) is None
    assert await asking.gets() == {"orders": INVALID_CONFIG}
    assert asking.wishes == []


async def test_an_ordinary_topic_has_no_ordered_delivery() -> None:
    """The broker is asked, and refuses a config that it does not know."""
    asking = Asking(apis.INCREMENTAL_ALTER, 1)
    asking.sends(resources=[configs(1, "other", {"enable.ordered.delivery": "false"})])
    assert asking.asked is None


@pytest.mark.parametrize(("told", "ordered"), [({}, True), ({"enable.ordered.delivery": "false"}, False)])
async def test_a_topic_is_created_with_ordered_delivery_or_without(told: dict[str, str], *, ordered: bool) -> None:
    """The broker gets neither of the configs that it does not know."""
    asking = Asking(apis.CREATE_TOPICS, 7)
    rows = [{"name": key, "value": value} for key, value in {**told, "kordon.virtual.partitions": "6"}.items()]
    sent = asking.sends(topics=[{"name": "fresh", "num_partitions": 3, "configs": rows}])
    assert [list(row.configs) for row in sent.topics] == [[]]
    assert await asking.gets({"topics": [{"name": "fresh"}]}) == {"fresh": 0}
    assert asking.wishes == [Manage("fresh", 6, ordered_delivery=ordered)]


@pytest.mark.parametrize("name", ["layouts", "groups", "decisions", "findings"])
async def test_a_topic_whose_face_would_be_kordons_own_is_neither_made_nor_managed(name: str) -> None:
    """The layouts of all topics, or the findings of the auditor, would be written into its face."""
    asking, virtual = Asking(apis.CREATE_TOPICS, 7), [{"name": "kordon.virtual.partitions", "value": "4"}]
    row = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": virtual}
    assert asking.sends(topics=[row], timeout_ms=1000, validate_only=False) is None
    assert await asking.gets() == {name: INVALID_TOPIC}
    asking = Asking(apis.INCREMENTAL_ALTER, 1)
    asking.sends(resources=[configs(1, name, {"kordon.virtual.partitions": "4"})], validate_only=False)
    assert await asking.gets() == {name: INVALID_TOPIC}
    assert asking.wishes == []


@pytest.mark.parametrize("version", [5, 7])
async def test_the_answer_to_a_creation_tells_what_clients_see(version: int) -> None:
    """V, not the partitions that the broker has made; of other topics what the broker says."""
    asking = Asking(apis.CREATE_TOPICS, version)
    config = {"name": "kordon.virtual.partitions", "value": "6"}
    asking.sends(topics=[{"name": "fresh", "num_partitions": 3, "configs": [config]}, {"name": "plain"}])
    assert asking.asked is not None
    rows = [{"name": "fresh", "num_partitions": 3}, {"name": "plain", "num_partitions": 3}]
    broker = as_read(response(apis.CREATE_TOPICS), version, {"topics": rows})
    answer = await asking.handler.fulfil(asking.asked, broker)
    assert {row["name"]: row["num_partitions"] for row in answer.get("topics", list[Row]())} == {"fresh": 6, "plain": 3}


async def test_topics_of_one_request_are_managed_side_by_side() -> None:
    """Each waits for all proxies to know of it: a hundred in a row would take longer than an admin client waits."""
    asking, names = Asking(apis.CREATE_TOPICS, 7), [f"topic-{number}" for number in range(100)]
    together, most = 0, 0

    async def fulfil(_: Wish | SourceWish) -> OutcomeRecord:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0)
        together -= 1
        return OutcomeRecord(0, "")

    asking.topics, asking.handler = ManagedTopics(), CreateTopics(fulfil)
    managed = [{"name": "kordon.virtual.partitions", "value": "8"}]
    asking.sends(topics=[{"name": name, "num_partitions": 2, "configs": managed} for name in names])
    created = {"topics": [{"name": name, "num_partitions": 2} for name in names]}
    assert await asking.gets(created) == dict.fromkeys(names, 0)
    assert 1 < most < len(names)
