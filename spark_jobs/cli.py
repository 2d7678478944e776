"""`kordon audit`: runs the auditor, draws its report.

Nothing here imports PySpark before a command runs: who has not installed it is told how.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from kordon.spark_jobs.errors import CannotCheck, WithoutJavasStacks, cause_of, need_packages, words_of
from kordon.spark_jobs.report_command import report

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

    from kordon.spark_jobs.audit import Options
    from kordon.spark_jobs.metrics import AuditMetrics
    from kordon.spark_jobs.session import Setup

HOLDS: Final = 0
BROKEN: Final = 1
NOT_CHECKED: Final = 2
"""Exit code: the audit could not be made."""
NOT_ALL_JUDGED: Final = 3
_NEEDED: Final = ("pyspark", "pyarrow", "pandas", "polars", "msgspec", "numpy")
_SECURITY: Final = (
    "security_protocol",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_check_hostname",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
)
"""What a file of `--config` may hold."""

log: Final = logging.getLogger("kordon.audit")

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group()
def audit() -> None:
    """Checks, apart from the proxy, that order was kept: by its decisions and by what stands in the topics."""


audit.add_command(report)


def _options(command: _Command) -> _Command:
    """The options of `run`, in the order in which help shows them."""
    path = click.Path(path_type=Path)
    for option in reversed(
        [
            click.option(
                "--bootstrap",
                metavar="HOST:PORT[,…]",
                envvar="KORDON_AUDIT_BOOTSTRAP",
                help="Brokers to read from, not the proxy.",
            ),
            click.option(
                "--files",
                "folder",
                metavar="FOLDER",
                type=path,
                help="Read decisions from files (decisions.to: files).",
            ),
            click.option(
                "--out",
                metavar="DIR",
                default="audit",
                show_default=True,
                help="Where state and findings go: a folder, or an address that Spark can write to.",
            ),
            click.option("--once", is_flag=True, help="Check what there is now, then end."),
            click.option(
                "--topics", metavar="NAME[,…]", default="", help="Topics to read besides those that are managed."
            ),
            click.option(
                "--config",
                "config",
                metavar="FILE",
                type=path,
                help="How brokers are reached (YAML): security_protocol, sasl_mechanism, …",
            ),
            click.option(
                "--late-minutes",
                type=click.FloatRange(min=0),
                default=10.0,
                show_default=True,
                help="The time, by the decisions' clock, to wait for what must still come.",
            ),
            click.option(
                "--trigger-seconds",
                type=click.FloatRange(min=0),
                default=60.0,
                show_default=True,
                help="The least time between two micro-batches.",
            ),
            click.option(
                "--max-mb",
                type=click.IntRange(min=1),
                default=1024,
                show_default=True,
                help="The approximate amount of topic data in a micro-batch.",
            ),
            click.option(
                "--max-decisions",
                type=click.IntRange(min=1),
                default=200_000,
                show_default=True,
                help="Decisions in a micro-batch.",
            ),
            click.option(
                "--sample-batches",
                type=click.IntRange(min=0),
                default=256,
                show_default=True,
                help="Open one of so many batches, to see that keys are where they belong; 0: none.",
            ),
            click.option("--metrics-address", metavar="HOST:PORT", help="The address of /metrics; none unless given."),
            click.option(
                "--findings-topic",
                metavar="NAME",
                default="__kordon.findings",
                show_default=True,
                help="Topic for findings; '' for none.",
            ),
            click.option("--table", metavar="NAME", help="Write findings to this table, too."),
            click.option(
                "--table-format",
                type=click.Choice(["delta", "iceberg"]),
                default="delta",
                show_default=True,
                help="Of --table.",
            ),
            click.option(
                "--master", metavar="URL", help="Spark's master; by default this machine, or what spark-submit says."
            ),
            click.option(
                "--driver-memory",
                default="640m",
                show_default=True,
                help="Java's heap, where Spark runs on this machine.",
            ),
            click.option(
                "--jars", metavar="FOLDER", type=path, help="Jars that Spark lacks: Kafka connector, Delta, Iceberg."
            ),
            click.option("--packages", metavar="COORDINATES", help="Have Spark itself fetch them, by Ivy."),
            click.option("--conf", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of Spark's."),
        ]
    ):
        command = option(command)
    return command


@audit.command()
@_options
def run(**given: Any) -> None:
    """Audits until SIGTERM or SIGINT; with --once, what there is now.

    The audit continues where it was ended, or killed: all it knows is in --out.

    \b
    Examples:
      kordon audit run --bootstrap kafka:9092 --out audit
      kordon audit run --once --bootstrap kafka:9092 --out audit && kordon audit report --from audit
      kordon audit run --once --files decisions/ --bootstrap kafka:9092 --out audit

    \b
    Exit codes of --once, which are the verdict of the report:
      0  pass: all was judged, and it holds
      1  fail: a promise was broken, see the findings
      2  it could not be checked
      3  unknown: nothing was found to be broken, but not all could be judged; or there was nothing to judge
    """  # noqa: D301  (\b is click's mark for a paragraph that keeps its lines)
    try:
        need_packages(*_NEEDED)
        code = _run(given)
    except CannotCheck as error:
        _fail(str(error))
    except (_Ended, KeyboardInterrupt):
        _fail("the audit was ended before it was done; the next run continues where it was")
    except click.ClickException:
        raise
    except Exception as error:  # no verdict, whatever it is: Python's own exit code would be one
        _fail(str(_of_its_own(error)))
    sys.exit(code)


class _Ended(BaseException):
    """SIGTERM or SIGINT while nothing can be ended in order."""


class _Signals:
    """SIGTERM and SIGINT: end what runs in order, or raise where there is nothing yet that could."""

    def __init__(self) -> None:
        self.stop: Callable[[], None] | None = None
        """Ends what runs."""
        self.is_held = False
        """While Java is started: whoever leaves it alone then leaves it behind."""
        self._was_sent = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def renew(self) -> None:
        """Takes back SIGINT, which PySpark takes for itself when a session is made, and what came meanwhile."""
        signal.signal(signal.SIGINT, self._take)
        self.is_held = False
        if self._was_sent:
            raise _Ended

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.stop is not None:
            self.stop()
        elif self.is_held:
            self._was_sent = True
        else:
            raise _Ended


def _run(given: Mapping[str, Any]) -> int:
    from kordon.spark_jobs import lock  # noqa: PLC0415
    from kordon.spark_jobs.judging.rules import gaps  # noqa: PLC0415
    from kordon.spark_jobs.judging.rules.all_rules import ALL  # noqa: PLC0415
    from kordon.spark_jobs.metrics import AuditMetrics  # noqa: PLC0415
    from kordon.spark_jobs.session import close_session, open_session  # noqa: PLC0415

    told = logging.StreamHandler()
    told.setFormatter(WithoutJavasStacks("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[told])
    logging.getLogger("kordon").setLevel(logging.INFO)
    signals = _Signals()
    options, setup = _asked(given), _setup(given)
    metrics = AuditMetrics({rule.number: rule.name for rule in (gaps.RULE, *ALL)})
    with lock.held(options.out):
        if given["metrics_address"]:
            _serve(metrics, given["metrics_address"])
        try:
            signals.is_held = True
            spark = open_session(setup)
            try:
                signals.renew()
                return _audit(spark, options, metrics, signals, is_once=given["once"])
            except (CannotCheck, click.ClickException):
                raise
            except Exception as error:
                raise _of_its_own(error) from error  # now, as Java's errors can say nothing when it has ended
            finally:
                close_session(spark)
        finally:
            metrics.close()


def _audit(spark: SparkSession, options: Options, metrics: AuditMetrics, signals: _Signals, *, is_once: bool) -> int:
    from kordon.spark_jobs.audit import Audit  # noqa: PLC0415

    made = Audit(spark, options, metrics)
    if is_once:
        verdict = made.once()
        click.echo(f"{verdict.value}: {made.summary()}")
        return {"pass": HOLDS, "fail": BROKEN}.get(verdict.value, NOT_ALL_JUDGED)
    signals.stop = made.stop
    log.info("the audit reads %s; its state and its findings are in %s", options.reading.told, options.out)
    try:
        made.run()
        told = made.summary()
    except Exception:
        if not made.is_stopping:
            raise
        told = "Spark was ended at the same time; what was under way is repeated by the next run"
    click.echo(f"ended: {told}")
    return HOLDS


def _of_its_own(error: Exception) -> CannotCheck:
    log.error("the audit failed by an error of its own", exc_info=error)
    return CannotCheck(f"the audit failed by an error of its own: {cause_of(words_of(error))}")


def _asked(given: Mapping[str, Any]) -> Options:
    from kordon.spark_jobs.audit import Options  # noqa: PLC0415
    from kordon.spark_jobs.brokers import Security  # noqa: PLC0415
    from kordon.spark_jobs.decisions_source import java_security  # noqa: PLC0415
    from kordon.spark_jobs.findings import FindingsTopic, Sinks, Table  # noqa: PLC0415
    from kordon.spark_jobs.sources import Reading  # noqa: PLC0415
    from kordon.spark_jobs.storage import absolute  # noqa: PLC0415

    bootstrap = given["bootstrap"]
    if not bootstrap and not given["folder"]:
        raise click.UsageError("name the brokers (--bootstrap), or a folder of decision files (--files), or both")
    security = Security.of(_security(given["config"]))
    topic = None
    if bootstrap and given["findings_topic"]:
        where = {"kafka.bootstrap.servers": bootstrap, **java_security(security)}
        topic = FindingsTopic(name=given["findings_topic"], options=where)
    table = Table(name=given["table"], format=given["table_format"]) if given["table"] else None
    return Options(
        out=absolute(given["out"]),
        reading=Reading(
            bootstrap=bootstrap,
            security=security,
            folder=given["folder"],
            most_decisions=given["max_decisions"],
            most_bytes=given["max_mb"] << 20,
            one_in=given["sample_batches"],
            is_pinned=given["once"],
        ),
        topics=tuple(name for name in given["topics"].split(",") if name),
        late_ms=int(given["late_minutes"] * 60_000),
        trigger_seconds=given["trigger_seconds"],
        sinks=Sinks(topic=topic, table=table),
    )


def _setup(given: Mapping[str, Any]) -> Setup:
    from kordon.spark_jobs.session import Setup  # noqa: PLC0415

    pairs = [each.partition("=") for each in given["settings"]]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise click.UsageError(f"--conf takes NAME=VALUE, not {wrong[0]!r}")
    return Setup(
        master=given["master"],
        driver_memory=given["driver_memory"],
        jars=given["jars"],
        packages=given["packages"],
        needs_kafka=bool(given["bootstrap"]) and bool(not given["folder"] or given["findings_topic"]),
        table=given["table_format"] if given["table"] else None,
        settings={name: value for name, _, value in pairs},
    )


def _security(file: Path | None) -> dict[str, Any]:
    """Reads how brokers are reached; of the environment too, where a password is better kept."""
    import yaml  # noqa: PLC0415

    told: Any = {}
    if file is not None:
        try:
            told = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        except (OSError, yaml.YAMLError) as error:
            raise click.BadParameter(f"{file}: {error}", param_hint="--config") from error
        unknown = sorted(set(told) - set(_SECURITY)) if isinstance(told, dict) else ["list"]
        if unknown:
            problem = f"{file} may have only {', '.join(_SECURITY)}; remove {unknown[0]}"
            raise click.BadParameter(problem, param_hint="--config")
    variables = {name: os.environ.get(f"KORDON_AUDIT_{name.upper()}") for name in _SECURITY}
    return {**told, **{name: value for name, value in variables.items() if value}}


def _serve(metrics: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise click.BadParameter(f"{address!r} is not HOST:PORT", param_hint="--metrics-address")
    try:
        metrics.serve(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - as the user says
    except OSError as error:
        raise CannotCheck(f"the address {address} cannot serve metrics: {error}") from error


def _fail(what: str) -> NoReturn:
    click.echo(what, err=True)
    sys.exit(NOT_CHECKED)
