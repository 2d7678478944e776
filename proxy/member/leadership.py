"""Leads while the proxies' group has chosen this worker: begins the controller's role, and begins it again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kordon.proxy.controller.controller_role import ControllerRole
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.ordering.records import AckRecord
from kordon.proxy.own_topics.layouts_writer import Fenced
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)

_LEAD_AGAIN_SECONDS: Final = 0.5


class Leadership:
    """Runs the controller's role on the worker that leads.

    Args:
        new_role: Makes a controller's role. Each role fences the one before it.
        read_to_end: Called to read the layouts to an end that is taken at the call (ONE-CONTROLLER).
        tasks: The tasks that run the role. Whoever made them ends them.

    Attributes:
        role: The controller's role, while this worker has it.
    """

    def __init__(
        self, new_role: Callable[[], ControllerRole], read_to_end: Callable[[], Awaitable[object]], tasks: Tasks
    ) -> None:
        self._new_role = new_role
        self._read_to_end = read_to_end
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self.role: ControllerRole | None = None

    def lead(self) -> None:
        """Leads from now on, unless it does already."""
        if self._task is None:
            self._task = self._tasks.keep(self._lead, name="lead")

    def stop(self) -> None:
        """Ends the controller's role."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def hears(self, ack: AckRecord) -> bool:
        """Tells the role of an acknowledgement; returns False if the fence is not this worker's own."""
        if self.role is None or not self.role.raised(ack.fence):
            return False
        self.role.on_ack(ack.fence, ack.incarnation, ack.told)
        return True

    async def _lead(self) -> None:
        while True:
            self.role = self._new_role()
            try:
                await self.role.run(self._read_to_end)
            except Fenced as error:
                # by the next one; or by a former one that woke late, then this one takes over again
                log.info("controller_fenced", error=str(error))
            except UpstreamUnavailable as error:
                log.warning("controller_interrupted", error=str(error))
            except Exception:  # the outermost edge of the role: whatever it is, somebody has to lead
                log.exception("controller_failed")
            finally:
                self.role = None
            await asyncio.sleep(_LEAD_AGAIN_SECONDS)
