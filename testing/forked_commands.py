"""`kordon` for a shell that types many commands: each is forked from a process that has imported its code already.

Half a second of each command, and most of its processor time, is to begin Python and to import. What differs from
`python -m kordon.testing.short_leases` is that alone.

The shell starts `forked_command.py`, which hands over its arguments and its files, and ends as the command ends.
"""

# pyright: reportUnusedImport=false

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import kordon.proxy.commands.autoscale_cli
import kordon.proxy.commands.decisions_source
import kordon.proxy.commands.topics_before
import kordon.proxy.commands.topics_progress
import kordon.proxy.commands.topics_tables
import kordon.proxy.process.service  # noqa: F401 - so that whoever is forked has them
from kordon.commands import main as kordon_command
from kordon.testing.java_process import die_with_parent
from kordon.testing.short_leases import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROGRAM: Final = "kordon.testing.forked_commands"
CLIENT: Final = Path(__file__).with_name("forked_command.py")
_MOST_BYTES: Final = 1024 * 1024
_FILES: Final = 3


class _Commands:
    """Starts a command for each connection, tells its exit code there, and ends it with the connection."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._begin)

    def serve(self) -> None:
        """Serves until this process is killed."""
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _begin(self) -> None:
        connection, _ = self._listener.accept()
        text, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, _FILES)
        arguments, folder, environment = json.loads(text)
        pid = os.fork()
        if pid == 0:
            _run(arguments, folder, environment, files)
        for each in files:
            os.close(each)
        ended = os.pidfd_open(pid)
        self._selector.register(ended, selectors.EVENT_READ, partial(self._end, connection, pid, ended))
        self._selector.register(connection, selectors.EVENT_READ, partial(self._pass_on, connection, pid))

    def _pass_on(self, connection: socket.socket, pid: int) -> None:
        """Sends the command the signal that its shell has sent; that it was killed shows by the connection's end."""
        told = connection.recv(1)
        if not told:
            self._selector.unregister(connection)
        os.kill(pid, told[0] if told else signal.SIGKILL)

    def _end(self, connection: socket.socket, pid: int, ended: int) -> None:
        self._selector.unregister(ended)
        os.close(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(KeyError):
            self._selector.unregister(connection)
        with suppress(OSError):
            connection.send(bytes([code if code >= 0 else 128 - code]))
        connection.close()


def _run(arguments: Sequence[str], folder: str, environment: Mapping[str, str], files: Sequence[int]) -> NoReturn:
    """Is the command, in a process of its own."""
    die_with_parent()
    for number, each in enumerate(files):
        os.dup2(each, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    if arguments[:1] == ["run"]:
        shorten()
    try:
        kordon_command(list(arguments), prog_name="kordon")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    else:
        code = 0
    sys.stdout.flush()
    os._exit(code)


def main() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        gc.freeze()
        _Commands(listener).serve()


if __name__ == "__main__":
    main()
