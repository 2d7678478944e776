"""The two ways on which the same transactional clients are tried: to a topic of Kafka's own, and to a managed one."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing import short_leases
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, create_ordinary
from kordon.testing.proxy_process import ProxyProcess

DIRECT: Final = "direct"
MANAGED: Final = "managed"
TRANSACTIONS: Final[dict[str, Any]] = {"ordering": {"transactions": True}}
"""The configuration of proxies that take transactions."""
_ORDINARY_PARTITIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Way:
    """Where clients begin, and what topics they get there."""

    bootstraps: Sequence[str]
    proxies: Sequence[ProxyProcess] = ()

    @property
    def partitions(self) -> int:
        """That clients see of a topic."""
        return VIRTUAL_PARTITIONS if self.proxies else _ORDINARY_PARTITIONS

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstraps[0]})

    def create(self, topic: str) -> None:
        """Creates a topic with 3 partitions."""
        make = create_managed if self.proxies else create_ordinary
        make(self.bootstraps[0], topic)


@contextmanager
def way_to(cluster: Cluster, name: str) -> Generator[Way]:
    """Goes directly to a cluster (DIRECT), or through two proxies that take transactions (MANAGED).

    Args:
        cluster: With no managed topics and no Kordon, if the way is to be managed.
        name: Of the way.
    """
    if name == DIRECT:
        yield Way([cluster.bootstrap()])
        return
    options: dict[str, Any] = {"config": TRANSACTIONS, "program": short_leases.PROGRAM}
    with (
        ProxyProcess.start(cluster.bootstrap(), **options) as first,
        ProxyProcess.start(cluster.bootstrap(), **options) as second,
    ):
        yield Way([first.bootstrap, second.bootstrap], [first, second])
