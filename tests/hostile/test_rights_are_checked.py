"""`kordon check --cluster` on real brokers: what is wrong with rights is told as a running proxy tells it, with a cure.

The cures are typed as they are printed, those of docs/security.md too, and Kafka's own tool takes them.
"""

# pyright: reportPrivateImportUsage=false
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from kordon.proxy.commands.cli import main
from kordon.testing.broker_config import USERS
from kordon.testing.broker_features import SHARE_GROUPS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.rights import LISTENER, TLS_LISTENER, Allowed, Secured, login
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
TOPIC = "checked-orders"
ANYTHING: Any = None
TOO_WIDE = (
    Allowed("mallory", AclOperation.ALL, "*"),
    Allowed("mallory", AclOperation.READ, "*", ResourceType.GROUP),
    Allowed("mallory", AclOperation.WRITE, "kordon.", ResourceType.TRANSACTIONAL_ID, ResourcePatternType.PREFIXED),
)
ON_A_PREFIX = Allowed("carol", AclOperation.WRITE, "__", pattern=ResourcePatternType.PREFIXED)
"""These came with Kafka 4; brokers before may not know which configs groups have."""
OF_SHARE_GROUPS = [
    Allowed("kordon", each, "*", ResourceType.GROUP) for each in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
]
NEEDED = Allowed("kordon", AclOperation.ALTER, "kafka-cluster", ResourceType.BROKER)


def check(folder: Path, upstream: dict[str, Any], **sections: Any) -> Result:
    """Checks a cluster by a configuration file; `sections` stand in it, too."""
    file = folder / "kordon.yaml"
    file.write_text(json.dumps({"upstream": upstream, "listen": {"address": "127.0.0.1:19092"}, **sections}))
    return CliRunner().invoke(main, ["check", str(file), "--cluster"], catch_exceptions=False)


def problems(result: Result) -> list[str]:
    """Returns what a check has found at the cluster."""
    assert result.exit_code == 1, result.output
    found = [line for line in result.stdout.splitlines() if line.startswith("cluster: ")]
    return [line.removeprefix("cluster: ") for line in found]


def upstream_of(secured: Secured, **log_in: str) -> dict[str, Any]:
    sasl = {"mechanism": "PLAIN", "username": "kordon", "password": USERS["kordon"], **log_in}
    return {"bootstrap": secured.cluster.bootstrap(LISTENER), "sasl": sasl}


def logged(proxy: ProxyProcess, event: str) -> set[str]:
    return {line["problem"] for line in proxy.events(event)}


def type_in(secured: Secured, folder: Path, commands: str) -> None:
    """Has a shell run commands as they are printed; BROKER is the operator's port, and the script Kafka's tool."""
    script = folder / "kafka-acls.sh"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(secured.cluster.tool_command("kafka-acls"))} "$@"\n')
    script.chmod(0o755)
    typed = commands.replace("BROKER", secured.cluster.bootstrap("PLAINTEXT"))
    path = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", typed], env=path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{typed}\n{done.stdout}{done.stderr}"


def cure_in(line: str) -> str:
    """Returns the command that a line ends with."""
    return line[line.index("kafka-acls.sh") :]


def manual_for(principal: str) -> str:
    """Returns the commands of docs/security.md, for a principal."""
    (found,) = re.findall(r"```sh\n(ACLS=.*?)```", SECURITY.read_text(), re.DOTALL)
    return str(found).replace("User:NAME", principal)


@contextmanager
def forgotten(secured: Secured, *users: str) -> Iterator[None]:
    """Takes all ACLs of users away in the end."""
    try:
        yield
    finally:
        for user in users:
            kind, pattern = ResourceType.ANY, ResourcePatternType.ANY
            all_of = (ANYTHING, pattern, f"User:{user}", ANYTHING, AclOperation.ANY, AclPermissionType.ANY)
            wanted = AclBindingFilter(kind, *all_of)
            secured.operator.delete_acls([wanted])[wanted].result(60)


@contextmanager
def taken_away(secured: Secured, acl: Allowed) -> Iterator[None]:
    """Takes a right away, and gives it back in the end: other tests have the same cluster."""
    secured.revoke(acl)
    try:
        yield
    finally:
        secured.allow(acl)


def test_what_is_wrong_with_rights_is_told_and_its_cures_put_it_right(strict_cluster: Secured, tmp_path: Path) -> None:
    """A right that Kordon lacks, and ACLs that give others too much: in the check as in the log of a running proxy."""
    secured, upstream = strict_cluster, upstream_of(strict_cluster)
    secured.allow(Allowed("kordon", AclOperation.ALL, TOPIC))
    create_managed(secured.kordon.bootstrap, TOPIC, login("admin"))
    before = check(tmp_path, upstream)
    assert (before.exit_code, before.stdout.splitlines()[-1]) == (0, "cluster: good"), before.output
    with forgotten(secured, "mallory", "carol"), taken_away(secured, NEEDED):
        secured.allow(*TOO_WIDE, ON_A_PREFIX)
        with_share_groups = problems(check(tmp_path, upstream, ordering={"share_groups": True}))
        of_share_groups = with_share_groups.pop(1)
        assert of_share_groups.startswith("Kordon (User:kordon) lacks Describe, DescribeConfigs; ")
        found = problems(check(tmp_path, upstream))
        assert found == with_share_groups
        lacks, of_carol, on_topics, in_group, by_id = found
        assert lacks.startswith("Kordon (User:kordon) lacks Alter; ")
        assert of_carol.startswith("User:carol may Write __kordon. at the brokers; ")
        assert on_topics.startswith("User:mallory may Write, Delete, Alter, AlterConfigs __kordon. at the brokers; ")
        assert in_group.startswith("User:mallory may Read kordon at the brokers; ")
        assert by_id.startswith("User:mallory may Write kordon.layouts at the brokers; ")
        wait_until("the log says the same", lambda: set(found[1:]) <= logged(secured.kordon, "own_topics_open"))
        wait_until("what is missing, too", lambda: lacks in logged(secured.kordon, "right_missing"))
        type_in(secured, tmp_path, "\n".join([cure_in(lacks), cure_in(of_carol), manual_for("User:mallory")]))
        # A broker goes by an ACL a moment after its controller has answered.
        wait_until("all is good", lambda: check(tmp_path, upstream).stdout.endswith("cluster: good\n"))
        assert check(tmp_path, upstream).exit_code == 0
        if not SHARE_GROUPS.is_missing:
            type_in(secured, tmp_path, cure_in(of_share_groups))
            after = check(tmp_path, upstream, ordering={"share_groups": True})
            secured.revoke(*OF_SHARE_GROUPS)
            assert (after.exit_code, after.stdout.splitlines()[-1]) == (0, "cluster: good"), after.output


def test_a_managed_topic_that_kordon_may_not_serve_is_told(strict_cluster: Secured, tmp_path: Path) -> None:
    """It is found by its face, since brokers do not list it for Kordon any more."""
    right = Allowed("kordon", AclOperation.ALL, "checked-alone")
    strict_cluster.allow(right)
    create_managed(strict_cluster.kordon.bootstrap, "checked-alone", login("admin"))
    strict_cluster.revoke(right)
    try:
        (line,) = problems(check(tmp_path, upstream_of(strict_cluster)))
    finally:
        strict_cluster.allow(right)
    assert "lacks Describe, Read, Write, Alter, Delete, DescribeConfigs; " in line
    assert line.endswith("--topic checked-alone")


def test_a_log_in_that_is_refused_or_missing_is_told(strict_cluster: Secured, tmp_path: Path) -> None:
    """With the broker's reason; of rights nothing can be said then."""
    upstream = upstream_of(strict_cluster, password="wrong")
    (line,) = problems(check(tmp_path, upstream))
    assert line.startswith(f"upstream.bootstrap: {upstream['bootstrap']}: log-in failed: ")
    (line,) = problems(check(tmp_path, {"bootstrap": upstream["bootstrap"]}))
    assert "give Kordon an account in upstream.sasl" in line


def test_who_lets_only_clients_log_in_needs_no_account(strict_cluster: Secured, tmp_path: Path) -> None:
    """Without managed topics, where the brokers are named: so it is offered in docs/security.md."""
    port = strict_cluster.cluster.bootstrap(LISTENER)
    result = check(tmp_path, {"bootstrap": port, "brokers": {"1": port}}, ordering={"enabled": False})
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "cluster: good"), result.output


def test_brokers_are_asked_by_tls_where_kordon_would(strict_cluster: Secured, tmp_path: Path) -> None:
    """With SCRAM; a certificate that is not to be trusted is told once, and nothing is asked of who shows it."""
    files = strict_cluster.cluster.certificates
    upstream = upstream_of(strict_cluster, mechanism="SCRAM-SHA-512")
    upstream |= {"bootstrap": strict_cluster.cluster.bootstrap(TLS_LISTENER), "tls": {"ca": str(files.ca)}}
    result = check(tmp_path, upstream)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "cluster: good"), result.output
    (line,) = problems(check(tmp_path, {**upstream, "tls": {}}))
    assert line.startswith(f"upstream.bootstrap: {upstream['bootstrap']}: ")
    assert "certificate" in line


def test_brokers_without_an_authorizer_are_told(open_cluster: Cluster, tmp_path: Path) -> None:
    """Nothing but the network stands before Kordon's own topics there, which no configuration shows."""
    (line,) = problems(check(tmp_path, {"bootstrap": open_cluster.bootstrap()}))
    assert line.startswith("brokers have no authorizer: whoever reaches them may change Kordon's own topics")
