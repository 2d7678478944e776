"""The Kubernetes examples: valid by the schemas that Kubernetes publishes, and their parts name each other rightly."""

from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from kordon.proxy.config.config_load import load
from kordon.spark_jobs.cli import audit

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "kubernetes"
FILES: Final = sorted(path.name for path in FOLDER.glob("*.yaml"))
VERSIONS: Final = ("1.29", "1.37")
"""The oldest with sidecars, and the newest whose schemas are here."""
FROM_KUBERNETES: Final = {"KORDON_PORT": "tcp://10.0.0.1:9092", "KORDON_SERVICE_HOST": "10.0.0.1"}
"""What every pod's environment has where a Service is named kordon."""


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def the(kind: str, name: str) -> dict[str, Any]:
    """The first object of a kind in a file."""
    return next(document for document in documents(name) if document["kind"] == kind)


def pod(name: str) -> dict[str, Any]:
    found = the("Deployment", name)["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def containers(name: str) -> list[dict[str, Any]]:
    """All containers of the file's pod, sidecars first."""
    return [*pod(name).get("initContainers", []), *pod(name)["containers"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", FILES)
def test_every_object_is_valid_by_the_published_schema(name: str, version: str) -> None:
    """No key is misspelt, unknown or in the wrong place, and no value has the wrong shape."""
    for document in documents(name):
        assert kubernetes_validate.validate(document, version, strict=True) == version


@pytest.mark.parametrize("name", FILES)
def test_a_misspelt_key_would_be_found(name: str) -> None:
    """The check above is strict: it refuses a key that no schema has."""
    deployment = the("Deployment", name)
    deployment["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", FILES)
def test_selectors_find_the_pods(name: str) -> None:
    """Services, budgets and deployments of a file select the labels that its pods have."""
    labels = the("Deployment", name)["spec"]["template"]["metadata"]["labels"]
    for document in documents(name):
        selector = document.get("spec", {}).get("selector")
        if selector is not None:
            assert selector.get("matchLabels", selector) == labels, document["kind"]


@pytest.mark.parametrize("name", FILES)
def test_ports_probes_and_volumes_are_there(name: str) -> None:
    """Probes and Services name ports of the pod, mounts name its volumes, volumes name objects of the file."""
    ports = {port["name"] for container in containers(name) for port in container.get("ports", [])}
    for container in containers(name):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container.get(probe, {"httpGet": {"port": "admin"}})["httpGet"]["port"] in ports | {"admin"}
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounted <= {volume["name"] for volume in pod(name).get("volumes", [])}
    for document in documents(name):
        if document["kind"] == "Service":
            assert {port["targetPort"] for port in document["spec"]["ports"]} <= ports
    named = {(document["kind"], document["metadata"]["name"]) for document in documents(name)}
    for volume in pod(name).get("volumes", []):
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in named
        if "persistentVolumeClaim" in volume:
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in named


@pytest.mark.parametrize("name", FILES)
def test_nothing_of_ours_runs_with_more_rights_than_it_needs(name: str) -> None:
    """No root, no way to become it, no capabilities, and what is Kordon's own writes to its volumes only."""
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    for container in containers(name):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        if container["image"].startswith("kordon"):
            assert context["readOnlyRootFilesystem"] is True
            assert container["resources"].keys() == {"requests", "limits"}


@pytest.mark.parametrize("name", ["standalone.yaml", "sidecar.yaml"])
def test_kordon_accepts_the_configuration_in_the_config_map(name: str, tmp_path: Path) -> None:
    """It is mounted where the image reads it, loads, and gives accepted requests their time when the pod ends."""
    (tmp_path / "kordon.yaml").write_text(the("ConfigMap", name)["data"]["kordon.yaml"])
    config = load(tmp_path / "kordon.yaml", FROM_KUBERNETES).config
    kordon = next(container for container in containers(name) if container["name"] == "kordon")
    assert {"name": "config", "mountPath": "/etc/kordon", "readOnly": True} in kordon["volumeMounts"]
    assert pod(name)["terminationGracePeriodSeconds"] * 1000 > config.drain.timeout_ms + 5000


def test_ports_of_the_deployment_are_those_that_kordon_opens(tmp_path: Path) -> None:
    """Bootstrap and three brokers by their node ids, published under the numbers that clients are told."""
    (tmp_path / "kordon.yaml").write_text(the("ConfigMap", "standalone.yaml")["data"]["kordon.yaml"])
    listen = load(tmp_path / "kordon.yaml", FROM_KUBERNETES).config.listen
    ports = {port["name"]: port["containerPort"] for port in containers("standalone.yaml")[0]["ports"]}
    brokers = {f"broker-{node_id}": listen.port_of(node_id) for node_id in (1, 2, 3)}
    assert ports == {"bootstrap": listen.address.port, "admin": 8080, **brokers}
    service = the("Service", "standalone.yaml")["spec"]
    published = {port["name"]: port["port"] for port in service["ports"]}
    assert published == {name: port for name, port in ports.items() if name != "admin"}


def test_the_application_finds_its_sidecar(tmp_path: Path) -> None:
    """It is told the address that Kordon listens on, and no other pod can reach that."""
    (tmp_path / "kordon.yaml").write_text(the("ConfigMap", "sidecar.yaml")["data"]["kordon.yaml"])
    listen = load(tmp_path / "kordon.yaml", FROM_KUBERNETES).config.listen
    kordon, application = containers("sidecar.yaml")
    assert kordon["restartPolicy"] == "Always", "without it, it is a step before the application and not a sidecar"
    assert application["env"] == [{"name": "KAFKA_BOOTSTRAP_SERVERS", "value": str(listen.address)}]
    assert listen.address.host == listen.advertise == "127.0.0.1"


def test_there_is_one_auditor_with_a_state_that_outlives_it() -> None:
    """Never two at a time, and what it knows is on a claimed volume."""
    deployment = the("Deployment", "auditor.yaml")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    container = containers("auditor.yaml")[0]
    assert container["args"][:2] == ["audit", "run"]
    audit.commands["run"].make_context("run", container["args"][2:])  # or it raises, as for any misspelt option
    options = dict(word.split("=", 1) for word in container["args"] if "=" in word)
    kept = {volume["name"] for volume in pod("auditor.yaml")["volumes"] if "persistentVolumeClaim" in volume}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts[options["--out"]] in kept
    assert options["--metrics-address"] == f"0.0.0.0:{container['ports'][0]['containerPort']}"
