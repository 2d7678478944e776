"""What all tests share: one cluster and one proxy, started when first asked for, and gone at the end."""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial

import psutil
import pytest
from hypothesis import HealthCheck, settings

from kordon.proxy.kafka.brokers import Brokers
from kordon.testing import timeouts
from kordon.testing.audits import spark_classes
from kordon.testing.broker_features import DESCRIBED_PRODUCERS, PEM_FILES
from kordon.testing.cluster import FOLDER_PREFIX, Cluster
from kordon.testing.cluster_links import links_to
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.emptied import emptied
from kordon.testing.folders import held_folders
from kordon.testing.leading import led, without_authorizer
from kordon.testing.managed_clients import TAKES
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.rights import Secured
from kordon.testing.same_draws import leave_out_constants_of_the_project
from kordon.testing.stalls import StallLoop

settings.register_profile("quick", derandomize=True, max_examples=60, deadline=None)
settings.register_profile("brief", settings.get_profile("quick"), max_examples=20)
settings.register_profile("deep", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
if settings.get_current_profile_name() == "quick":
    leave_out_constants_of_the_project(pytest.MonkeyPatch())
ProxyProcess.is_forked = True

collect_ignore_glob = ["clients/script_*.py", "clients/spark/*.py"]
"""Programs that the equivalence test runs; importing them here would judge the warnings of the clients."""


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Runs all coroutines on a loop for which a machine that stalls is no late answer."""
    return {"stalls": StallLoop}


def pytest_configure(config: pytest.Config) -> None:
    """Counts the processor time of tests that wait for nobody; has each Spark begin with the classes that are kept.

    `make quick` tries a third as many examples as `make test`.
    """
    if config.getoption("--quick", default=False) and settings.get_current_profile_name() == "quick":
        settings.load_profile("brief")
    spark_classes.use()
    config.pluginmanager.register(timeouts)


def pytest_runtest_setup() -> None:
    """Has Ctrl-C work: a shell has what it runs behind it ignore it, and a Spark that has ended leaves its handler."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the deep profile out unless it is asked for."""
    if "deep" in (config.option.markexpr or ""):
        return
    left_out = [item for item in items if item.get_closest_marker("deep")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


def started_processes() -> list[psutil.Process]:
    """All that this process has started, and those have, but for the helpers of `multiprocessing`."""
    own = psutil.Process()
    helpers = [each for each in own.children() if "multiprocessing" in " ".join(each.cmdline())]
    return [each for each in own.children(recursive=True) if each not in helpers]


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fails the run, at its very end, if a process or a cluster's folder of it is still there."""
    yield
    _, alive = psutil.wait_procs(started_processes(), timeout=60)
    left = [" ".join(process.cmdline()) for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    assert left == []
    assert [folder for folder in held_folders() if folder.name.startswith(FOLDER_PREFIX)] == []


@pytest.fixture
def collector_at_rest() -> None:
    """Keeps the collector from all that other tests have made, as the service keeps it from what it began with.

    It stays away from that for good: to look through all tests and modules again and again costs more than they do.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One broker with a plain listener."""
    with Cluster.start(brokers=1) as started:
        yield started


@pytest.fixture(scope="session")
def cluster3() -> Iterator[Cluster]:
    """Three brokers with a plain listener."""
    with Cluster.start(brokers=3) as started:
        yield started


@pytest.fixture(scope="session")
def open_cluster() -> Iterator[Cluster]:
    """One broker that holds nobody to ACLs, so that topics can be managed; a Kordon in front of it leads all others.

    Whoever leads anew where topics are managed already waits a lease before its first change (MISSING-WAITED). Proxies
    that join this one do not lead, and wait for nothing. A test that needs the controller itself takes `unled_cluster`.
    """
    with without_authorizer() as started, led(started):
        yield started


@pytest.fixture(scope="session")
def spare_cluster() -> Iterator[Cluster]:
    """One broker that holds nobody to ACLs, for those who begin with `emptied`."""
    with without_authorizer() as started:
        yield started


@pytest.fixture
def unled_cluster(spare_cluster: Cluster) -> Cluster:
    """One broker with nothing on it that holds nobody to ACLs; the first Kordon in front of it leads."""
    return emptied(spare_cluster)


@pytest.fixture(scope="session")
def secure_cluster() -> Iterator[Cluster]:
    """One broker with TLS and SASL listeners; sessions must log in anew every 8 seconds."""
    if PEM_FILES.is_missing:
        pytest.skip(PEM_FILES.reason)
    listeners = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    with Cluster.start(brokers=1, listeners=listeners, config={"connections.max.reauth.ms": "8000"}) as started:
        yield started


@pytest.fixture(scope="session")
def strict_cluster() -> Iterator[Secured]:
    """One broker that allows nothing that no ACL allows, behind a Kordon that is no super user."""
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    with Secured.start() as started:
        yield started


@pytest.fixture(scope="session")
def kordon(cluster: Cluster) -> Iterator[ProxyProcess]:
    """A proxy in front of `cluster`."""
    with ProxyProcess.start(bootstrap=cluster.bootstrap()) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def proxy(open_cluster: Cluster) -> Iterator[ProxyProcess]:
    """A proxy in front of `open_cluster`, of the module's own."""
    with ProxyProcess.start(open_cluster.bootstrap()) as started:
        yield started


@pytest.fixture(scope="module")
def proxies(open_cluster: Cluster) -> Iterator[list[ProxyProcess]]:
    """Two proxies in front of `open_cluster`, of the module's own."""
    bootstrap = open_cluster.bootstrap()
    with ProxyProcess.start(bootstrap) as first, ProxyProcess.start(bootstrap) as second:
        yield [first, second]


@pytest.fixture(scope="module")
def takers(open_cluster: Cluster) -> Iterator[list[ProxyProcess]]:
    """Two proxies in front of `open_cluster` that take transactions, of the module's own."""
    bootstrap = open_cluster.bootstrap()
    with ProxyProcess.start(bootstrap, config=TAKES) as first, ProxyProcess.start(bootstrap, config=TAKES) as second:
        yield [first, second]


@pytest.fixture(scope="module")
def compacting_cluster() -> Generator[Cluster, None, None]:
    """One broker that looks for something to compact all the time."""
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    with Cluster.start(config={"authorizer.class.name": "", "log.cleaner.backoff.ms": "100"}) as started:
        yield started


@pytest.fixture
def dialect(proxy: ProxyProcess) -> Iterator[DialectConnection]:
    """A connection through the proxy that has said that it speaks the dialect."""
    with DialectConnection(proxy.bootstrap) as connection:
        yield connection


@pytest.fixture
async def worker_of() -> AsyncIterator[Callable[[Cluster], Awaitable[Brokers]]]:
    """Makes what a worker knows of a cluster's brokers, with connections of its own."""
    async with AsyncExitStack() as stack:

        async def make(cluster: Cluster) -> Brokers:
            return Brokers(await stack.enter_async_context(links_to(cluster)))

        yield make


@pytest.fixture
def new_worker(
    cluster: Cluster, worker_of: Callable[[Cluster], Awaitable[Brokers]]
) -> Callable[[], Awaitable[Brokers]]:
    """Makes what a worker knows of the shared cluster's brokers."""
    return partial(worker_of, cluster)


@pytest.fixture
async def brokers(new_worker: Callable[[], Awaitable[Brokers]]) -> Brokers:
    """The brokers of the shared cluster, as one worker of Kordon's knows them."""
    return await new_worker()
