"""What the procedures of one controller share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kordon.proxy.controller.adoption import Adoption
from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.ordering.changes import Command
from kordon.proxy.runtime.tasks import Tasks


class ControllerContext(NamedTuple):
    """What the procedures of one controller share.

    Attributes:
        ledger: Knows what is managed, and writes.
        admin: Asks the cluster.
        adoption: Waits for the other proxies.
        tasks: Run what is under way.
        do: Does what `ordering.controller` asks for.
    """

    ledger: Ledger
    admin: TopicsAdmin
    adoption: Adoption
    tasks: Tasks
    do: Callable[[list[Command]], None]
