"""DescribeTransactions: virtual partitions of managed topics, in place of the physical ones that coordinators know.

A coordinator does not know which virtual partitions a transaction has written to. So all are told that live on the
physical partition, or that have lived there if none does now: more than were written to, and never fewer. In the
dialect it passes.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import DescribeTransactionsRequest as Request
from kordon.codecs.bodies import DescribeTransactionsResponse as Response
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import ManagedTopics


class DescribeTransactions(TranslatedApi[Request, Response]):
    """Describes the virtual partitions of transactions."""

    key = apis.DESCRIBE_TRANSACTIONS
    answers_always = True

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Names virtual partitions of managed topics."""
        for row in (row for state in value.transaction_states for row in state.topics):
            topic = topics.named(row.topic)
            if topic is not None:
                vs = (v for q in row.partitions for v in _virtual(topic.layout, q))
                row.partitions = sorted(set(vs))


def _virtual(layout: Layout, q: int) -> list[int]:
    """Returns the virtual partitions that live on a physical one, or have lived there if none does."""
    here = [v for v, home in enumerate(layout.homes) if home == q]
    return here or [v for v, chain in enumerate(layout.chains) if any(stay.partition == q for stay in chain.stays)]
