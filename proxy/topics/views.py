"""What the clients of a connection see of managed topics: virtual partitions, or in the dialect physical ones.

The connection's handlers follow from it (`handlers/tables.py`), and so does what a partition's number means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import Stream, physical_stream


class View(ABC):
    """What clients see of managed topics."""

    is_physical: ClassVar[bool]

    @abstractmethod
    def stream(self, number: int) -> Stream:
        """Returns the stream that a partition's number means, be there one or not."""
        ...

    @abstractmethod
    def find(self, layout: Layout, number: int) -> Stream | Code:
        """Finds the stream that a partition's number means, or why there is no such partition."""
        ...


class VirtualView(View):
    """Stock connections see virtual partitions."""

    is_physical = False

    def stream(self, number: int) -> Stream:
        """Returns the number itself."""
        return number

    def find(self, layout: Layout, number: int) -> Stream | Code:
        """Finds a virtual partition that has a home."""
        is_there = 0 <= number < layout.v_count and layout.homes[number] is not None
        return number if is_there else Code.UNKNOWN_TOPIC_OR_PARTITION


class PhysicalView(View):
    """Connections that speak the dialect see physical partitions."""

    is_physical = True

    def stream(self, number: int) -> Stream:
        """Returns the stream of the physical partition as such."""
        return physical_stream(number)

    def find(self, layout: Layout, number: int) -> Stream | Code:
        """Finds a physical partition; the client may have heard of one before this proxy has."""
        if number < 0:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        stream = physical_stream(number)
        return stream if layout.chain(stream).stays else Code.INVALID_PARTITION_METADATA


VIRTUAL: Final = VirtualView()
PHYSICAL: Final = PhysicalView()
