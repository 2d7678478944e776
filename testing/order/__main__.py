"""`python -m kordon.testing.order`: real clients on a topic that is resized, and a table of what was breached."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from kordon.testing.order.processes import DIALECT_GROUPS, DIALECT_PRODUCERS, GROUPS, PRODUCERS, ClientFailed
from kordon.testing.order.report import pauses_table, verdict_table
from kordon.testing.order.run import Outcome, Plan, Run, Topic


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _names(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _among(usual: Sequence[str], dialect: Sequence[str]) -> str:
    return f"{','.join(usual)}, or with Kordon's SDK {','.join(dialect)}"


def _arguments() -> dict[str, Any]:
    """Returns what is told; what is not is as the plan has it."""
    parser = argparse.ArgumentParser(
        prog="python -m kordon.testing.order", description=__doc__, argument_default=argparse.SUPPRESS
    )
    add = parser.add_argument
    add(
        "--bootstrap",
        action="append",
        required=True,
        dest="bootstraps",
        metavar="BOOTSTRAP",
        help="where clients begin; may be given again",
    )
    add("--topic", required=True, help="is created if there is none")
    add("--grow", type=_numbers, default=[3, 6], help="numbers of partitions: at first, then (3,6,4)")
    add("--seconds", type=float, help="for which producers send")
    add("--rate", type=int, help="records a second of each producer")
    add("--consume-rate", type=int, help="records a second of each member; 0: all there are")
    add("--keys", type=int, help="of each producer")
    add("--churn-seconds", type=float, help="a member stays so long, or up to twice; 0: always")
    add("--drain-seconds", type=float, help="for groups to catch up at the end")
    add("--producers", type=_names, help=f"of {_among(PRODUCERS, DIALECT_PRODUCERS)}")
    add("--groups", type=_names, help=f"of {_among(GROUPS, DIALECT_GROUPS)}")
    add("--virtual", type=int, default=0, help="virtual partitions of a topic that Kordon is to manage")
    add("--rewind-seconds", type=float, help="dialect members go back about so often")
    add("--killed-percent", type=int, help="of dialect members that leave: by SIGKILL")
    add("--silent-percent", type=int, help="of their callbacks that are never answered")
    add("--slow-percent", type=int, help="of dialect members: a tenth as fast")
    add("--seed", type=int)
    add("--keep", type=Path, default=None, help="empty folder for the histories, which are removed otherwise")
    return vars(parser.parse_args())


def show(console: Console, outcome: Outcome, title: str) -> None:
    """Prints the tables of a run, examples of each breach, and what else is wrong."""
    console.print(verdict_table(outcome.verdict, title))
    if not outcome.verdict.passed:
        console.print(str(outcome.verdict.findings), style="red", markup=False, highlight=False)
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
    grow, virtual, keep = (told.pop(name) for name in ("grow", "virtual", "keep"))
    plan = Plan(**told, resize_to=grow[1:])
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    topic = Topic(plan.bootstraps[0], plan.topic)
    try:
        with console.status("clients start") as status:
            topic.create(grow[0], virtual)
            outcome = Run(plan, topic.resize, status.update).run(keep)
    except KeyboardInterrupt:
        return 130
    except (ClientFailed, RuntimeError) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        return 1
    show(console, outcome, f"{plan.topic}: {' → '.join(map(str, grow))} partitions")
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main())
