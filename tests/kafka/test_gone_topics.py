"""Which topics were deleted: a broker that knows nothing yet is no witness."""

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs.row import Row
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.topics_admin import TopicsAdmin


class JustStarted:
    """A broker with ZooKeeper whose controller has told it nothing yet."""

    leaders = None

    async def metadata(self, _: Sequence[str]) -> Row:
        return Row(brokers=[], topics=[])


async def test_no_topic_is_gone_because_a_broker_knows_no_brokers_yet() -> None:
    """Whoever believed that let all managed topics go."""
    admin = TopicsAdmin(cast("Any", JustStarted()))
    with pytest.raises(UpstreamUnavailable, match="knows no brokers yet"):
        await admin.gone({"orders": UUID(int=1)})
