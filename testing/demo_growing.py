"""The second half of `make demo`: a managed topic grows and shrinks under real clients while a proxy is killed.

Java, librdkafka and aiokafka write, groups of three kinds read, Kafka Streams counts words exactly once, and producers
in a group copy a file while three of them are killed, all through Kordon; at the end what each of them saw is held
against what was acknowledged, and Spark audits what the proxies have decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException
from rich.console import Console

from kordon.testing.cluster import Cluster
from kordon.testing.demo_audit import RECORDED, audit_and_break
from kordon.testing.demo_exactly_once import exact_count, show_counts
from kordon.testing.demo_sources import copied_files, show_copied
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, resize
from kordon.testing.order.__main__ import show
from kordon.testing.order.run import Action, Outcome, Plan, Run
from kordon.testing.proxy_process import ProxyProcess

TOPIC: Final = "orders"
SECONDS: Final = 40.0
"""For which producers send."""
RESIZE_TO: Final = (6, 3)
"""After a third of the time, and after two."""
_SIZES: Final = " → ".join(map(str, (3, *RESIZE_TO)))
KILL_AT: Final = 0.45
"""As a part of all."""
WORDS: Final = """\
allowed again: read twice, as a member left without a commit (as in Kafka)
lost-write: acknowledged, and passed over by a group   unseen: never read
duplicate: stored twice   inconsistent-offsets: not stored where it was acknowledged
poll-skip: a member jumped over a record   G1a: read, though it was refused or never sent
nonmonotonic-poll, -send: read, or stored, after a later record of its key
inversion: stored after a later record of its producer
"""
RESIZE_SECONDS: Final = 40.0
"""The dead proxy may still be serving for a lease's time (20 s), which a change of partitions waits out."""


def grow_and_shrink(console: Console, *, audited: bool = False) -> list[str]:
    """Runs it.

    Args:
        audited: Also record what the proxies decide, and have Spark check it.

    Returns:
        What was wrong.
    """
    # without ACLs: rights are tested elsewhere
    with Cluster.start(config={"authorizer.class.name": ""}) as cluster:
        bootstrap = cluster.bootstrap()
        config = {**(RECORDED if audited else {}), "ordering": {"transactions": True}}
        outcome, uncounted = _through_two_proxies(console, bootstrap, config)
        show(console, outcome, f"{TOPIC}: {_SIZES} partitions, one of two proxies killed")
        console.print(WORDS, highlight=False)
        return _wrong(outcome) + uncounted + (audit_and_break(console, bootstrap) if audited else [])


def _through_two_proxies(console: Console, bootstrap: str, config: Mapping[str, Any]) -> tuple[Outcome, list[str]]:
    """Returns what came of the run, and what is wrong with the words and lines that came of it meanwhile."""
    with (
        ProxyProcess.start(bootstrap, config=config) as first,
        ProxyProcess.start(bootstrap, config=config) as second,
        exact_count([first.bootstrap, second.bootstrap]) as count,
        copied_files([first.bootstrap, second.bootstrap], SECONDS) as files,
    ):
        admin = create_managed(first.bootstrap, TOPIC, {"log_level": "0"})
        console.print(
            f"{TOPIC}: 3 partitions, {VIRTUAL_PARTITIONS} virtual ones; proxies on {first.bootstrap} and"
            f" {second.bootstrap}",
            highlight=False,
        )

        def change(partitions: int) -> None:
            try:
                changed = resize(admin, TOPIC, partitions), files.change(partitions)
                count.change(partitions)
                for each in changed:
                    each.result(RESIZE_SECONDS)
            except KafkaException as error:
                raise RuntimeError(str(error)) from error

        plan = Plan(
            bootstraps=[first.bootstrap, second.bootstrap],
            topic=TOPIC,
            seconds=SECONDS,
            resize_to=RESIZE_TO,
            actions=[Action(KILL_AT * SECONDS, "kill -9 of a proxy", second.kill)],
        )
        with console.status("clients start") as status:
            outcome = Run(plan, change, status.update).run()
            status.update("Streams counts what is left")
            return outcome, show_counts(console, count, _SIZES) + show_copied(console, files, _SIZES)


def _wrong(outcome: Outcome) -> list[str]:
    wrong = list(outcome.problems)
    if not outcome.verdict.passed:
        wrong.append("the order of a key was broken, or a record was lost or doubled: see the table")
    return wrong
