"""The brokers of a cluster, as commands ask them that read Kordon's own topics, which are hidden from its clients."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from kordon.proxy.commands.command_parts import Failed
from kordon.proxy.commands.topics_target import TargetFlags, TargetUnknown, config_of, connection_options, target_of

if TYPE_CHECKING:
    from kordon.proxy.config.config import Upstream
    from kordon.proxy.kafka.brokers import Brokers

Result = TypeVar("Result")

broker_options = connection_options(
    "the broker",
    "A broker. Kordon itself hides its topics.",
    "Kordon's own configuration, for its brokers, its log-in and its group.",
)


class AskedCluster:
    """The brokers to ask."""

    def __init__(self, target: TargetFlags) -> None:
        from kordon.proxy.kafka.group import GROUP  # noqa: PLC0415

        self.group = GROUP
        """That Kordon's workers are members of."""
        self._upstream = self._upstream_of(target)

    def _upstream_of(self, target: TargetFlags) -> Upstream:
        try:
            config = config_of(target["file"], os.environ)
            if config is not None:
                self.group = config.ordering.group
            if target["bootstrap"] is not None:
                target["file"] = None
                return target_of(os.environ, **target)[1]
        except TargetUnknown as error:
            raise click.UsageError(str(error)) from error
        if config is None:
            raise click.UsageError(
                "name a broker: --bootstrap HOST:PORT, or Kordon's own configuration by --config FILE"
            )
        return config.upstream

    def ask(self, what: str, do: Callable[[Brokers], Awaitable[Result]], refusal: type[Exception]) -> Result:
        """Does something with the brokers; whatever fails is told, with exit code 1.

        Args:
            what: It does; begins the message if brokers fail.
            refusal: What says all in its own words.
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
