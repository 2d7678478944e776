"""What several commands have: how they fail, and the option that names a Kordon's admin pages."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Final

import click

from kordon.codecs.shown_text import shown
from kordon.proxy.config.host_port import HostPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from kordon.proxy.commands.topics_target import Command
    from kordon.proxy.process.explain import Facts

DEFAULT_ADMIN: Final = "127.0.0.1:9190"
INTERRUPTED: Final = 130
"""The exit code of what Ctrl-C has ended, as shells have it."""


class Failed(click.ClickException):
    """Raised to end with exit code 1 and one line that says why."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints the line."""
        click.echo(shown(self.message, keeps_lines=True), err=True)


def admin_option(text: str) -> Callable[[Command], Command]:
    """Returns the option `--admin`, with this help."""
    return click.option(
        "--admin",
        metavar="HOST:PORT",
        envvar="KORDON_ADMIN__ADDRESS",
        show_envvar=True,
        default=DEFAULT_ADMIN,
        show_default=True,
        help=text,
    )


def admin_address(admin: str) -> HostPort:
    """Reads what `--admin` says; what is wrong with it is a mistake in the command line."""
    try:
        return HostPort.parse(admin)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--admin") from error


def fetch(admin: str, path: str) -> Facts | None:
    """Gets an admin page; None: what is there has none of this name. Fails where no Kordon answers."""
    from kordon.proxy.commands.admin_client import StatusUnavailable, fetch_object  # noqa: PLC0415

    try:
        return fetch_object(admin_address(admin), path)
    except StatusUnavailable as error:
        raise Failed(str(error)) from error


def print_json(value: Facts) -> None:
    """Prints an admin page as JSON."""
    click.echo(json.dumps(value, indent=2))
