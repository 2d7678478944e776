"""`kordon autoscale`: changes the partitions of managed topics as their load asks for, and says why."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

import click
import structlog
import uvloop

from kordon.proxy.commands.command_parts import Failed, admin_address, admin_option
from kordon.proxy.commands.topics_target import TargetFlags, TargetUnknown, target_of, target_options
from kordon.proxy.config.config import Log
from kordon.proxy.runtime.logs import configure_logging

if TYPE_CHECKING:
    from kordon.proxy.commands.autoscale_policy import Policies
    from kordon.proxy.config.config import Upstream
    from kordon.proxy.config.host_port import HostPort

log = structlog.get_logger(__name__)


@click.command()
@click.argument("policies_file", metavar="POLICIES", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be changed, and change nothing.")
@click.option("--once", is_flag=True, help="End after two looks: the load is what has come between them.")
@admin_option("The admin address of the Kordons. If a name has several addresses, all of them are asked for lags.")
@click.option(
    "--log-format",
    type=click.Choice(["auto", "human", "json"]),
    default="auto",
    help="The format of log lines; auto is human on a terminal, and JSON otherwise.",
)
@target_options
def autoscale(
    policies_file: Path,
    admin: str,
    log_format: Literal["auto", "human", "json"],
    *,
    dry_run: bool,
    once: bool,
    **target: Unpack[TargetFlags],
) -> None:
    """Grows and shrinks managed topics between the bounds of POLICIES, a YAML file, as their load asks for.

    The load of a topic is the bytes that its logs take in, as brokers store them, and how far groups are behind.
    Nothing is changed during a takeover, while another change is under way, or while a finding stands.
    Begin with --dry-run: every verdict is logged with its figures. Run one autoscaler for a topic.

    \b
    Example of a file:
      interval: 30s
      topics:
        orders:
          minimum: 3
          maximum: 24
          bytes_per_second: 5MiB    # one partition should take in no more
          lag: 100000               # optional: records that a group may be behind on one partition
          grow_after: 60s
          shrink_after: 15m
          cool_down: 5m
          hours: ["06:00-22:00"]    # optional, UTC

    \b
    Examples:
      kordon autoscale policies.yaml --bootstrap kordon:19092 --admin kordon-admin:9190 --dry-run
      kordon autoscale policies.yaml --config kordon.yaml
    """  # noqa: D301
    from kordon.proxy.commands.autoscale_policy import Policies  # noqa: PLC0415
    from kordon.proxy.commands.model_file import FileUnusable, load_model  # noqa: PLC0415

    try:
        policies = load_model(policies_file, Policies)
        address, upstream = target_of(os.environ, **target)
    except (FileUnusable, TargetUnknown) as error:
        raise click.UsageError(str(error)) from error
    pages = admin_address(admin)
    configure_logging(Log(format=log_format))
    with suppress(KeyboardInterrupt):
        uvloop.run(_run(policies, address, upstream, pages, dry_run=dry_run, once=once))


async def _run(
    policies: Policies, address: HostPort, upstream: Upstream, admin: HostPort, *, dry_run: bool, once: bool
) -> None:
    from kordon.proxy.commands.autoscale_looks import AdminPages  # noqa: PLC0415
    from kordon.proxy.commands.autoscaler import Autoscaler, Resizer  # noqa: PLC0415
    from kordon.proxy.commands.log_sizes import LogSizes  # noqa: PLC0415
    from kordon.proxy.runtime.tls import explain  # noqa: PLC0415

    try:
        sizes = LogSizes(address, upstream)
    except OSError as error:
        raise Failed(f"--ca, --certificate or --key cannot be used: {explain(error)}") from error
    scaler = Autoscaler(policies, AdminPages(admin), sizes, Resizer(address, upstream, dry_run=dry_run))
    log.info("autoscale_begins", topics=sorted(policies.topics), interval_seconds=policies.interval, dry_run=dry_run)
    looks = 0
    while not once or looks < 2:
        if looks:
            await asyncio.sleep(policies.interval)
        await scaler.look()
        looks += 1
    if scaler.blind:
        sys.exit(1)
