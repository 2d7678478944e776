"""One file says what Kordon does with a Kafka API: the handlers of both views, and where they stand."""

import re
from typing import Any
from unittest.mock import MagicMock
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.proxy.core import verdicts
from kordon.proxy.handlers.handlers import Handlers
from kordon.proxy.handlers.individual_offset_commit import IndividualOffsetCommit
from kordon.proxy.handlers.tables import physical_handlers, virtual_handlers
from kordon.proxy.ordering.source_records import SourceTopic
from kordon.proxy.own_topics.compacted_topic import INDIVIDUAL_COMMITS
from kordon.proxy.own_topics.individual_commits import IndividualCommits
from kordon.proxy.topics.managed_topics import ManagedTopics

VIEWS = {"virtual": virtual_handlers, "physical": physical_handlers}
WANTED_ALWAYS = {
    apis.API_VERSIONS,
    apis.CONSUMER_GROUP_HEARTBEAT,
    apis.CREATE_TOPICS,
    apis.DELETE_TOPICS,
    apis.CREATE_PARTITIONS,
    apis.ALTER_CONFIGS,
    apis.INCREMENTAL_ALTER,
    apis.INIT_PRODUCER_ID,
}


@pytest.fixture(params=VIEWS)
def view(request: pytest.FixtureRequest) -> Any:
    """Returns what makes the handlers of a view."""
    return VIEWS[request.param]


@pytest.fixture
def worker() -> Any:
    """Returns one that has nothing managed, takes no individual commits, and serves no share groups."""
    made = MagicMock()
    made.topics = ManagedTopics()
    made.individual_commits = MagicMock(is_served=False)
    made.share_groups = MagicMock(is_served=False)
    return made


@pytest.fixture
def handlers(view: Any, worker: Any) -> Handlers:
    """Returns the handlers of a view."""
    made: Handlers = view(worker)
    return made


def test_a_handler_stands_in_the_file_that_is_named_like_its_api(handlers: Handlers) -> None:
    """Whoever asks what happens to ListOffsets opens one file."""
    for key, handler in handlers.by_key.items():
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", verdicts.API_BY_KEY[key].name).lower()
        assert words.removesuffix("_for_partitions") == type(handler).__module__.rpartition(".")[2]


def test_while_nothing_is_managed_hardly_any_request_is_held(handlers: Handlers) -> None:
    """Those are by which topics come to be managed, what a client says but once, and what only the dialect has."""
    routes = [route for key in handlers.by_key for route in routes_of(key)]
    wanted = {route.api.key for route in routes if handlers.wants(route)}
    private = {key for key in handlers.by_key if verdicts.private_route(key, 0) is not None}
    assert wanted == WANTED_ALWAYS | private


def test_individual_commits_have_what_is_asked_of_them_held(view: Any, worker: Any) -> None:
    """Of any topic. Their handlers leave all other requests to those that stand there without them."""
    without = view(worker).by_key
    worker.individual_commits = MagicMock(is_served=True)
    handlers: Handlers = view(worker)
    keys = {apis.OFFSET_COMMIT, apis.OFFSET_FETCH}
    assert all(handlers.wants(route) for key in keys for route in routes_of(key))
    found: dict[int, Any] = dict(handlers.by_key)
    changed = {key for key in found if type(found[key]) is not type(without.get(key))}
    assert changed == keys
    assert all(type(found[key].stock) is type(without[key]) for key in keys & without.keys())


def test_share_groups_are_served_to_stock_clients_where_that_is_asked_for(worker: Any) -> None:
    """What their members subscribe to is looked at always: they say it but once. The dialect has no share groups."""
    without = virtual_handlers(worker).by_key
    worker.share_groups = MagicMock(is_served=True)
    handlers = virtual_handlers(worker)
    assert handlers.by_key.keys() - without.keys() == {
        apis.SHARE_FETCH,
        apis.SHARE_ACKNOWLEDGE,
        apis.DESCRIBE_SHARE_GROUP_OFFSETS,
        apis.ALTER_SHARE_GROUP_OFFSETS,
        apis.DELETE_SHARE_GROUP_OFFSETS,
        apis.DELETE_GROUPS,
    }
    assert all(handlers.wants(route) for route in routes_of(apis.SHARE_GROUP_HEARTBEAT))
    assert apis.SHARE_FETCH not in physical_handlers(worker).by_key


def test_commits_are_looked_at_while_there_are_source_topics(view: Any, worker: Any) -> None:
    """And records are; what else is done with either stays what it was."""
    handlers: Handlers = view(worker)
    before, keys = handlers.by_key, {apis.PRODUCE, apis.OFFSET_COMMIT, apis.TXN_OFFSET_COMMIT}
    worker.topics.sources.know({"db1": SourceTopic(UUID(int=7), 1)})
    assert all(handlers.wants(route) for key in keys for route in routes_of(key))
    changed = {key for key, handler in handlers.by_key.items() if handler is not before.get(key)}
    of_owners = {apis.SYNC_GROUP, apis.CONSUMER_GROUP_HEARTBEAT}
    assert changed == keys - {apis.PRODUCE} | of_owners
    worker.topics.sources.know({})
    assert handlers.by_key is before
    assert not any(handlers.wants(route) for key in keys for route in routes_of(key))


def test_commits_are_looked_at_while_other_proxies_take_individual_ones(view: Any, worker: Any) -> None:
    """And this one refuses them; with source topics there as well, both are kept."""
    worker.individual_commits = commits = IndividualCommits(worker.brokers, "w", is_served=False)
    handlers: Handlers = view(worker)
    before = handlers.by_key
    commits.look({INDIVIDUAL_COMMITS.name})
    assert all(handlers.wants(route) for route in routes_of(apis.OFFSET_COMMIT))
    assert type(handlers.by_key[apis.OFFSET_COMMIT]) is IndividualOffsetCommit
    worker.topics.sources.know({"db1": SourceTopic(UUID(int=7), 1)})
    with_sources: Any = handlers.by_key[apis.OFFSET_COMMIT]
    assert type(with_sources.stock) is IndividualOffsetCommit
    worker.topics.sources.know({})
    commits.look(set())
    assert handlers.by_key is before
    assert not any(handlers.wants(route) for route in routes_of(apis.OFFSET_COMMIT))


def routes_of(key: int) -> list[verdicts.Route]:
    """Returns the rows of an api key, private ones included."""
    private = verdicts.private_route(key, 0)
    return [each for each in verdicts.ROUTES if each.api.key == key] or ([private] if private is not None else [])
