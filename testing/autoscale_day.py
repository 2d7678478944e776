"""A topic under a load that rises and falls by ten, kept by `kordon autoscale`, with the order of keys checked.

`python -m kordon.testing.autoscale_day docs/autoscale.svg` draws load and partitions of a longer one (three minutes).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from kordon.testing.cluster import Cluster
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.key_order import KeyOrder
from kordon.testing.keyed_traffic import KeyedTraffic
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed
from kordon.testing.proxy_process import ProxyProcess

TOPIC: Final = "orders"
LOW, HIGH = 200, 2_000
"""Records a second."""
_SAMPLE_SECONDS: Final = 0.5


class AutoscalerProcess:
    """`kordon autoscale` beside a Kordon; a context manager.

    Args:
        policy: Of the one topic, as in the file.
        flags: Further ones of the command.
    """

    def __init__(self, proxy: ProxyProcess, policy: dict[str, Any], *flags: str, topic: str = TOPIC) -> None:
        self._folder = TemporaryDirectory(prefix="kordon-autoscale-")
        self.file = Path(self._folder.name) / "policies.yaml"
        self.file.write_text(json.dumps({"interval": "1s", "topics": {topic: policy}}))
        self._log = self.file.with_name("log")
        command = ["autoscale", str(self.file), "--bootstrap", proxy.bootstrap, "--admin", proxy.admin, *flags]
        self._command = [*DIES_WITH_PARENT, sys.executable, "-m", "kordon.proxy", *command]

    def __enter__(self) -> Self:
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait()
        self._folder.cleanup()

    def log(self) -> str:
        """Returns all that it has said."""
        return self._log.read_text()

    def events(self, event: str) -> list[dict[str, Any]]:
        """Returns the lines of one event."""
        lines = (json.loads(line) for line in self.log().splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]


@dataclass(frozen=True, slots=True)
class Sample:
    """What was so at one moment, by seconds since the begin."""

    at: float
    rate: float
    """Records acknowledged a second, since the last one."""
    partitions: int


@dataclass(slots=True)
class Day:
    """What has happened."""

    order: KeyOrder
    samples: list[Sample] = field(default_factory=list[Sample])
    changes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What the autoscaler says of each."""


@contextmanager
def begun(proxy: ProxyProcess, policy: dict[str, Any]) -> Iterator[tuple[KeyedTraffic, AutoscalerProcess]]:
    """Runs clients at a low rate on a managed topic, and an autoscaler."""
    create_managed(proxy.bootstrap, TOPIC)
    with KeyedTraffic(proxy.bootstrap, TOPIC, LOW) as traffic, AutoscalerProcess(proxy, policy) as autoscaler:
        traffic.begin_reading()
        yield traffic, autoscaler


def partitions_of(proxy: ProxyProcess) -> int:
    """Returns how many partitions the topic has at the brokers."""
    return int(proxy.topic(TOPIC)["undeleted_partition_count"])


def day(proxy: ProxyProcess, policy: dict[str, Any], seconds: Sequence[tuple[float, int]]) -> Day:
    """Lets the load go through rates, each for its time, and tells what was seen each half a second."""
    with begun(proxy, policy) as (traffic, autoscaler):
        seen = Day(traffic.order())
        began = before = time.monotonic()
        acknowledged = traffic.order().acknowledged
        for lasts, rate in seconds:
            traffic.set_rate(rate)
            ends = time.monotonic() + lasts
            while (now := time.monotonic()) < ends:
                total = traffic.order().acknowledged
                sample = Sample(now - began, (total - acknowledged) / max(now - before, 0.001), partitions_of(proxy))
                seen.samples.append(sample)
                before, acknowledged = now, total
                time.sleep(_SAMPLE_SECONDS)
        traffic.catch_up()
        seen.changes = autoscaler.events("autoscale_changed")
        return seen


def picture(seen: Day) -> str:
    """Draws the load of a day, and the partitions that the topic had."""
    width, height, left, top = 760.0, 260.0, 56.0, 34.0
    last = seen.samples[-1].at
    most = max(sample.rate for sample in seen.samples) * 1.1

    def x(at: float) -> float:
        return left + (width - 2 * left) * at / last

    def y(share: float) -> float:
        return top + (height - 2 * top) * (1 - share)

    load = " ".join(f"{x(each.at):.1f},{y(each.rate / most):.1f}" for each in seen.samples)
    steps: list[str] = []
    for before, each in zip([seen.samples[0], *seen.samples], seen.samples, strict=False):
        counts_here = (before.partitions, each.partitions)
        steps += [f"{x(each.at):.1f},{y(count / VIRTUAL_PARTITIONS):.1f}" for count in counts_here]
    ticks = "".join(
        f'<text x="{x(at):.0f}" y="{height - 14:.0f}" text-anchor="middle">{at} s</text>'
        for at in range(0, int(last) + 1, 30)
    )
    counts = "".join(
        f'<text x="{width - left + 8:.0f}" y="{y(count / VIRTUAL_PARTITIONS) + 4:.1f}" fill="#0a3069">{count}</text>'
        for count in (3, 6, 9, VIRTUAL_PARTITIONS)
    )
    rates = "".join(
        f'<text x="{left - 8:.0f}" y="{y(rate / most) + 4:.1f}" text-anchor="end" fill="#9a6700">{rate:,}</text>'
        for rate in (LOW, HIGH // 2, HIGH)
    )
    order = seen.order
    caption = f"{order.read:,} read, {order.out_of_order} out of order, {order.missing} lost, {order.doubled} doubled"
    box = f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {box}>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{left}" y="18" fill="#9a6700">records a second</text>
<text x="{width - left}" y="18" text-anchor="end" fill="#0a3069">partitions at the brokers</text>
<polyline points="{load}" fill="none" stroke="#d4a72c" stroke-width="1.5"/>
<polyline points="{" ".join(steps)}" fill="none" stroke="#0969da" stroke-width="2.5"/>
{rates}{counts}{ticks}
<text x="{width / 2:.0f}" y="18" text-anchor="middle" fill="#1a7f37">{caption}</text>
</svg>
"""


POLICY: Final[dict[str, Any]] = {
    "minimum": 3,
    "maximum": VIRTUAL_PARTITIONS,
    "bytes_per_second": "10KiB",
    "grow_after": "1s",
    "shrink_after": "2s",
    "cool_down": "1s",
}


def main(file: Path) -> None:
    """Draws a day of three minutes."""
    rates = (25.0, LOW), (25.0, HIGH // 2), (40.0, HIGH), (25.0, HIGH // 2), (45.0, LOW)
    slow = {"grow_after": "4s", "shrink_after": "10s", "cool_down": "5s"}
    with Cluster.start(brokers=1) as cluster, ProxyProcess.start(cluster.bootstrap()) as proxy:
        seen = day(proxy, POLICY | slow, rates)
    file.write_text(picture(seen))
    for change in seen.changes:
        print(f"{change['partitions']} -> {change['wanted']}: {change['because']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
