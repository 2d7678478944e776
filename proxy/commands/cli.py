"""The command line: `kordon run`, `check`, `status`, `completion`, `topics`, `layouts`, `decisions`, `sources`.

Exit codes: 0 success, 1 failure while running, 2 a mistake in the command line or the configuration.
"""

from __future__ import annotations

import os
import stat
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

import kordon
from kordon.codecs.shown_text import shown
from kordon.proxy.commands.command_parts import Failed, admin_address, admin_option, print_json
from kordon.proxy.config.config import Config
from kordon.proxy.config.config_load import ConfigError, Loaded, load
from kordon.proxy.config.config_options import options
from kordon.proxy.config.config_source import FLAGS, Key, dotted, variable_of
from kordon.proxy.process.exit_codes import EXIT_FAILED, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

config_file = click.option(
    "--config",
    "file",
    metavar="FILE",
    envvar="KORDON_CONFIG",
    type=click.Path(path_type=Path),
    help="The configuration file (YAML).",
)


_LOADED: Final = ("autoscale", "decisions", "groups", "layouts", "sources", "topics")
"""Commands with a module of their own, `NAME_cli.py`."""


class _Commands(click.Group):
    """The commands. Those of `_LOADED` are loaded when they are asked for, so that workers need not."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names them."""
        return sorted([*super().list_commands(ctx), *_LOADED])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Finds one."""
        if cmd_name not in _LOADED:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(import_module(f"kordon.proxy.commands.{cmd_name}_cli"), cmd_name)
        return found


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
      kordon groups gaps billing --bootstrap kafka:9092
      kordon layouts export layouts.json --config kordon.yaml

    Exit codes: 0 success, 1 failure while running, 2 a mistake in the command line or the configuration.
    """  # noqa: D301  (\b is click's mark for a paragraph that keeps its lines)


@main.command()
@click.option("--bootstrap", metavar="HOST:PORT[,…]", help="The brokers to ask for the others.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="The address where clients bootstrap. The ports after it stand for the brokers.",
)
@click.option("--advertise", metavar="HOST", help="The host name that clients connect to.")
@click.option("--admin", metavar="HOST:PORT", help="The address of /livez, /readyz, /metrics and /status.")
@click.option("--workers", metavar="N", help="The number of processes that share the ports.")
@click.option("--log-level", metavar="LEVEL", help="The least level that is logged: debug, info, warning or error.")
@click.option("--log-format", metavar="FORMAT", help="The format of log lines: auto, human or json.")
@config_file
def run(file: Path | None, **flags: str | None) -> None:
    """Runs the proxy. SIGTERM or SIGINT drains and ends it; a second signal ends it at once.

    Options come from a file, from environment variables (KORDON_LIMITS__FRAME_BYTES sets
    limits.frame_bytes) and from these flags; the later source wins. SIGHUP, or a change of the file, reloads
    the configuration, certificates and keys.

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
    import uvloop  # noqa: PLC0415

    if loaded.config.workers == 1:
        from kordon.proxy.process.service import run_alone as start  # noqa: PLC0415
    else:
        from kordon.proxy.process.workers import run_workers as start  # noqa: PLC0415
    sys.exit(uvloop.run(start(loaded, load_again, file)))


@main.command()
@click.argument("file", envvar="KORDON_CONFIG", required=False, type=click.Path(path_type=Path))
@click.option("--options", "list_options", is_flag=True, help="List all options with their environment variables.")
@click.option("--cluster", is_flag=True, help="Also ask the brokers whether they accept Kordon, and check its rights.")
@click.option(
    "--principal",
    metavar="NAME",
    help="Kordon's principal, such as User:kordon. Needed with --cluster if the brokers take it from a certificate.",
)
def check(file: Path | None, *, list_options: bool, cluster: bool, principal: str | None) -> None:
    """Checks a configuration FILE with the environment variables, and explains every mistake.

    Without --cluster the command connects to nothing. With it, it asks the brokers as Kordon does. It prints one
    line with the cure for each problem: brokers that cannot be reached or that refuse the log-in, rights that
    Kordon lacks, and ACLs that let others change Kordon's own topics.

    Exit codes: 0 no problem, 1 a problem in the cluster, 2 a mistake in the command line or the configuration.

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
        raise click.UsageError("--principal needs --cluster and a type, as in User:kordon or User:CN=kordon,O=acme")
    if file is None:
        raise click.UsageError("name the FILE to check")
    loaded = _load_or_exit(file, {})
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}")
    click.echo(f"{file}: good")
    if cluster:
        _check_cluster(loaded.config, principal)


@main.command()
@admin_option("The admin address of the Kordon to ask.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer of /status as JSON.")
def status(admin: str, *, as_json: bool) -> None:
    """Shows the state of a running Kordon: brokers, listeners, traffic, limits and workers.

    The exit code is 1 if no Kordon answers.

    \b
    Examples:
      kordon status
      kordon status --admin 10.0.0.7:9190 --json
    """  # noqa: D301
    from kordon.proxy.commands.admin_client import StatusUnavailable  # noqa: PLC0415
    from kordon.proxy.commands.status import fetch_status, print_status  # noqa: PLC0415

    try:
        answer = fetch_status(admin_address(admin))
    except StatusUnavailable as error:
        raise Failed(str(error)) from error
    if as_json:
        print_json(answer)
    else:
        print_status(answer)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints a script by which SHELL completes kordon's commands and options.

    \b
    Examples:
      source <(kordon completion bash)
      kordon completion zsh > "${fpath[1]}/_kordon"
      kordon completion fish > ~/.config/fish/completions/kordon.fish
    """  # noqa: D301
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    found = get_completion_class(shell)
    assert found is not None, "click knows the shells that may be named"
    click.echo(found(ctx.find_root().command, {}, "kordon", "_KORDON_COMPLETE").source())


@main.command(hidden=True)
@click.argument("number", type=int)
@click.argument("admin_socket", type=click.Path(path_type=Path))
def worker(number: int, admin_socket: Path) -> None:
    """Runs one worker for a supervisor, which sends the configuration to standard input."""
    kind = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        raise click.UsageError("`kordon run --workers N` starts the workers")
    import uvloop  # noqa: PLC0415

    from kordon.proxy.process.service import run_worker  # noqa: PLC0415

    sys.exit(uvloop.run(run_worker(number, admin_socket)))


def _check_cluster(config: Config, principal: str | None) -> None:
    import uvloop  # noqa: PLC0415

    from kordon.proxy.commands.check_cluster import problems_of  # noqa: PLC0415
    from kordon.proxy.runtime.logs import silence  # noqa: PLC0415

    with silence():
        problems = uvloop.run(problems_of(config.upstream, config.ordering, principal))
    for problem in problems:
        click.echo(f"cluster: {shown(problem)}")
    if problems:
        sys.exit(EXIT_FAILED)
    click.echo("cluster: good")


def _by_key(flags: dict[str, str | None]) -> dict[Key, str]:
    """Flags by the key of their option; `--log-level` is `log_level` for click."""
    names = {flag.lstrip("-").replace("-", "_"): key for key, flag in FLAGS.items()}
    return {names[name]: value for name, value in flags.items() if value is not None}


def _load_or_exit(file: Path | None, flags: dict[Key, str]) -> Loaded:
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
