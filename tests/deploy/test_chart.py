"""The Helm chart: what it makes is valid, its parts name each other rightly, and Kordon accepts what they say.

A real Helm renders it. Kubernetes' published schemas judge the objects, promtool the rules.
"""

import json
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import trustme
import yaml
from jsonschema import Draft7Validator

from kordon.proxy.config.config import NODE_ID_PLACEHOLDER, Config
from kordon.proxy.config.config_load import load
from kordon.proxy.reads.log_store import CACHE_BYTES
from kordon.proxy.writes.unsent_writes import UNSENT_BYTES
from kordon.spark_jobs.cli import audit
from kordon.testing.jars import MissingTool
from kordon.testing.pages.helm import helm
from kordon.testing.pages.page_commands import blocks

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "chart" / "kordon"
VERSIONS: Final = ("1.29", "1.37")
"""The oldest that the chart is for, and the newest whose schemas are here."""
WORKER_BYTES: Final = 55_000_000 + 10_000 * 6_000
"""Of a worker's process with as many idle connections as limits.connections allows (docs/limits.md)."""
SMALL: Final[dict[str, Any]] = {
    "config": {"upstream": {"bootstrap": "kafka-1:9092"}, "listen": {"advertise": "kafka.example.com"}}
}
"""The least that somebody has to say."""
FULL: Final[dict[str, Any]] = {
    "config": {
        "upstream": {
            "bootstrap": ["kafka-1:9092", "kafka-2:9092"],
            "sasl": {"mechanism": "SCRAM-SHA-512", "username": "kordon"},
        },
        "listen": {
            "advertise": "kafka.example.com",
            "address": "0.0.0.0:19092",
            "base_port": 20000,
            "ports": {7: 19100},
        },
        "workers": 3,
        "limits": {"held_bytes": 512 * 1024 * 1024},
        "drain": {"timeout_ms": 90_500},
        "decisions": {"to": "topic"},
    },
    "nodeIds": [0, 2, 7],
    "image": {"repository": "registry.example.com/kordon", "tag": "edge", "pullSecrets": ["registry"]},
    "secretOptions": [{"variable": "KORDON_UPSTREAM__SASL__PASSWORD", "secret": "kafka-login", "key": "password"}],
    "secretFiles": ["kafka-tls"],
    "service": {"type": "ClusterIP", "annotations": {"example.com/zone": "a"}},
    "podAnnotations": {"example.com/team": "data"},
    "podLabels": {"team": "data"},
    "nodeSelector": {"disk": "none"},
    "tolerations": [{"key": "kafka", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"team": "data"}}}]},
    "monitoring": {
        "job": "kordon-orders",
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "alerts": {"enabled": True, "runbook": "https://docs.example.com/docs/runbook.md"},
        "dashboards": {"enabled": True},
    },
    "auditor": {"enabled": True, "configSecret": "audit-login", "storageClassName": "fast"},
}
"""All that the chart can make."""
SNI: Final[dict[str, Any]] = {
    "config": {
        "upstream": {"bootstrap": "kafka-1:9092"},
        "listen": {
            "sni": {"bootstrap": "bootstrap.kafka.example.com", "broker": "broker-$(node_id).kafka.example.com"},
            "tls": {
                "certificate": "/etc/kordon-secrets/wildcard/tls.crt",
                "key": "/etc/kordon-secrets/wildcard/tls.key",
            },
        },
    },
    "secretFiles": ["wildcard"],
}
"""One port for all brokers."""
PAGE: Final = (ROOT / "docs" / "deployment.md").read_text()
(CERTIFICATE,) = (yaml.safe_load(each.text) for each in blocks(PAGE) if each.mark == "file: values.yaml")
"""What the manual says for a certificate of cert-manager."""
GIVEN: Final = {"small": SMALL, "full": FULL, "sni": SNI, "certificate": CERTIFICATE}
FOREIGN: Final = {"Certificate", "PrometheusRule", "ServiceMonitor"}
"""Kinds of cert-manager and of the Prometheus operator, of which Kubernetes publishes no schema."""
TEXT: Final = {"type": "string", "minLength": 1}
CERTIFICATE_SPEC: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["secretName", "issuerRef", "dnsNames"],
    "additionalProperties": False,
    "properties": {
        "secretName": TEXT,
        "issuerRef": {
            "type": "object",
            "required": ["name"],
            "additionalProperties": False,
            "properties": {"name": TEXT, "kind": TEXT, "group": TEXT},
        },
        "dnsNames": {"type": "array", "minItems": 1, "uniqueItems": True, "items": TEXT},
        "usages": {"type": "array", "items": {"enum": ["digital signature", "key encipherment", "server auth"]}},
        "privateKey": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "algorithm": {"enum": ["RSA", "ECDSA", "Ed25519"]},
                "size": {"type": "integer"},
                "rotationPolicy": {"enum": ["Never", "Always"]},
            },
        },
        "duration": TEXT,
        "renewBefore": TEXT,
    },
}
"""Of a Certificate (cert-manager.io/v1), what the chart may use."""

Objects = list[dict[str, Any]]


def run_helm(folder: Path, values: Mapping[str, Any], *command: str) -> subprocess.CompletedProcess[str]:
    """Runs Helm on the chart with values, and without anything of the user's own."""
    try:
        program = helm()
    except MissingTool as missing:
        pytest.skip(str(missing))
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    homes = {f"HELM_{each}_HOME": str(folder) for each in ("CACHE", "CONFIG", "DATA")}
    arguments = [program, *command, str(CHART), "--values", str(folder / "values.yaml")]
    return subprocess.run(
        arguments, capture_output=True, text=True, timeout=120, check=False, env={"HOME": str(folder), **homes}
    )


def rendered(folder: Path, values: Mapping[str, Any], release: str = "kordon") -> Objects:
    """The objects that Helm makes of the chart."""
    done = run_helm(folder, values, "template", release)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


@pytest.fixture(scope="module", params=list(GIVEN))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Objects:
    return rendered(tmp_path_factory.mktemp("chart"), GIVEN[request.param])


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    return rendered(tmp_path_factory.mktemp("chart"), FULL)


def the(objects: Objects, kind: str, name: str = "kordon") -> dict[str, Any]:
    """The object of a kind and name."""
    (found,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod(objects: Objects, name: str = "kordon") -> dict[str, Any]:
    found = the(objects, "Deployment", name)["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def container(objects: Objects, name: str = "kordon") -> dict[str, Any]:
    (found,) = pod(objects, name)["containers"]
    assert isinstance(found, dict)
    return found


def config_of(objects: Objects, folder: Path) -> Config:
    """The configuration in the ConfigMap, as Kordon loads it with what the container's Secrets and image give."""
    text = the(objects, "ConfigMap")["data"]["kordon.yaml"]
    if (tls := yaml.safe_load(text)["listen"].get("tls")) is not None:
        names = [each["spec"]["dnsNames"] for each in objects if each["kind"] == "Certificate"]
        certificate = trustme.CA().issue_cert(*(names[0] if names else ["*.kafka.example.com"]))
        certificate.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
        certificate.private_key_pem.write_to_path(str(folder / "tls.key"))
        text = text.replace(str(Path(tls["certificate"]).parent), str(folder))
    (folder / "kordon.yaml").write_text(text)
    secrets = {each["name"]: "a secret" for each in container(objects).get("env", [])}
    return load(folder / "kordon.yaml", {"KORDON_ADMIN__ADDRESS": "0.0.0.0:8080", **secrets}).config


@pytest.mark.parametrize("name", GIVEN)
def test_helm_finds_nothing_wrong(name: str, tmp_path: Path) -> None:
    """Neither with the chart nor with values that a user may give; warnings count."""
    done = run_helm(tmp_path, GIVEN[name], "lint", "--strict")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_by_the_published_schema(made: Objects, version: str) -> None:
    """No key is misspelt, unknown or in the wrong place, and no value has the wrong shape."""
    for each in made:
        if each["kind"] not in FOREIGN:
            assert kubernetes_validate.validate(each, version, strict=True) == version


def test_a_misspelt_key_would_be_found(made: Objects) -> None:
    """The check above is strict: it refuses a key that no schema has."""
    deployment = deepcopy(the(made, "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"replica": 2}, "replica"),
        ({"replicas": 0}, "replicas"),
        ({"networkPolicy": {"client": []}}, "client"),
        ({"config": {"upstream": {"sasl": {"password": "hunter2"}}}}, "sasl"),
        ({"config": {"admin": {"address": "0.0.0.0:1"}}}, "admin"),
        ({"secretOptions": [{"variable": "PATH", "secret": "s", "key": "k"}]}, "variable"),
        ({"certificate": {"enabled": True}}, "certificate.issuer.name is missing"),
        ({"config": {"upstream": {"bootstrap": ""}}}, "config.upstream.bootstrap is missing"),
        ({"config": {"listen": {"advertise": ""}}}, "config.listen.advertise is missing"),
    ],
    ids=["misspelt", "none", "deep", "password", "admin", "variable", "issuer", "brokers", "name"],
)
def test_a_wrong_value_is_refused_before_anything_is_installed(
    changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    """The message names the value. A password is no value: it would stand in a ConfigMap."""
    values = deepcopy(SMALL)
    for key, value in changed.items():
        if key == "config":
            for section, options in value.items():
                values["config"].setdefault(section, {}).update(options)
        else:
            values[key] = value
    done = run_helm(tmp_path, values, "template", "kordon")
    assert done.returncode != 0
    assert says in done.stderr


def test_selectors_find_the_pods(full: Objects) -> None:
    """Services, budgets, policies and monitors select the pods or Services that they are for, and no others."""
    proxies, auditor = (
        the(full, "Deployment", name)["spec"]["template"]["metadata"]["labels"] for name in ("kordon", "kordon-audit")
    )
    for each in full:
        spec = each.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector")
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector).items()
        of_auditor = each["metadata"]["name"].endswith("-audit")
        if each["kind"] == "ServiceMonitor":
            found = [one for one in full if one["kind"] == "Service" and wanted <= one["metadata"]["labels"].items()]
            assert [one["metadata"]["name"] for one in found] == ["kordon-audit" if of_auditor else "kordon-admin"]
            assert {one["port"] for one in spec["endpoints"]} <= {port["name"] for port in found[0]["spec"]["ports"]}
        else:
            assert (wanted <= proxies.items(), wanted <= auditor.items()) == (not of_auditor, of_auditor), each["kind"]


def test_two_releases_in_one_namespace_have_nothing_in_common(full: Objects, tmp_path: Path) -> None:
    """No object has the name of another's, and no selector finds the other's pods."""
    other = rendered(tmp_path, FULL, "second")
    names = [{(each["kind"], each["metadata"]["name"]) for each in objects} for objects in (full, other)]
    assert names[0].isdisjoint(names[1])
    labels = the(full, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert not the(other, "Service", "second-kordon")["spec"]["selector"].items() <= labels.items()


def test_ports_probes_and_volumes_are_there(made: Objects) -> None:
    """Probes, Services and policies name ports of the pods, mounts their volumes, volumes what they mount."""
    for deployment in (each for each in made if each["kind"] == "Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        (only,) = spec["containers"]
        ports = {port["name"] for port in only["ports"]}
        assert {only[probe]["httpGet"]["port"] for probe in only if probe.endswith("Probe")} <= ports
        assert {each["name"] for each in only["volumeMounts"]} == {each["name"] for each in spec["volumes"]}
        for volume in spec["volumes"]:
            if "configMap" in volume:
                the(made, "ConfigMap", volume["configMap"]["name"])
            if "persistentVolumeClaim" in volume:
                the(made, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
    ports = {port["name"] for port in container(made)["ports"]}
    policy = the(made, "NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for rule in policy for port in rule["ports"]} == ports
    published = {port["targetPort"] for port in the(made, "Service")["spec"]["ports"]}
    assert published == ports - {"admin"}


def test_ports_are_those_that_kordon_opens_and_tells_clients(made: Objects, tmp_path: Path) -> None:
    """Bootstrap and a port for each node id, published under the numbers that clients are told; one port with names."""
    listen = config_of(made, tmp_path).listen
    ports = {port["name"]: port["containerPort"] for port in container(made)["ports"]}
    node_ids = [int(name.removeprefix("broker-")) for name in ports if name.startswith("broker-")]
    brokers = {f"broker-{node_id}": listen.port_of(node_id) for node_id in node_ids}
    assert ports == {"bootstrap": listen.address.port, "admin": 8080, **brokers}
    assert bool(brokers) == (listen.sni is None)
    published = {port["name"]: port["port"] for port in the(made, "Service")["spec"]["ports"]}
    assert published == {name: port for name, port in ports.items() if name != "admin"}


def test_accepted_requests_get_their_time_when_a_pod_ends(made: Objects, tmp_path: Path) -> None:
    """The grace period is longer than leaving the Service and draining take together."""
    config = config_of(made, tmp_path)
    leave_seconds = int(container(made)["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod(made)["terminationGracePeriodSeconds"] >= leave_seconds + config.drain.timeout_ms / 1000 + 10


def test_memory_is_enough_for_all_that_the_limits_allow(made: Objects, tmp_path: Path) -> None:
    """A pod is not killed for what slow readers, caches, waiting writes and decisions may take by the manual."""
    config = config_of(made, tmp_path)
    worker = WORKER_BYTES + config.limits.held_bytes + CACHE_BYTES + UNSENT_BYTES + config.decisions.queue_bytes
    resources = container(made)["resources"]
    limit, request = (int(resources[each]["memory"].removesuffix("Mi")) << 20 for each in ("limits", "requests"))
    assert request < config.workers * worker <= limit
    assert resources["requests"]["cpu"] == str(config.workers)


def test_resources_that_are_given_replace_the_chart_s(tmp_path: Path) -> None:
    """Who has measured knows better."""
    given = {"requests": {"cpu": "250m"}, "limits": {"memory": "9Gi"}}
    assert container(rendered(tmp_path, {**SMALL, "resources": given}))["resources"] == given


def test_nothing_runs_with_more_rights_than_it_needs(full: Objects) -> None:
    """No root, no way to become it, no capabilities, no token, and all writing is to volumes."""
    for name in ("kordon", "kordon-audit"):
        assert pod(full, name)["securityContext"]["runAsNonRoot"] is True
        assert pod(full, name)["automountServiceAccountToken"] is False
        context = container(full, name)["securityContext"]
        assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_secrets_are_named_and_never_contained(full: Objects) -> None:
    """The chart makes no Secret; variables and files refer to those that the cluster has."""
    assert "Secret" not in {each["kind"] for each in full}
    (variable,) = container(full)["env"]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "kafka-login", "key": "password"}}
    files = {mount["mountPath"]: mount["name"] for mount in container(full)["volumeMounts"]}
    assert {"name": files["/etc/kordon-secrets/kafka-tls"], "secret": {"secretName": "kafka-tls"}} in pod(full)[
        "volumes"
    ]


def test_admin_pages_are_for_the_cluster_only_and_ports_of_kafka_for_the_clients_that_are_named(full: Objects) -> None:
    """Nobody outside reads names of topics and groups, whatever type the Service has."""
    kafka, admin = the(full, "NetworkPolicy")["spec"]["ingress"]
    assert kafka["from"] == FULL["networkPolicy"]["clients"]
    assert (admin["ports"], admin["from"]) == ([{"protocol": "TCP", "port": "admin"}], [{"namespaceSelector": {}}])


def test_alerts_are_the_project_s_for_the_chosen_job_with_links_to_the_runbook(full: Objects, tmp_path: Path) -> None:
    """Prometheus accepts them; no job of another cluster fires them, and each leads to a page that can be clicked."""
    spec = the(full, "PrometheusRule")["spec"]
    ours = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    rules, own = ([rule for group in each["groups"] for rule in group["rules"]] for each in (spec, ours))
    assert [rule["alert"] for rule in rules] == [rule["alert"] for rule in own]
    for rule, before in zip(rules, own, strict=True):
        assert rule["annotations"]["runbook_url"] == f"https://docs.example.com/{before['annotations']['runbook_url']}"
        expression = before["expr"].replace('job="kordon', 'job="kordon-orders')
        assert rule["expr"] == expression
    jobs = {
        relabeling["replacement"]
        for each in full
        if each["kind"] == "ServiceMonitor"
        for endpoint in each["spec"]["endpoints"]
        for relabeling in endpoint["relabelings"]
    }
    assert jobs == {"kordon-orders", "kordon-orders-audit"}
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not here (Debian: apt install prometheus)")
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(spec))
    done = subprocess.run([promtool, "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dashboards_are_the_project_s(full: Objects) -> None:
    """Each in a ConfigMap with the label that Grafana's sidecar looks for."""
    found = {
        name: json.loads(text)
        for each in full
        if each["kind"] == "ConfigMap" and each["metadata"]["labels"].get("grafana_dashboard") == "1"
        for name, text in each["data"].items()
    }
    files = (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")
    assert found == {f"kordon-{path.name}": json.loads(path.read_text()) for path in files}


def test_a_certificate_is_for_all_names_of_clients_and_reaches_running_pods(tmp_path: Path) -> None:
    """Its Secret is where the configuration looks for it, as a folder: a file of its own would stay as it was."""
    objects = rendered(tmp_path, CERTIFICATE)
    made = the(objects, "Certificate")
    assert made["apiVersion"] == "cert-manager.io/v1"
    Draft7Validator(CERTIFICATE_SPEC).validate(made["spec"])
    listen = config_of(objects, tmp_path).listen
    assert listen.sni is not None
    brokers = [listen.sni.broker.replace(NODE_ID_PLACEHOLDER, str(node_id)) for node_id in CERTIFICATE["nodeIds"]]
    assert made["spec"]["dnsNames"] == [listen.sni.bootstrap, *brokers]
    tls = yaml.safe_load(the(objects, "ConfigMap")["data"]["kordon.yaml"])["listen"]["tls"]
    folder = f"/etc/kordon-secrets/{made['spec']['secretName']}"
    assert tls == {"certificate": f"{folder}/tls.crt", "key": f"{folder}/tls.key"}
    (mount,) = [each for each in container(objects)["volumeMounts"] if each["mountPath"] == folder]
    assert mount == {"name": mount["name"], "mountPath": folder, "readOnly": True}
    (volume,) = [each for each in pod(objects)["volumes"] if each["name"] == mount["name"]]
    assert volume["secret"] == {"secretName": made["spec"]["secretName"]}


@pytest.mark.parametrize(
    ("listen", "names", "expected"),
    [
        ({"advertise": "kafka.example.com"}, [], ["kafka.example.com"]),
        (SNI["config"]["listen"], ["*.kafka.example.com"], ["*.kafka.example.com"]),
    ],
    ids=["one name", "given"],
)
def test_a_certificate_has_the_name_of_all_ports_or_those_that_are_given(
    listen: dict[str, Any], names: list[str], expected: list[str], tmp_path: Path
) -> None:
    """Ports of brokers share a name; a wildcard is good for brokers to come. Options of TLS stay beside its files."""
    values = deepcopy(CERTIFICATE)
    values["config"]["listen"] = {**listen, "tls": {"client_auth": "requested"}}
    values["certificate"]["dnsNames"] = names
    objects = rendered(tmp_path, values, "second")
    assert the(objects, "Certificate", "second-kordon")["spec"]["dnsNames"] == expected
    tls = yaml.safe_load(the(objects, "ConfigMap", "second-kordon")["data"]["kordon.yaml"])["listen"]["tls"]
    assert (tls["key"], tls["client_auth"]) == ("/etc/kordon-secrets/second-kordon-tls/tls.key", "requested")


def test_what_needs_other_operators_is_off_by_default(tmp_path: Path) -> None:
    """The chart installs on a bare cluster: no kind of object is strange to it."""
    assert {each["kind"] for each in rendered(tmp_path, SMALL)} == {
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
    }


def test_there_is_one_auditor_with_a_state_that_outlives_it(full: Objects) -> None:
    """Never two at a time; what it knows is on a claimed volume, and its command accepts its arguments."""
    spec = the(full, "Deployment", "kordon-audit")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    auditor = container(full, "kordon-audit")
    assert auditor["args"][:2] == ["audit", "run"]
    options = dict(word.split("=", 1) for word in auditor["args"] if "=" in word)
    assert options["--bootstrap"] == "kafka-1:9092,kafka-2:9092"
    assert options.pop("--config").startswith("/etc/kordon-audit/")
    audit.commands["run"].make_context("run", [f"{name}={value}" for name, value in options.items()])
    mounts = {mount["mountPath"]: mount["name"] for mount in auditor["volumeMounts"]}
    claimed = {each["name"] for each in pod(full, "kordon-audit")["volumes"] if "persistentVolumeClaim" in each}
    assert mounts[options["--out"]] in claimed
    assert options["--metrics-address"] == f"0.0.0.0:{auditor['ports'][0]['containerPort']}"


def test_the_chart_has_the_version_of_what_it_installs() -> None:
    """A release changes pyproject.toml and the chart together."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
