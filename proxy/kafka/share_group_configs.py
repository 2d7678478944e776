"""What brokers know of a share group: whether there is one, and what it is promised.

Source: GroupConfig.java, ShareGroupAutoOffsetResetStrategy.java (Kafka 4.3). Brokers before 4.3 do not tell all of it:
for what they leave out their own default holds.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kordon.codecs.bodies import DescribeConfigsRequest, DescribeConfigsRequestResource, ShareGroupDescribeRequest
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import describe_configs, share_group_describe
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers, CoordinatorKind
from kordon.proxy.kafka.ends import refuse
from kordon.proxy.ordering.lookups import EARLIEST, LATEST

KEPT_SECONDS: Final = 5.0
"""For which a config is believed."""
MOST_KEPT: Final = 10_000
_GROUP: Final = 32
"""The type of the resource."""
_PURPOSE: Final = "share_groups"
_DURATION: Final = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d*)?S)?)?", re.IGNORECASE
)
_SECONDS_OF: Final = (86_400, 3_600, 60, 1)


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """What a group is promised, with Kafka's defaults."""

    lock_ms: int = 30_000
    """share.record.lock.duration.ms"""
    most_tries: int = 5
    """share.delivery.count.limit"""
    most_in_hand: int = 2_000
    """share.partition.max.record.locks"""
    is_committed: bool = False
    """share.isolation.level"""
    may_renew: bool = True
    """share.renew.acknowledge.enable"""
    reset: str = "latest"
    """share.auto.offset.reset"""

    def begins_at(self, now_ms: int) -> int:
        """Returns the time of a group's first record as ListOffsets takes it: a timestamp, EARLIEST or LATEST."""
        if self.reset == "earliest":
            return EARLIEST
        if found := _DURATION.fullmatch(self.reset):
            seconds = sum(int(each or 0) * size for each, size in zip(found.groups(), _SECONDS_OF, strict=True))
            return max(0, now_ms - 1000 * seconds)
        return LATEST


class ShareGroupConfigs:
    """The configs of share groups, asked of brokers by a worker itself."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._kept: OrderedDict[str, tuple[float, ShareGroupConfig]] = OrderedDict()
        """With when each was told."""

    async def of(self, group_id: str) -> ShareGroupConfig:
        """Returns a group's config, as it was at most 5 seconds ago.

        Raises:
            TopicsRefused: Kordon may not know it (DescribeConfigs of the group).
            UpstreamUnavailable: No broker answers.
        """
        now = time.monotonic()
        told_at, config = self._kept.get(group_id, (now - KEPT_SECONDS, None))
        if config is None or now - told_at >= KEPT_SECONDS:
            config = _config(await self._ask(group_id))
            self._kept[group_id] = now, config
            self._kept.move_to_end(group_id)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return config

    async def is_there(self, group_id: str) -> bool:
        """Whether there is a share group of that name.

        Raises:
            UpstreamUnavailable: Its coordinator does not say.
        """
        client = await self._brokers.coordinator(CoordinatorKind.GROUP, group_id, _PURPOSE)
        version = client.version(share_group_describe.API.key, range(1, 2))
        asked = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        (group,) = (await client.ask(share_group_describe.API, version, asked)).groups
        if group.error_code == Code.GROUP_ID_NOT_FOUND:
            return False
        refuse(f"share group {group_id}", group)
        return True

    async def _ask(self, group_id: str) -> Mapping[str, str | None]:
        resource = DescribeConfigsRequestResource(resource_type=_GROUP, resource_name=group_id, configuration_keys=None)
        answer = await self._brokers.ask_any(
            describe_configs.API, range(1, 5), DescribeConfigsRequest(resources=[resource])
        )
        (result,) = answer.results
        refuse(f"configs of group {group_id}", result)
        return {each.name: each.value for each in result.configs}


def _config(told: Mapping[str, str | None]) -> ShareGroupConfig:
    given = {name: value for name, value in told.items() if value is not None}
    default = ShareGroupConfig()
    try:
        return ShareGroupConfig(
            lock_ms=int(given.get("share.record.lock.duration.ms", default.lock_ms)),
            most_tries=int(given.get("share.delivery.count.limit", default.most_tries)),
            most_in_hand=int(given.get("share.partition.max.record.locks", default.most_in_hand)),
            is_committed=given.get("share.isolation.level") == "read_committed",
            may_renew=given.get("share.renew.acknowledge.enable") != "false",
            reset=given.get("share.auto.offset.reset", default.reset).lower(),
        )
    except ValueError as error:
        raise UpstreamUnavailable(f"a config of a share group cannot be read: {error}") from None
