"""One file says what Kordon does with a Kafka API: the handlers of both views, and where they stand."""

import re
from typing import Any
from unittest.mock import MagicMock

import pytest

from kordon.codecs import apis
from kordon.proxy.core import verdicts
from kordon.proxy.handlers.handlers import Handlers
from kordon.proxy.handlers.tables import physical_handlers, virtual_handlers

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
def handlers(request: pytest.FixtureRequest) -> Handlers:
    """Returns the handlers of a view."""
    worker: Any = MagicMock()
    worker.topics = ()  # nothing is managed
    return VIEWS[request.param](worker)


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


def routes_of(key: int) -> list[verdicts.Route]:
    """Returns the rows of an api key, private ones included."""
    private = verdicts.private_route(key, 0)
    return [each for each in verdicts.ROUTES if each.api.key == key] or ([private] if private is not None else [])
