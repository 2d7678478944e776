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
        ledger: The ledger, which knows what is managed and writes layouts.
        admin: The client that asks the cluster about topics.
        adoption: The part that waits for the other proxies.
        tasks: The tasks that run what is under way.
        do: Called with the commands of `ordering.controller`, which it performs.
    """

    ledger: Ledger
    admin: TopicsAdmin
    adoption: Adoption
    tasks: Tasks
    do: Callable[[list[Command]], None]
