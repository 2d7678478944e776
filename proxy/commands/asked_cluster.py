"""The brokers of a cluster, as commands ask them that read Kordon's own topics, which are hidden from its clients."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from kordon.proxy.commands.command_parts import Failed
from kordon.proxy.commands.topics_target import TargetFlags, TargetUnknown, brokers_of, connection_options

if TYPE_CHECKING:
    from kordon.proxy.kafka.brokers import Brokers

Result = TypeVar("Result")

broker_options = connection_options(
    "the broker",
    "A broker, or several with commas between. Kordon itself hides its topics.",
    "Kordon's own configuration, for its brokers, its log-in and its group.",
)


class AskedCluster:
    """The brokers to ask."""

    def __init__(self, target: TargetFlags) -> None:
        from kordon.proxy.kafka.group import GROUP  # noqa: PLC0415

        try:
            self._upstream, config = brokers_of(os.environ, **target)
        except TargetUnknown as error:
            raise click.UsageError(str(error)) from error
        self.group = config.ordering.group if config is not None else GROUP
        """That Kordon's workers are members of."""

    def ask(self, what: str, do: Callable[[Brokers], Awaitable[Result]], refusal: type[Exception]) -> Result:
        """Does something with the brokers; whatever fails is told, with exit code 1.

        Args:
            what: The work that is done, which begins the message if brokers fail.
            refusal: The refusal, which says everything in its own words.
        """
        import uvloop  # noqa: PLC0415

        from kordon.proxy.commands.brokers_asked import with_brokers  # noqa: PLC0415
        from kordon.proxy.core.errors import KordonError  # noqa: PLC0415

        try:
            return uvloop.run(with_brokers(self._upstream, do))
        except refusal as error:
            raise Failed(str(error)) from error
        except (KordonError, OSError) as error:
            where = ", ".join(map(str, self._upstream.bootstrap))
            raise Failed(f"{what} at {where}: {error}") from error
