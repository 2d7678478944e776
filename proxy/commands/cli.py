"""The command line: `kordon run`, `kordon check`, `kordon status`, `kordon topics`, `kordon decisions`.

Exit codes: 0 all is well, 1 it failed while running, 2 the command line or the configuration is wrong.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import uvloop

import kordon
from kordon.codecs.shown_text import shown
from kordon.proxy.config.config import Config, HostPort
from kordon.proxy.config.config_load import ConfigError, Loaded, load
from kordon.proxy.config.config_options import options
from kordon.proxy.config.config_source import FLAGS, Key, dotted, variable_of
from kordon.proxy.process.lifecycle import EXIT_FAILED, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_ADMIN = "127.0.0.1:9190"

config_file = click.option(
    "--config",
    "file",
    metavar="FILE",
    envvar="KORDON_CONFIG",
    type=click.Path(path_type=Path),
    help="Configuration file (YAML).",
)


class _Commands(click.Group):
    """The commands; modules of those with many are loaded when they are asked for, so that workers need not."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names them."""
        return sorted([*super().list_commands(ctx), "decisions", "topics"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Finds one."""
        if cmd_name == "topics":
            from kordon.proxy.commands.topics_cli import topics  # noqa: PLC0415

            return topics
        if cmd_name == "decisions":
            from kordon.proxy.commands.decisions_cli import decisions  # noqa: PLC0415

            return decisions
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(kordon.__version__, prog_name="kordon", message="%(prog)s %(version)s")
def main() -> None:
    """A Kafka wire-protocol proxy.

    \b
    Examples:
      kordon run --bootstrap kafka:9092 --listen 0.0.0.0:19092 --advertise proxy.example.com
      kordon run --config kordon.yaml --workers 4
      kordon check kordon.yaml
      kordon status
      kordon topics list
      kordon decisions tail --bootstrap kafka:9092

    Exit codes: 0 all is well, 1 it failed while running, 2 the command line or the configuration is wrong.
    """  # noqa: D301  (\b is click's mark for a paragraph that keeps its lines)


@main.command()
@click.option("--bootstrap", metavar="HOST:PORT[,…]", help="Brokers of the cluster to ask first.")
@click.option("--listen", metavar="HOST:PORT", help="Where clients bootstrap; brokers are on the ports after it.")
@click.option("--advertise", metavar="HOST", help="Host that clients are told.")
@click.option("--admin", metavar="HOST:PORT", help="Where /livez, /readyz, /metrics and /status are.")
@click.option("--workers", metavar="N", help="Processes that share the ports.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--log-format", metavar="FORMAT", help="auto, human or json.")
@config_file
def run(file: Path | None, **flags: str | None) -> None:
    """Runs the proxy until SIGTERM or SIGINT, which drain it; a second one stops it at once.

    Options may come from a file, from environment variables (KORDON_LIMITS__FRAME_BYTES is
    limits.frame_bytes) and from these flags; later ones win. SIGHUP, or a changed file, reloads the
    configuration, certificates and keys.

    \b
    Examples:
      kordon run --bootstrap kafka:9092 --listen 0.0.0.0:19092 --advertise proxy.example.com
      kordon run --bootstrap a:9092,b:9092 --listen 127.0.0.1:19092 --admin 127.0.0.1:9190
      KORDON_UPSTREAM__BOOTSTRAP=kafka:9092 kordon run --config kordon.yaml
    """  # noqa: D301
    given = _by_key(flags)
    loaded = _load_or_exit(file, given)

    def load_again() -> Loaded:
        return load(file, os.environ, given)

    # Imported here so that `check` and `status` answer at once, and a supervisor stays small.
    if loaded.config.workers == 1:
        from kordon.proxy.process.service import run_alone as start  # noqa: PLC0415
    else:
        from kordon.proxy.process.workers import run_workers as start  # noqa: PLC0415
    sys.exit(uvloop.run(start(loaded, load_again, file)))


@main.command()
@click.argument("file", envvar="KORDON_CONFIG", required=False, type=click.Path(path_type=Path))
@click.option("--options", "list_options", is_flag=True, help="List all options with their environment variables.")
@click.option(
    "--cluster", is_flag=True, help="Also ask the brokers: do they let Kordon in, and are rights as they should be?"
)
@click.option(
    "--principal",
    metavar="NAME",
    help="Kordon's principal, such as User:kordon, if the brokers derive it from its certificate; with --cluster.",
)
def check(file: Path | None, *, list_options: bool, cluster: bool, principal: str | None) -> None:
    """Checks a configuration FILE, environment variables included, and explains every mistake.

    Without --cluster nothing is connected to. With it the brokers are asked, as Kordon asks them, and whatever
    is wrong is a line with its cure: brokers that cannot be reached or refuse the log-in, rights that Kordon
    lacks, and ACLs that let others change Kordon's own topics.

    Exit codes: 0 all is well, 1 something at the cluster is wrong, 2 the command line or the configuration is wrong.

    \b
    Examples:
      kordon check kordon.yaml
      kordon check kordon.yaml --cluster
      kordon check --options
    """  # noqa: D301
    if list_options:
        _print_options()
        return
    if principal is not None and (not cluster or ":" not in principal):
        raise click.UsageError("--principal needs --cluster, and a type: User:kordon, or User:CN=kordon,O=acme")
    if file is None:
        raise click.UsageError("name the FILE to check")
    loaded = _load_or_exit(file, {})
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}")
    click.echo(f"{file}: good")
    if cluster:
        _check_cluster(loaded.config, principal)


@main.command()
@click.option(
    "--admin",
    metavar="HOST:PORT",
    envvar="KORDON_ADMIN__ADDRESS",
    default=DEFAULT_ADMIN,
    show_default=True,
    help="Admin address of the Kordon to ask.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what /status says, as JSON.")
def status(admin: str, *, as_json: bool) -> None:
    """Shows how a running Kordon is: brokers, listeners, traffic, limits, workers.

    Exits with 1 when no Kordon answers.

    \b
    Examples:
      kordon status
      kordon status --admin 10.0.0.7:9190 --json
    """  # noqa: D301
    from kordon.proxy.commands.admin_client import StatusUnavailable  # noqa: PLC0415
    from kordon.proxy.commands.status import fetch_status, print_status  # noqa: PLC0415

    try:
        address = HostPort.parse(admin)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--admin") from error
    try:
        answer = fetch_status(address)
    except StatusUnavailable as error:
        click.echo(str(error), err=True)
        sys.exit(EXIT_FAILED)
    if as_json:
        import json  # noqa: PLC0415

        click.echo(json.dumps(answer, indent=2))
    else:
        print_status(answer)


@main.command(hidden=True)
@click.argument("number", type=int)
@click.argument("admin_socket", type=click.Path(path_type=Path))
def worker(number: int, admin_socket: Path) -> None:
    """Runs one worker for a supervisor, which sends the configuration to standard input."""
    kind = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        raise click.UsageError("workers are started by `kordon run --workers N`")
    from kordon.proxy.process.service import run_worker  # noqa: PLC0415

    sys.exit(uvloop.run(run_worker(number, admin_socket)))


def _check_cluster(config: Config, principal: str | None) -> None:
    from kordon.proxy.commands.check_cluster import problems_of  # noqa: PLC0415
    from kordon.proxy.runtime.logs import silence  # noqa: PLC0415

    with silence():
        problems = uvloop.run(problems_of(config.upstream, config.ordering, principal))
    for problem in problems:
        click.echo(f"cluster: {shown(problem)}")
    if problems:
        sys.exit(EXIT_FAILED)
    click.echo("cluster: good")


def _by_key(flags: dict[str, str | None]) -> dict[Key, Any]:
    """Flags by the key of their option; `--log-level` is `log_level` for click."""
    names = {flag.lstrip("-").replace("-", "_"): key for key, flag in FLAGS.items()}
    return {names[name]: value for name, value in flags.items() if value is not None}


def _load_or_exit(file: Path | None, flags: dict[Key, Any]) -> Loaded:
    try:
        return load(file, os.environ, flags)
    except ConfigError as error:
        _exit_with([str(problem) for problem in error.problems])


def _exit_with(problems: Sequence[str]) -> NoReturn:
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(EXIT_USAGE)


def _print_options() -> None:
    for option in options().values():
        default = f" (default {option.default})" if option.default else " (required)"
        click.echo(f"{dotted(option.key)}: {option.type}{default}")
        click.echo(f"    {option.description}")
        click.echo(f"    {variable_of(option.key)}" + (f", {FLAGS[option.key]}" if option.key in FLAGS else ""))
