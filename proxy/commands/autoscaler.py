"""Looks at topics, decides by their policies, and has them changed: the loop of `kordon autoscale`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import structlog

from kordon.proxy.commands.admin_client import StatusUnavailable
from kordon.proxy.commands.autoscale_rule import AutoscaleRule, ScaleVerdict, TopicLoad
from kordon.proxy.commands.topics_client import TopicsClient
from kordon.proxy.core.errors import KordonError, UpstreamUnavailable

if TYPE_CHECKING:
    from kordon.proxy.commands.autoscale_looks import AdminPages, LayoutSeen
    from kordon.proxy.commands.autoscale_policy import Policies
    from kordon.proxy.commands.log_sizes import LogSizes
    from kordon.proxy.config.config import Upstream
    from kordon.proxy.config.host_port import HostPort

log = structlog.get_logger(__name__)

_UNCHANGED_EVERY: Final = 300.0
"""Seconds after which a verdict that stays the same is told again."""


class Resizer:
    """Changes topics, or only says so."""

    def __init__(self, address: HostPort, upstream: Upstream, *, dry_run: bool) -> None:
        self._address = address
        self._upstream = upstream
        self.dry_run = dry_run

    async def resize(self, topic: str, partitions: int) -> None:
        """Changes a topic's number of partitions; returns when that is done.

        Raises:
            KordonError: The change is refused, or no Kordon answers.
        """
        if self.dry_run:
            return
        client = TopicsClient(self._address, self._upstream)
        try:
            await client.open()
            await client.resize(topic, partitions)
        finally:
            client.close()


class Autoscaler:
    """Looks at topics, decides, and has them changed."""

    def __init__(self, policies: Policies, pages: AdminPages, sizes: LogSizes, resizer: Resizer) -> None:
        self._pages = pages
        self._sizes = sizes
        self._resizer = resizer
        self._rules: dict[str, AutoscaleRule] = {name: AutoscaleRule(each) for name, each in policies.topics.items()}
        self._told: dict[str, tuple[object, float]] = {}
        """By topic, what was logged last, and when."""
        self.blind: set[str] = set()
        """Topics whose last look failed."""

    async def look(self) -> None:
        """Looks at all topics once; what fails is logged, and nothing is changed by it."""
        try:
            lags = await self._pages.lags()
        except StatusUnavailable:
            lags = {}  # said below, topic by topic
        layouts = await self._layouts()
        if not layouts:
            return
        try:
            sizes = await self._sizes.of({topic: layout.physical for topic, layout in layouts.items()})
        except KordonError as error:
            for topic in layouts:
                self._fail(topic, error)
            return
        now, time_of_day = time.monotonic(), datetime.now(UTC).time()
        for topic, layout in layouts.items():
            if len(sizes[topic]) < layout.physical:
                told = f"no broker tells the sizes of all partitions of {topic}"
                self._fail(topic, UpstreamUnavailable(told))
                continue
            lag = lags.get(topic)
            look = TopicLoad(
                now,
                time_of_day,
                layout.initial,
                layout.physical,
                layout.virtual,
                sizes[topic],
                lag.records if lag is not None else None,
                lag.group if lag is not None else "",
                layout.obstacle,
            )
            await self._judge(topic, look)
            self.blind.discard(topic)

    async def _layouts(self) -> dict[str, LayoutSeen]:
        """Asks how each topic is; one of which nobody tells is missing."""
        found: dict[str, LayoutSeen] = {}
        for topic in self._rules:
            try:
                found[topic] = await self._pages.layout(topic)
            except StatusUnavailable as error:
                self._fail(topic, error)
        return found

    def _fail(self, topic: str, error: Exception) -> None:
        self.blind.add(topic)
        if self._is_news(topic, str(error)):
            log.warning("autoscale_blind", topic=topic, error=str(error))

    async def _judge(self, topic: str, look: TopicLoad) -> None:
        rule = self._rules[topic]
        verdict = rule.decide(look)
        if verdict.partitions is None:
            if self._is_news(topic, (look.physical, verdict.wanted)):
                log.info("autoscale_verdict", topic=topic, **_figures(look, verdict))
            return
        figures = {**_figures(look, verdict), "wanted": verdict.partitions}
        try:
            await self._resizer.resize(topic, verdict.partitions)
        except KordonError as error:
            log.warning("autoscale_refused", topic=topic, **figures, error=str(error))
        else:
            log.info("autoscale_changed", topic=topic, **figures, dry_run=self._resizer.dry_run)
        finally:
            rule.changed(time.monotonic())

    def _is_news(self, topic: str, what: object) -> bool:
        """Whether something is worth a line: it is new, or was told long ago."""
        now, (known, told) = time.monotonic(), self._told.get(topic, (None, 0.0))
        if known == what and now - told < _UNCHANGED_EVERY:
            return False
        self._told[topic] = (what, now)
        return True


def _figures(look: TopicLoad, verdict: ScaleVerdict) -> dict[str, object]:
    rate = verdict.bytes_per_second
    return {
        "partitions": look.physical,
        "wanted": verdict.wanted,
        "bytes_per_second": None if rate is None else round(rate),
        "lag": look.lag,
        "group": look.group or None,
        "because": verdict.because,
    }
