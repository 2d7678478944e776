"""The sidecar example: valid by the schemas that Kubernetes publishes, and its parts name each other rightly."""

import re
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from kordon.proxy.commands.layouts_cli import layouts
from kordon.proxy.config.config import Config
from kordon.proxy.config.config_load import load

FILE: Final = Path(__file__).parents[2] / "deploy" / "kubernetes-sidecar.yaml"
MANUAL: Final = FILE.parents[1] / "docs" / "how-to.md"
VERSIONS: Final = ("1.29", "1.37")
"""The oldest with sidecars, and the newest whose schemas are here."""
FROM_KUBERNETES: Final = {"KORDON_PORT": "tcp://10.0.0.1:9092", "KORDON_SERVICE_HOST": "10.0.0.1"}
"""What every pod's environment has where a Service is named kordon."""


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FILE.read_text()))


def the(kind: str) -> dict[str, Any]:
    """The object of a kind."""
    (found,) = [document for document in documents() if document["kind"] == kind]
    return found


def pod() -> dict[str, Any]:
    found = the("Deployment")["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def containers() -> tuple[dict[str, Any], dict[str, Any]]:
    """Kordon and the application."""
    (kordon,), (application,) = pod()["initContainers"], pod()["containers"]
    return kordon, application


def config(folder: Path) -> Config:
    (folder / "kordon.yaml").write_text(the("ConfigMap")["data"]["kordon.yaml"])
    return load(folder / "kordon.yaml", FROM_KUBERNETES).config


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_by_the_published_schema(version: str) -> None:
    """No key is misspelt, unknown or in the wrong place, and no value has the wrong shape."""
    for document in documents():
        assert kubernetes_validate.validate(document, version, strict=True) == version


def test_ports_probes_and_volumes_are_there() -> None:
    """Probes name the sidecar's port, mounts name volumes, and the volume names the ConfigMap."""
    kordon, _ = containers()
    assert {kordon[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe")} == {"admin"}
    assert [port["name"] for port in kordon["ports"]] == ["admin"]
    assert {mount["name"] for mount in kordon["volumeMounts"]} == {volume["name"] for volume in pod()["volumes"]}
    assert {"name": "config", "mountPath": "/etc/kordon", "readOnly": True} in kordon["volumeMounts"]
    assert {"name": "config", "configMap": {"name": the("ConfigMap")["metadata"]["name"]}} in pod()["volumes"]


def test_nothing_runs_with_more_rights_than_it_needs() -> None:
    """No root, no way to become it, no capabilities, and Kordon writes to its volumes only."""
    assert pod()["securityContext"]["runAsNonRoot"] is True
    for container in containers():
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert containers()[0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_accepted_requests_get_their_time_when_the_pod_ends(tmp_path: Path) -> None:
    """The grace period is longer than a drain."""
    assert pod()["terminationGracePeriodSeconds"] * 1000 > config(tmp_path).drain.timeout_ms + 5000


def test_the_application_finds_its_sidecar(tmp_path: Path) -> None:
    """It is told the address that Kordon listens on, and no other pod can reach that."""
    listen = config(tmp_path).listen
    kordon, application = containers()
    assert kordon["restartPolicy"] == "Always", "without it, it is a step before the application and not a sidecar"
    assert application["env"] == [{"name": "KAFKA_BOOTSTRAP_SERVERS", "value": str(listen.address)}]
    assert listen.address.host == listen.advertise == "127.0.0.1"


def test_the_backup_of_the_manual_is_valid_and_runs_a_command_that_there_is() -> None:
    """By both versions' schemas; the configuration is where the deployment has it."""
    (text,) = re.findall(r"<!-- file: backup.yaml -->\n```yaml\n(.*?)```", MANUAL.read_text(), flags=re.DOTALL)
    job = yaml.safe_load(text)
    for version in VERSIONS:
        assert kubernetes_validate.validate(job, version, strict=True) == version
    of_job = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    command, *arguments = of_job["containers"][0]["args"]
    assert command == "layouts"
    layouts.commands[arguments[0]].make_context("export", arguments[1:])
