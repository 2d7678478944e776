"""The compose file: valid by the Compose Specification, and its parts name each other rightly."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from kordon.client.examples import check_order
from kordon.proxy.config.config import Config
from kordon.proxy.config.config_load import load
from kordon.spark_jobs.cli import audit

DEPLOY = Path(__file__).parents[2] / "deploy"
SCHEMA = Path(__file__).parent / "compose-spec.json"
FILES = ("compose.yaml", "compose.dashboards.yaml")
DEMO_PROXIES = ("proxy-1", "proxy-2")
IMAGE_ENVIRONMENT = {"KORDON_ADMIN__ADDRESS": "0.0.0.0:8080"}


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    """A compose file as plain values."""
    document = yaml.safe_load((DEPLOY / name).read_text())
    assert isinstance(document, dict)
    return document


def service(name: str) -> dict[str, Any]:
    found = compose()["services"][name]
    assert isinstance(found, dict)
    return found


def kordon_config() -> Config:
    """What Kordon makes of its environment in the compose file, in the image."""
    environment = service("kordon")["environment"] | {"KORDON_LISTEN__ADVERTISE": "localhost"}
    return load(DEPLOY / "kordon.yaml", IMAGE_ENVIRONMENT | environment).config


@pytest.mark.parametrize("name", FILES)
def test_compose_file_is_valid_by_the_specification(name: str) -> None:
    """No key is misspelt and no value has the wrong shape."""
    validator = Draft7Validator(json.loads(SCHEMA.read_text()))
    assert [error.message for error in validator.iter_errors(compose(name))] == []


def test_docker_compose_accepts_the_files() -> None:
    """`docker compose config` resolves both files together, where the plugin is there."""
    if shutil.which("docker") is None:
        pytest.skip("docker is not here")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("docker has no compose plugin here (Debian: apt install docker-compose-plugin)")
    files = [word for name in FILES for word in ("-f", str(DEPLOY / name))]
    done = subprocess.run(
        ["docker", "compose", *files, "config", "--quiet"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_image_defaults_are_those_of_the_dockerfile() -> None:
    """The admin address these tests take for the image's is the one the Dockerfile sets."""
    dockerfile = (DEPLOY.parent / "Dockerfile").read_text()
    for name, value in IMAGE_ENVIRONMENT.items():
        assert f"{name}={value}" in dockerfile


def test_clients_can_reach_kordon_and_nothing_else() -> None:
    """Only Kordon publishes ports: a client on the host that works, works through Kordon."""
    assert [name for name, one in compose()["services"].items() if "ports" in one] == ["kordon"]
    assert all(list(one["networks"]) == ["kordon"] for one in compose()["services"].values())


def test_dashboards_are_published_to_the_own_host_only() -> None:
    """Prometheus and Grafana have no log-in here, so no other host may reach them."""
    for one in compose("compose.dashboards.yaml")["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in one["ports"])


def test_published_ports_are_those_kordon_listens_on() -> None:
    """Bootstrap and the broker's port by its node id, each under its own number as clients are told."""
    listen = kordon_config().listen
    node_id = service("kafka")["environment"]["KAFKA_NODE_ID"]
    expected = [listen.address.port, listen.port_of(node_id)]
    assert service("kordon")["ports"] == [f"{port}:{port}" for port in expected]


def test_kordon_bootstraps_where_kafka_advertises() -> None:
    """The broker's advertised address is the one Kordon is told."""
    advertised = service("kafka")["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert advertised == f"PLAINTEXT://{kordon_config().upstream.bootstrap[0]}"


def test_kordon_has_time_to_drain() -> None:
    """Docker waits longer before it kills than Kordon takes at most to hand out accepted answers."""
    grace_seconds = int(service("kordon")["stop_grace_period"].removesuffix("s"))
    assert grace_seconds * 1000 > kordon_config().drain.timeout_ms


def test_prometheus_scrapes_kordon_and_the_auditor() -> None:
    """By the name that all Kordons have in the network, or the auditor's, as far as they run, each with its port."""
    document = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    admin = kordon_config().admin.address
    assert admin is not None
    port = auditor_options()["--metrics-address"].removeprefix("0.0.0.0:")
    found = {job["job_name"]: job["dns_sd_configs"][0] for job in document["scrape_configs"]}
    asked = {"type": "A", "refresh_interval": "5s"}
    assert found == {
        "kordon": {"names": ["kordons"], "port": admin.port, **asked},
        "kordon-audit": {"names": ["auditor"], "port": int(port), **asked},
    }
    for name in ("kordon", *DEMO_PROXIES):
        assert "kordons" in service(name)["networks"]["kordon"]["aliases"]


def test_a_profile_starts_what_it_names() -> None:
    """Without any there are the broker, Kordon and what shows it; the demo and the auditor come when asked for."""
    profiles: dict[str, set[str]] = {}
    for name, one in compose()["services"].items():
        for profile in one.get("profiles", [""]):
            profiles.setdefault(profile, set()).add(name)
    assert profiles == {
        "": {"kafka", "kordon", "prometheus", "grafana"},
        "demo": {*DEMO_PROXIES, "load"},
        "audit": {"auditor"},
    }


@pytest.mark.parametrize("name", DEMO_PROXIES)
def test_a_proxy_of_the_demo_tells_clients_the_name_of_both(name: str) -> None:
    """So clients find the other one when it has gone; all else is as in the Kordon for the host."""
    environment = service(name)["environment"]
    config = load(DEPLOY / "kordon.yaml", IMAGE_ENVIRONMENT | environment).config
    assert config.listen.advertise == "proxies"
    assert "proxies" in service(name)["networks"]["kordon"]["aliases"]
    assert "proxies" not in service("kordon")["networks"]["kordon"]["aliases"]
    assert (config.upstream, config.decisions) == (kordon_config().upstream, kordon_config().decisions)
    assert service(name)["depends_on"] == service("kordon")["depends_on"]


def test_the_load_goes_through_both_proxies_of_the_demo() -> None:
    """Its program is in the image, and takes the options that stand there."""
    one = service("load")
    assert one["image"] == service("kordon")["image"]
    assert one["entrypoint"] == ["python3", "-m", check_order.__name__]
    options = check_order.parser().parse_args(one["command"])
    assert options.bootstrap == f"proxies:{kordon_config().listen.address.port}"
    assert one["depends_on"] == {name: {"condition": "service_healthy"} for name in DEMO_PROXIES}


def auditor_options() -> dict[str, str]:
    return dict(word.split("=", 1) for word in service("auditor")["command"] if "=" in word)


def test_the_auditor_reads_the_brokers_and_keeps_its_state() -> None:
    """It goes past Kordon, which records its decisions, and its folder is a volume."""
    auditor = service("auditor")
    assert auditor_options()["--bootstrap"] == service("kordon")["environment"]["KORDON_UPSTREAM__BOOTSTRAP"]
    assert auditor["volumes"] == [f"audit:{auditor_options()['--out']}"]
    assert "audit" in compose()["volumes"]
    assert auditor["command"][:2] == ["audit", "run"]
    audit.commands["run"].make_context("run", auditor["command"][2:])  # or it raises, as for any misspelt option
    assert kordon_config().decisions.to == "topic"


def test_the_auditors_image_is_a_stage_of_the_dockerfile_that_knows_its_port() -> None:
    """`docker compose build` finds the stage, and its health check asks where the metrics are."""
    _, _, stage = (DEPLOY.parent / "Dockerfile").read_text().partition("\nFROM jre AS audit\n")
    assert service("auditor")["build"]["target"] == "audit"
    assert f"KORDON_ADMIN__ADDRESS={auditor_options()['--metrics-address']}" in stage.partition("\nFROM ")[0]


def test_everything_that_is_mounted_exists() -> None:
    """Docker would make an empty folder of a path that is misspelt."""
    mounted = [
        volume.split(":")[0]
        for one in compose()["services"].values()
        for volume in one.get("volumes", [])
        if volume.startswith(".")
    ]
    assert mounted
    assert [path for path in mounted if not (DEPLOY / path).exists()] == []


def test_services_wait_for_what_they_need() -> None:
    """Each service has a health check, and Kordon's asks for readiness."""
    services = compose()["services"]
    assert all("healthcheck" in one for one in services.values())
    assert services["kordon"]["healthcheck"]["test"][-1] == "/readyz"
    assert services["kordon"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}


def test_grafana_finds_its_datasource_and_dashboards() -> None:
    """The provisioned datasource is what the dashboard asks for, and the folder is the one that is mounted."""
    provisioning = DEPLOY / "grafana" / "provisioning"
    datasource = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"][0]
    provider = yaml.safe_load((provisioning / "dashboards" / "kordon.yaml").read_text())["providers"][0]
    assert datasource["url"] == "http://prometheus:9090"
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in service("grafana")["volumes"]
    for path in (DEPLOY / "grafana" / "dashboards").glob("*.json"):
        variables = {one["name"]: one for one in json.loads(path.read_text())["templating"]["list"]}
        assert variables["datasource"]["current"]["value"] == datasource["uid"]
