"""The dashboards: well-formed by Grafana's rules, and every panel shows data of a real Kordon with traffic.

Grafana itself is not needed: a panel is its queries, and a real Prometheus that scrapes a real run answers them.
"""

import json
import math
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from kordon.proxy.process.managed_families import FAMILIES as PROXY_FAMILIES
from kordon.spark_jobs.families import FAMILIES as AUDIT_FAMILIES
from kordon.testing.certificates import make_certificates
from kordon.testing.cluster import Cluster
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.managed_clients import create_managed, create_ordinary, manage, read, resize, write
from kordon.testing.ports import free_ports
from kordon.testing.proxy_process import ProxyProcess

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"
SCHEMA_VERSION: Final = 42
"""Of dashboards in Grafana 12.2, the version in the compose file (`schemaVersion` of @grafana/schema 12.2.0)."""
GRID_COLUMNS: Final = 24
LABELS: Final = {
    **{name: family.labels for name, family in PROXY_FAMILIES.items()},
    **{name: family.labels for name, family in AUDIT_FAMILIES.items()},
}
"""Of each metric of proxy and auditor."""
PROCESS_METRICS: Final = {
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
}


SOON: Final = {"ordering": {"group_lag_ms": 500}}
"""What is looked at now and then, half a minute apart by default."""


class Query(NamedTuple):
    """One query of a panel."""

    dashboard: str
    panel: str
    ref_id: str
    expression: str

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}: {self.ref_id}"


def dashboards() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels that show something; rows only head them."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def annotations(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """What Prometheus marks on all graphs of a dashboard."""
    return [each for each in dashboard["annotations"]["list"] if each["datasource"]["type"] == "prometheus"]


def queries() -> list[Query]:
    """Every query of every panel and annotation of every dashboard."""
    shown = [
        Query(name, panel["title"], target["refId"], target["expr"])
        for name, dashboard in dashboards().items()
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]
    marked = [
        Query(name, each["name"], each["target"]["refId"], each["target"]["expr"])
        for name, dashboard in dashboards().items()
        for each in annotations(dashboard)
    ]
    return shown + marked


@pytest.fixture(params=list(dashboards()))
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dashboards()[request.param]


def test_dashboard_has_the_current_schema_and_a_fixed_identity(dashboard: dict[str, Any]) -> None:
    """Grafana need not migrate it, links to it stay good, and a restart does not double it."""
    assert dashboard["schemaVersion"] == SCHEMA_VERSION
    assert dashboard["uid"].startswith("kordon-")
    assert "id" not in dashboard, "the id is the database's, not the file's"


def test_panels_have_their_own_ids_and_places(dashboard: dict[str, Any]) -> None:
    """No two panels share an id or a cell of the grid, and none reaches over its edge."""
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= GRID_COLUMNS, panel["title"]
        for column in range(place["x"], place["x"] + place["w"]):
            for line in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((column, line), panel["title"]) == panel["title"]


def test_panels_say_what_they_show_and_in_which_unit(dashboard: dict[str, Any]) -> None:
    """Whoever looks at a graph at night finds its meaning behind the i, and no bare numbers."""
    for panel in panels(dashboard):
        assert len(panel["description"]) > 20, panel["title"]
        if panel["type"] != "table":
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_panels_ask_the_chosen_datasource_about_the_chosen_instances(dashboard: dict[str, Any]) -> None:
    """The variables at the top of the dashboard hold for all of it."""
    for panel in panels(dashboard):
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        for target in panel["targets"]:
            selectors = re.findall(r"\{(.*?)\}", target["expr"])
            assert selectors
            assert all('instance=~"$instance"' in selector for selector in selectors), panel["title"]
    for each in annotations(dashboard):
        assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, each["name"]


def test_the_topic_at_the_top_of_the_dashboard_holds_for_all_that_is_counted_by_topic() -> None:
    """Who picks one topic of hundreds sees that one in every panel and annotation that tells topics apart."""
    managed = dashboards()["managed"]
    assert [variable["name"] for variable in managed["templating"]["list"]] == ["datasource", "instance", "topic"]
    for query in (each for each in queries() if each.dashboard == "managed"):
        for name, selector in re.findall(r"(kordon_\w+?)(?:_bucket|_sum)?\{(.*?)\}", query.expression):
            assert ('topic=~"$topic"' in selector) == ("topic" in LABELS[name]), query


def test_the_first_row_of_managed_topics_tells_their_state_in_numbers() -> None:
    """Who opens it at night sees before all graphs whether something waits, is damaged or has no controller."""
    row, *rest = dashboards()["managed"]["panels"]
    glance = [panel for panel in rest if panel["gridPos"]["y"] == row["gridPos"]["y"] + 1]
    assert {panel["type"] for panel in glance} == {"stat"}
    assert {"Topics", "Controllers", "Changes under way", "Findings, last hour"} <= {each["title"] for each in glance}


def test_queries_name_only_metrics_and_labels_that_kordon_exports() -> None:
    """A renamed metric or label breaks this test instead of emptying a panel."""
    for query in queries():
        names = set(re.findall(r"\b(?:kordon|process)_\w+(?=\{)", query.expression))
        assert names, query
        families = {re.sub(r"_(?:bucket|sum)$", "", name) for name in names}
        assert families <= LABELS.keys() | PROCESS_METRICS, query
        known = {label for name in families & LABELS.keys() for label in LABELS[name]}
        grouped = {
            label.strip() for group in re.findall(r"by \((.*?)\)", query.expression) for label in group.split(",")
        }
        assert grouped <= known | {"instance", "worker", "le"}, query


def test_every_metric_of_kordon_is_on_a_dashboard_or_knowingly_left_out() -> None:
    """A new metric gets a panel, or its place in this list."""
    left_out = {"kordon_responses_total"}  # its difference to requests is what is in flight
    asked = "\n".join(query.expression for query in queries())
    shown = {name for name in LABELS if re.search(rf"\b{name}(_bucket|_sum)?\b", asked)}
    assert LABELS.keys() - shown == left_out


class Prometheus(NamedTuple):
    """A real Prometheus server that scrapes a Kordon every second."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples that an instant query gives now."""
        form = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{form}", timeout=60) as answer:
            found = json.load(answer)
        assert found["status"] == "success"
        result = found["data"]["result"]
        assert isinstance(result, list)
        return result


@contextmanager
def prometheus(targets: dict[str, str], folder: Path) -> Iterator[Prometheus]:
    """Runs Prometheus, which scrapes targets by job, until the block ends, with its data in `folder`."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not here (Debian: apt install prometheus)")
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_ports(1)}"
    arguments = [
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen([program, *arguments], stdout=log, stderr=log) as server:
        try:
            wait_until_ready(f"http://{address}", server, folder / "log")
            yield Prometheus(f"http://{address}")
        finally:
            server.kill()


def wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until Prometheus answers; shows its log when it does not."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    pytest.fail(f"Prometheus did not start:\n{log.read_text()}")


def make_traffic(client: dict[str, str], topic: str) -> None:
    """A producer and a consumer group, so that every leg and the usual APIs have been used."""
    write({**client, "linger.ms": 1}, topic, ({"value": str(number)} for number in range(500)))
    assert len(read(client, topic, 500, commits=True)) >= 500  # a topic may have been written before


def filled_in(expression: str) -> str:
    """The query as Grafana sends it, with all instances chosen and an interval that fits the scrapes."""
    return expression.replace("$__rate_interval", "15s").replace("$instance", ".*").replace("$topic", ".*")


def ever(expression: str) -> str:
    """Asks what a query has given at any second of five minutes: what a change waits for is shown until it ends."""
    return f"max_over_time(({filled_in(expression)})[5m:1s])"


def numbers(samples: list[dict[str, Any]]) -> list[float]:
    """The values of samples that a panel can draw; NaN is what a quantile of nothing gives."""
    return [value for sample in samples if not math.isnan(value := float(sample["value"][1]))]


@pytest.mark.broker
def test_every_panel_shows_data_of_a_kordon_with_traffic(unled_cluster: Cluster, tmp_path: Path) -> None:
    """Each query gives numbers when a real Prometheus scrapes a Kordon that real clients use, over TLS."""
    files = make_certificates(tmp_path)
    tls = {"certificate": str(files.server), "key": str(files.server_key)}
    with (
        ProxyProcess.start(unled_cluster.bootstrap(), config={"listen": {"tls": tls}, **SOON}) as kordon,
        prometheus({"kordon": kordon.admin}, tmp_path) as server,
    ):
        client = {"bootstrap.servers": kordon.bootstrap, "security.protocol": "ssl", "ssl.ca.location": str(files.ca)}
        settings = {name: value for name, value in client.items() if name != "bootstrap.servers"}
        admin = create_managed(kordon.bootstrap, "dashboard-managed", settings)
        create_ordinary(unled_cluster.bootstrap(), "dashboard-adopted")
        make_traffic(client, "dashboard-adopted")
        manage(admin, "dashboard-adopted", transition_ms="5000").result(60)
        waiting = [query for query in queries() if query.dashboard != "audit"]
        assert len(waiting) > 20
        deadline = time.monotonic() + 240  # on a machine that is busy with other tests
        for partitions in cycle((4, 3)):
            if (not waiting and drawn_apis(server) >= APIS) or time.monotonic() > deadline:
                break
            resize(admin, "dashboard-managed", partitions).result(60)
            make_traffic(client, f"dashboard-{uuid.uuid4().hex[:8]}")
            make_traffic(client, "dashboard-managed")
            waiting = [query for query in waiting if not numbers(server.query(ever(query.expression)))]
        assert [str(query) for query in waiting] == []
        check_plausible(server)


@contextmanager
def auditor(bootstrap: str, folder: Path) -> Iterator[str]:
    """Runs `kordon audit` until the block ends; the address of its metrics."""
    pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")
    address = f"127.0.0.1:{free_ports(1)}"
    command = [str(Path(sys.executable).with_name("kordon")), "audit", "run", f"--bootstrap={bootstrap}"]
    command += [f"--out={folder / 'audit'}", f"--metrics-address={address}", "--trigger-seconds=1", "--master=local[1]"]
    with (
        (folder / "audit.log").open("w") as log,
        subprocess.Popen([*DIES_WITH_PARENT, *command], stdout=log, stderr=log) as process,
    ):
        try:
            yield address
            assert process.poll() is None, (folder / "audit.log").read_text()[-4000:]
        finally:
            process.terminate()


@pytest.mark.broker
@pytest.mark.deep  # minutes of CPU, in which Spark works out what it will do with next to nothing
@pytest.mark.timeout(900)
def test_every_panel_of_the_audit_shows_data_of_an_auditor_at_work(unled_cluster: Cluster, tmp_path: Path) -> None:
    """Each query gives numbers when a real Prometheus scrapes a Kordon that records its decisions, and the auditor."""
    broker = unled_cluster.bootstrap("PLAINTEXT")
    with (
        ProxyProcess.start(broker, config={"decisions": {"to": "topic"}}) as kordon,
        auditor(broker, tmp_path) as metrics,
        prometheus({"kordon": kordon.admin, "kordon-audit": metrics}, tmp_path) as server,
    ):
        create_managed(kordon.bootstrap, "dashboard-audited")
        waiting = [query for query in queries() if query.dashboard == "audit"]
        assert len(waiting) > 15
        deadline = time.monotonic() + 600
        while waiting and time.monotonic() < deadline:
            make_traffic({"bootstrap.servers": kordon.bootstrap}, "dashboard-audited")
            waiting = [query for query in waiting if not numbers(server.query(filled_in(query.expression)))]
        assert [str(query) for query in waiting] == [], (tmp_path / "audit.log").read_text()[-4000:]
        assert numbers(server.query(first_queries()["Broken promises"])) == [0.0]


APIS = {"produce", "fetch", "metadata"}
"""Some of what the traffic asks for; each has a rate from the second scrape on that sees it."""


def first_queries() -> dict[str, str]:
    """The first query of each panel, by the panel's title."""
    return {query.panel: filled_in(query.expression) for query in queries() if query.ref_id == "A"}


def drawn_apis(server: Prometheus) -> set[str]:
    """The APIs that have a line in the panel of requests."""
    return {sample["metric"]["api"].lower() for sample in server.query(first_queries()["Requests by API"])}


def check_plausible(server: Prometheus) -> None:
    """The numbers are those of the traffic: produce and fetch among the APIs, one broker, nothing wrong."""
    by_title = first_queries()
    assert drawn_apis(server) >= APIS
    assert numbers(server.query(by_title["Brokers reached"])) == [1.0]
    assert numbers(server.query(by_title["Errors, last 5 minutes"])) == [0.0]
    assert numbers(server.query(by_title["Topics"])) == [2.0]
    assert numbers(server.query(by_title["Controllers"])) == [1.0]
    assert numbers(server.query(by_title["Findings, last hour"])) == [0.0]
    assert 0 < min(numbers(server.query(by_title["Shortest lease"]))) <= 20
    legs = {sample["metric"]["leg"] for sample in server.query(by_title["Legs, p99"])}
    assert legs == {"request", "broker", "response"}
