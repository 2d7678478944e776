"""Has a command of `forked_commands.py` run: `python -IS forked_command.py SOCKET ARGUMENT…`.

It imports little, as it is started for each command.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType


def main() -> int:
    """Hands over the arguments and files of this process; returns the exit code of the command."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(sys.argv[1])

        def pass_on(number: int, _: FrameType | None) -> None:
            connection.send(bytes([number]))

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, pass_on)
        folder = os.getcwd()  # noqa: PTH109 - pathlib takes as long to import as the rest
        told = json.dumps([sys.argv[2:], folder, dict(os.environ)]).encode()
        socket.send_fds(connection, [told], [0, 1, 2])
        code = connection.recv(1)
    return code[0] if code else 1


if __name__ == "__main__":
    sys.exit(main())
