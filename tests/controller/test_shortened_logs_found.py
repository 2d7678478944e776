"""How a log that got shorter than its layout is found: new leaders say where the cut's epoch ends (BEYOND-LOSS)."""

from collections.abc import Iterable, Mapping
from typing import Any, cast
from uuid import UUID

from kordon.proxy.controller.shortened_logs import ShortenedLogs
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.leaders import Leader, TopicLeaders
from kordon.proxy.ordering.layout import Layout

CREATED = Layout.created("orders", UUID(int=1), 1, 2)
GROWN = CREATED.changed(CREATED.next_epoch(2), {0: 200, 1: 0}, leader_epochs={0: 5, 1: 0})


class Admin:
    """Leaders with logs."""

    def __init__(self) -> None:
        self.leaders = {0: Leader(1, 5), 1: Leader(2, 0)}
        self.ends: dict[int, int] = {0: 250, 1: 30}
        """Where the epochs that are asked for end."""
        self.asked: list[dict[int, int]] = []
        self.topics: list[str] = []
        """Whose leaders were asked for."""
        self.is_reachable = True

    async def leaders_of(self, topics: Iterable[str]) -> dict[str, TopicLeaders]:
        self.topics += topics
        return dict.fromkeys(topics, TopicLeaders(UUID(int=1), self.leaders))

    async def epoch_ends(self, topic: str, epochs: Mapping[int, int]) -> dict[int, int]:
        self.asked.append(dict(epochs))
        if not self.is_reachable:
            raise UpstreamUnavailable("no leader")
        return {q: self.ends[q] for q in epochs}


class Looking:
    """A look at one topic, with what came of it."""

    def __init__(self) -> None:
        self.admin = Admin()
        self.layout = GROWN
        self.found: list[Mapping[int, int]] = []
        self.logs = ShortenedLogs(cast("Any", self.admin), lambda: [self.layout], lambda _, short: self._find(short))

    def _find(self, shortened: Mapping[int, int]) -> None:
        self.found.append(shortened)


async def test_a_topic_that_has_never_been_cut_is_not_looked_at() -> None:
    """No log can be too short for it; so a cluster of many topics is not asked for all of them each second."""
    looking = Looking()
    looking.layout = CREATED
    await looking.logs.look()
    assert (looking.admin.topics, looking.admin.asked) == ([], [])
    looking.layout = GROWN
    await looking.logs.look()
    assert looking.admin.topics == ["orders"]


async def test_a_leader_whose_log_is_long_enough_is_asked_once() -> None:
    """What a look costs while nothing happens is one question for the leaders of all topics."""
    looking = Looking()
    for _ in range(3):
        await looking.logs.look()
    assert (looking.admin.asked, looking.found) == ([{0: 5, 1: 0}], [])


async def test_a_new_leader_that_lacks_what_stood_before_the_cut_is_found() -> None:
    """The epoch in which the cut was read ends below it, however much was written there since."""
    looking = Looking()
    await looking.logs.look()
    looking.admin.leaders, looking.admin.ends = looking.admin.leaders | {0: Leader(2, 6)}, {0: 100}
    await looking.logs.look()
    assert (looking.admin.asked[1:], looking.found) == ([{0: 5}], [{0: 100}])


async def test_a_loss_is_told_until_the_layout_knows() -> None:
    """A change may be under way that has to end first; what is mended is not told again."""
    looking = Looking()
    looking.admin.leaders, looking.admin.ends[0] = looking.admin.leaders | {0: Leader(2, 6)}, 100
    await looking.logs.look()
    await looking.logs.look()
    assert looking.found == [{0: 100}] * 2
    looking.layout = GROWN.changed(GROWN.next_epoch(2, shortened={0: 100}), {0: 100}, leader_epochs={0: 6})
    await looking.logs.look()
    assert looking.found == [{0: 100}] * 2


async def test_a_leader_that_does_not_answer_is_asked_again() -> None:
    """A log that could not be looked at is not taken for a good one."""
    looking = Looking()
    looking.admin.is_reachable = False
    await looking.logs.look()
    looking.admin.is_reachable = True
    await looking.logs.look()
    assert looking.admin.asked == [{0: 5, 1: 0}] * 2
