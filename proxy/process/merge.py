"""What several workers say about themselves, merged into what one proxy would say."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from kordon.proxy.runtime.families import Family, counter, gauge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kordon.proxy.process.explain import Facts


class Supervised(NamedTuple):
    """The supervisor's counts of its workers."""

    running: int
    restarts: Mapping[int, int]


SUPERVISOR: Final[tuple[Family[Supervised], ...]] = (
    gauge("kordon_workers", lambda s: s.running, "Workers that are running."),
    counter(
        "kordon_worker_restarts_total",
        lambda s: {str(number): count for number, count in s.restarts.items()},
        "How often a worker was started again.",
        "worker",
    ),
)
"""What the supervisor adds; there with several workers only."""

NO_WORKER: Final[Facts] = {"enabled": True, "control": None, "topics": []}
"""/topics while no worker answers."""

_Sums: TypeAlias = "float | dict[str, _Sums]"


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        """Yields what it was given."""
        yield from self._families


def merge_metrics(pages: Mapping[int, bytes], restarts: Mapping[int, int]) -> bytes:
    """Puts the metrics of all workers into one page, every sample with the label `worker`.

    Args:
        pages: /metrics of each worker that answered, by its number.
        restarts: The number of restarts of each worker.
    """
    families: dict[str, Metric] = {}
    for number, page in sorted(pages.items()):
        for family in text_string_to_metric_families(page.decode()):
            merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                labels = {**sample.labels, "worker": str(number)}
                merged.add_sample(sample.name, labels, sample.value)
    registry = CollectorRegistry(auto_describe=False)
    supervised = Supervised(len(pages), restarts)
    registry.register(_Families([*families.values(), *(each.collect(supervised) for each in SUPERVISOR)]))
    return generate_latest(registry)


def merge_status(statuses: Sequence[Facts]) -> Facts:
    """Makes one status of many: counts are summed, what is the same everywhere is taken from the first.

    Args:
        statuses: /status of each worker that answered; may be empty.
    """
    if not statuses:
        return {"state": "starting", "unready": ["no worker is running"]}
    first = statuses[0]
    return {
        "version": first["version"],
        "started_at": min(status["started_at"] for status in statuses),
        "uptime_seconds": max(status["uptime_seconds"] for status in statuses),
        "state": _common_state([status["state"] for status in statuses]),
        "upstream": first["upstream"],
        "listeners": _sum_listeners(statuses),
        **{
            name: _sum([status[name] for status in statuses]) for name in ("connections", "requests", "bytes", "limits")
        },
        "ordering": _merge_ordering([status["ordering"] for status in statuses]),
        **{
            name: [f"worker {status['worker']}: {each}" for status in statuses for each in status.get(name, [])]
            for name in ("unready", "notes")
        },
    }


def best_view(pages: Iterable[Facts]) -> Facts | None:
    """Picks the page about managed topics that tells most: the controller's, else one of a worker that serves them.

    Args:
        pages: /topics or /topics/NAME of each worker that answered, errors among them.
    """

    def knowledge(page: Facts) -> tuple[bool, bool, int]:
        control: Facts | None = page["control"]
        if control is None:
            return False, False, 0
        return control["procedures"] is not None, control["serves"], control["layouts_position"]

    return max((page for page in pages if "error" not in page), key=knowledge, default=None)


def _merge_ordering(sections: Sequence[Facts]) -> Facts:
    """Managed topics are served when all workers do; one of them may be the controller."""
    if not all(section["enabled"] for section in sections):
        return {"enabled": False}
    return {
        "enabled": True,
        "topics": max(section["topics"] for section in sections),
        "serves": all(section["serves"] for section in sections),
        "why_not": next((section["why_not"] for section in sections if section["why_not"]), None),
        "generation": max((each["generation"] for each in sections if each["generation"] is not None), default=None),
        "leads": any(section["leads"] for section in sections),
        "lease_seconds_left": min(section["lease_seconds_left"] for section in sections),
        "layouts_position": min(section["layouts_position"] for section in sections),
        "fences": max(section["fences"] for section in sections),
        "procedures": sum(section["procedures"] for section in sections),
    }


def _common_state(states: Sequence[str]) -> str:
    """Running when all are, else what the others do."""
    return next((state for state in states if state != "running"), "running")


def _sum_listeners(statuses: Sequence[Facts]) -> list[Facts]:
    counts: Counter[tuple[str, str]] = Counter()
    for status in statuses:
        for listener in status["listeners"]:
            counts[listener["address"], listener["role"]] += listener["connections"]
    return [{"address": address, "role": role, "connections": n} for (address, role), n in counts.items()]


def _sum(parts: Sequence[_Sums]) -> _Sums:
    """Adds numbers, within objects name by name."""
    objects = [part for part in parts if isinstance(part, dict)]
    if objects:
        names = dict.fromkeys(name for each in objects for name in each)
        return {name: _sum([each[name] for each in objects if name in each]) for name in names}
    return sum(part for part in parts if not isinstance(part, dict))
