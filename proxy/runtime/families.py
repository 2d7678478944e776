"""Families of metrics: their names, types, labels and meanings, and where each value comes from.

A table of families is the one place that has all of that. Tests compare `docs/metrics.md`, dashboards and alerts with
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from kordon.proxy.core.tally import Histogram

T = TypeVar("T")
_Number: TypeAlias = "float | Histogram"
Value: TypeAlias = "_Number | Mapping[Any, _Number]"
"""A number; or numbers by their one label, or by all of their labels as a tuple."""


@dataclass(frozen=True, slots=True)
class Family(Generic[T]):
    """One metric, as it is documented and as it is read."""

    kind: str
    """counter, gauge or histogram."""
    name: str
    read: Callable[[T], Value]
    """Returns its value, of a histogram a `Histogram`."""
    help: str
    """What it means, in one sentence."""
    labels: tuple[str, ...]

    def collect(self, counted: T | None) -> Metric:
        """Makes what prometheus_client shows.

        Args:
            counted: The object from which the family is read; None: it is switched off, and so counts nothing.
        """
        samples = self._samples(counted)
        if self.kind == "histogram":
            observed = HistogramMetricFamily(self.name, self.help, labels=self.labels)
            for labels, value in samples:
                assert isinstance(value, Histogram), self.name
                observed.add_metric(labels, buckets=_cumulated(value), sum_value=value.total)
            return observed
        metric = (CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily)(
            self.name, self.help, labels=self.labels
        )
        for labels, value in samples:
            assert not isinstance(value, Histogram), self.name
            metric.add_metric(labels, value)
        return metric

    def _samples(self, counted: T | None) -> Sequence[tuple[tuple[str, ...], _Number]]:
        if counted is None:
            return [] if self.labels else [((), 0)]
        value = self.read(counted)
        if not isinstance(value, Mapping):
            return [((), value)]
        return sorted((key if isinstance(key, tuple) else (key,), number) for key, number in value.items())


def counter(name: str, read: Callable[[T], Value], help_text: str, *labels: str) -> Family[T]:
    """Makes the row of what only rises."""
    return Family("counter", name, read, help_text, labels)


def gauge(name: str, read: Callable[[T], Value], help_text: str, *labels: str) -> Family[T]:
    """Makes the row of what rises and falls."""
    return Family("gauge", name, read, help_text, labels)


def histogram(name: str, read: Callable[[T], Value], help_text: str, *labels: str) -> Family[T]:
    """Makes the row of what is observed many times."""
    return Family("histogram", name, read, help_text, labels)


class Collected(Protocol):
    """The families that `Metrics` shows."""

    def collect(self) -> Iterator[Metric]:
        """Yields families, as they stand now."""
        ...


class FamilySource(Generic[T]):
    """Families, and the one thing that all of them are read from.

    Args:
        look: Returns that thing. It is called once for each scrape. None: what would count is switched off.
    """

    def __init__(self, families: Sequence[Family[T]], look: Callable[[], T | None]) -> None:
        self._families = families
        self._look = look

    def collect(self) -> Iterator[Metric]:
        """Yields every family, in the order of the table."""
        counted = self._look()
        return (family.collect(counted) for family in self._families)


def _cumulated(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus' buckets count what is at most their bound, so each contains the one before."""
    buckets: list[tuple[str, float]] = []
    so_far = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        so_far += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), so_far))
    return buckets
