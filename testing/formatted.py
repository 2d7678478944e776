"""What a broker finds in its folder at its first start: Kafka's own tool writes it once, and then it is copied.

It is the same for all brokers of a version but for the ids that `meta.properties` tells. The tool is a JVM.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kordon.testing.broker_config import SCRAM_MECHANISMS, USERS, write_properties
from kordon.testing.jars import cache_dir, locked
from kordon.testing.java_process import START_SECONDS, ClusterFailed

_IDS: Final = "meta.properties"


def new_id() -> str:
    """Returns an id as Kafka writes them."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def format_folder(
    node_id: int, folder: Path, cluster_id: str, version: str, java: Sequence[str], *, with_users: bool
) -> None:
    """Writes the first metadata into the folder `data` of a broker's folder.

    Args:
        folder: Has the broker's `server.properties`.
        version: Kafka's.
        java: The command line of Java up to the class.
        with_users: Whether the users of SCRAM are in it.

    Raises:
        ClusterFailed: The tool failed; its words are in the message.
    """
    users = _users() if with_users else []
    digest = hashlib.sha256(" ".join(users).encode()).hexdigest()[:8]
    kept = cache_dir() / f"formatted-{version}-{digest}"
    with locked(kept.name):
        if not kept.exists():
            _format(node_id, folder, cluster_id, java, users)
            unfinished = kept.with_name(f"{kept.name}-unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(folder / "data", unfinished)
            unfinished.rename(kept)
            return
    shutil.copytree(kept, folder / "data")
    ids = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_id()}
    write_properties(folder / "data" / _IDS, ids)


def _users() -> list[str]:
    return [
        argument
        for name, password in USERS.items()
        for mechanism in SCRAM_MECHANISMS
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]


def _format(node_id: int, folder: Path, cluster_id: str, java: Sequence[str], users: Sequence[str]) -> None:
    given_id = f"--cluster-id={cluster_id}"  # one word: an id may begin with a dash, like a flag
    command = [*java, "kafka.tools.StorageTool", "format", given_id, "-c", "server.properties", *users]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    if done.returncode:
        raise ClusterFailed(f"formatting broker {node_id} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
