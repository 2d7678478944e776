"""What becomes of requests on connections that speak the dialect: the tables beside those of stock connections.

There a partition's number means the physical partition, in every api. So most of what is translated for others passes
as it came. Commits of dialect groups are the real topic's, those of others the face's, as they count something else; a
group that changes to the dialect goes on where the latter say (`dialect_commits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers import acls, groups
from kordon.proxy.handlers.describe_configs import DescribeConfigsTranslation
from kordon.proxy.handlers.dialect_commits import DialectOffsetFetch
from kordon.proxy.handlers.dialect_metadata import DialectMetadata, DialectTopicPartitions
from kordon.proxy.handlers.followed import Judge, Reply
from kordon.proxy.handlers.refusals import RefusedMember
from kordon.proxy.handlers.service import Translation
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import cut, listed


def refuse_consumer_group(value: Any, topics: ManagedTopics) -> Reply | None:
    """Refuses a member of a KIP-848 group that may name a managed topic; None: it does not.

    Its partitions would be assigned by the broker, which knows neither which ones are retired nor what to wait for.
    """
    named = sorted({name for name in value.subscribed_topic_names or () if topics.named(name) is not None})
    pattern = value.get("subscribed_topic_regex")
    if not named and not (pattern and len(topics)):
        return None
    what = listed(named) or f"topics that {cut(pattern)} matches"
    message = f"{what}: clients of the dialect read managed topics in classic groups (kordon-ordered)"
    return RefusedMember(value, Code.INVALID_REQUEST, message, topics=named)


def judge_consumer_group(others: Judge) -> Judge:
    """Returns what looks at members of KIP-848 groups: it refuses those who may name a managed topic.

    Args:
        others: Looks at all others, as on stock connections.
    """
    return lambda value, topics: refuse_consumer_group(value, topics) or others(value, topics)


TRANSLATIONS: Final[Mapping[int, Translation]] = {
    apis.METADATA: DialectMetadata(),
    apis.DESCRIBE_TOPIC_PARTITIONS: DialectTopicPartitions(),
    apis.DESCRIBE_CONFIGS: DescribeConfigsTranslation(),
    apis.OFFSET_FETCH: DialectOffsetFetch(),
    apis.DESCRIBE_GROUPS: groups.TRANSLATIONS[apis.DESCRIBE_GROUPS],
    apis.CONSUMER_GROUP_DESCRIBE: groups.TRANSLATIONS[apis.CONSUMER_GROUP_DESCRIBE],
    **acls.TRANSLATIONS,
}
"""By api key."""
