"""What clients mean by the numbers of a managed topic's partitions: virtual ones, or with the dialect physical ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import Stream, physical_stream

Target: TypeAlias = Callable[[Layout, int], Stream | Code]
"""Finds what a client means by a partition's number, or why there is no such partition."""


def virtual_partition(layout: Layout, number: int) -> Stream | Code:
    """Finds what a client means that sees virtual partitions."""
    is_there = 0 <= number < layout.v_count and layout.homes[number] is not None
    return number if is_there else Code.UNKNOWN_TOPIC_OR_PARTITION


def physical_partition(layout: Layout, number: int) -> Stream | Code:
    """Finds what a client of the dialect means; it may have heard of a partition before this proxy has."""
    if number < 0:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    stream = physical_stream(number)
    return stream if layout.chain(stream).stays else Code.INVALID_PARTITION_METADATA
