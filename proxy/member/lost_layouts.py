"""Finds topics whose layouts are lost: they have a face, and the layouts say nothing of them.

Who takes such a topic for an ordinary one writes its keys to other partitions than before. So it is not served
(UNREAD-UNSERVED), whoever deleted `__kordon.layouts`, emptied it or made it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.member.findings import Findings
from kordon.proxy.own_topics.layouts_log import LayoutsLog

_RETRY_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 3.0
"""Between two looks at faces, while layouts are lost."""


class LostLayouts:
    """Looks for faces without layouts when a worker has read the layouts, and again while there are any.

    Args:
        know_layouts: Returns when the layouts have been read to their end, or when there are none.
        layouts: The layouts, which are asked for faces.
        findings: The findings, which are told of faces without layouts.
    """

    def __init__(self, know_layouts: Callable[[], Awaitable[None]], layouts: LayoutsLog, findings: Findings) -> None:
        self._know_layouts = know_layouts
        self._layouts = layouts
        self._findings = findings

    async def know(self) -> None:
        """Returns when the layouts are known, and what is lost of them is not served."""
        while True:
            await self._know_layouts()
            try:
                self._findings.on_faces(await self._layouts.faces())
            except UpstreamUnavailable:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def run(self) -> None:
        """Looks again while something is lost: a topic whose face was deleted is an ordinary one."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._findings.lost:
                await self.know()
