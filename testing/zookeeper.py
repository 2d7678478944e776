"""The ZooKeeper of a Kafka that has no KRaft yet: one node, on this machine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from kordon.testing.broker_config import write_properties
from kordon.testing.java_process import START_SECONDS, JavaProcess, java_command
from kordon.testing.waiting import wait_until

_HOST: Final = "127.0.0.1"


class ZooKeeper(JavaProcess):
    """One ZooKeeper process."""

    def __init__(self, port: int, jars: Path, folder: Path) -> None:
        folder.mkdir()
        write_properties(folder / "zoo.cfg", _properties(port, folder / "data"))
        command = [*java_command(jars, folder), "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"]
        super().__init__("ZooKeeper", [port], folder, command)
        self.address = f"{_HOST}:{port}"
        self._port = port

    def wait_forgotten(self, node_id: int) -> None:
        """Waits for the end of a killed broker's session: only then a successor starts; raises TimeoutError."""
        held = f"/brokers/ids/{node_id}"
        wait_until(f"ZooKeeper has let {held} go", lambda: not self._may_hold(held), START_SECONDS)

    def _may_hold(self, path: str) -> bool:
        """Whether a path that ends with its session is there; True, too, while ZooKeeper is too busy to tell."""
        try:
            with socket.create_connection((_HOST, self._port), 5) as sock:
                sock.sendall(b"dump")
                with sock.makefile("rb") as stream:
                    return path in stream.read().decode().split()
        except TimeoutError:
            return True


def _properties(port: int, folder: Path) -> dict[str, str]:
    """Returns zoo.cfg of a ZooKeeper of one node."""
    return {
        "tickTime": "500",  # sessions may then end after 1 s: a killed broker is soon missed
        "dataDir": str(folder),
        "clientPort": str(port),
        "clientPortAddress": _HOST,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "dump",  # tells whether a killed broker is forgotten yet
    }
