"""`python -m kordon.testing.order`: real clients on a topic that is resized, and a table of what was breached."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console

from kordon.testing.order.processes import DIALECT_GROUPS, DIALECT_PRODUCERS, GROUPS, PRODUCERS, ClientFailed
from kordon.testing.order.report import as_json, pauses_table, verdict_table
from kordon.testing.order.run import Outcome, Plan, Run, Topic


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _names(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _among(usual: Sequence[str], dialect: Sequence[str]) -> str:
    return f"{','.join(usual)}, or with Kordon's SDK {','.join(dialect)}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kordon.testing.order", description=__doc__)
    parser.add_argument("--bootstrap", action="append", required=True, help="where clients begin; may be given again")
    parser.add_argument("--topic", required=True, help="is created if there is none")
    parser.add_argument("--grow", type=_numbers, default=[3, 6], help="numbers of partitions: at first, then (3,6,4)")
    parser.add_argument("--seconds", type=float, default=60, help="for which producers send")
    parser.add_argument("--rate", type=int, default=600, help="records a second of each producer")
    parser.add_argument("--consume-rate", type=int, default=0, help="records a second of each member; 0: all there are")
    parser.add_argument("--keys", type=int, default=300, help="of each producer")
    parser.add_argument(
        "--churn-seconds", type=float, default=8, help="a member stays so long, or up to twice; 0: always"
    )
    parser.add_argument("--drain-seconds", type=float, default=60, help="for groups to catch up at the end")
    parser.add_argument(
        "--producers", type=_names, default=PRODUCERS, help=f"of {_among(PRODUCERS, DIALECT_PRODUCERS)}"
    )
    parser.add_argument("--groups", type=_names, default=GROUPS, help=f"of {_among(GROUPS, DIALECT_GROUPS)}")
    parser.add_argument("--virtual", type=int, default=0, help="virtual partitions of a topic that Kordon is to manage")
    parser.add_argument("--rewind-seconds", type=float, default=0, help="dialect members go back about so often")
    parser.add_argument("--killed-percent", type=int, default=0, help="of dialect members that leave: by SIGKILL")
    parser.add_argument("--silent-percent", type=int, default=0, help="of their callbacks that are never answered")
    parser.add_argument("--slow-percent", type=int, default=0, help="of dialect members: a tenth as fast")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the result, with examples")
    parser.add_argument("--keep", type=Path, help="empty folder for the histories, which are removed otherwise")
    return parser.parse_args()


def show(console: Console, outcome: Outcome, title: str) -> None:
    """Prints the tables of a run, examples of each breach, and what else is wrong."""
    console.print(verdict_table(outcome.verdict, title))
    for (anomaly, place), examples in outcome.verdict.findings.examples.items():
        for example in examples:
            console.print(f"{anomaly} in {place}: {example.plain()}", style="red", markup=False, highlight=False)
    console.print(pauses_table(outcome.pauses))
    for what, backlog in outcome.backlogs.items():
        told = ", ".join(f"{group} {behind:,}" for group, behind in sorted(backlog.items()))
        console.print(f"offsets behind at the {what}: {told}", highlight=False)
    for problem in outcome.problems:
        console.print(problem, style="red", markup=False, highlight=False)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Runs it; returns the exit code: 1 for an anomaly, 130 if it was stopped."""
    told, console = _arguments(), Console()
    signal.signal(signal.SIGTERM, _interrupt)
    first, *then = told.grow
    plan = Plan(
        bootstraps=told.bootstrap, topic=told.topic, seconds=told.seconds, resize_to=then, rate=told.rate,
        consume_rate=told.consume_rate, keys=told.keys, churn_seconds=told.churn_seconds,
        drain_seconds=told.drain_seconds, producers=told.producers, groups=told.groups, seed=told.seed,
        rewind_seconds=told.rewind_seconds, killed_percent=told.killed_percent, silent_percent=told.silent_percent,
        slow_percent=told.slow_percent,
    )  # fmt: skip
    if told.keep is not None:
        told.keep.mkdir(parents=True, exist_ok=True)
    topic = Topic(told.bootstrap[0], told.topic)
    try:
        with console.status("clients start") as status:
            topic.create(first, told.virtual)
            outcome = Run(plan, topic.resize, status.update).run(told.keep)
    except KeyboardInterrupt:
        return 130
    except (ClientFailed, RuntimeError) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        return 1
    show(console, outcome, f"{told.topic}: {' → '.join(map(str, told.grow))} partitions")
    if told.json is not None:
        told.json.write_text(json.dumps(as_json(outcome.verdict, outcome.pauses), indent=1))
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main())
