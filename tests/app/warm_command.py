"""A program that Talaria starts, forked by the fork server: ``python -IS warm_command.py SOCKET MODULE ARGUMENTS``.

Importing the MCP library takes a second, and the fork server has it. This process hands its streams over and waits. A
request to end is passed on; if this process is killed, the fork server kills the other one. Only the standard library
is imported here, without ``site``.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType

_LONGEST_ANSWER = 32


def main() -> int:
    """Run a module in a forked process and return its exit code."""
    address, module, *arguments = sys.argv[1:]
    mask = os.umask(0o022)
    run = {
        "arguments": arguments,
        "environment": dict(os.environ),  # noqa: TID251 (what Talaria gives to the program)
        "folder": os.getcwd(),  # noqa: PTH109 (importing pathlib takes as long as all the rest)
        "mask": mask,
        "module": module,
        "is_bound": True,
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address)
    socket.send_fds(connection, [json.dumps(run).encode()], [0, 1, 2])
    pid = int(connection.recv(_LONGEST_ANSWER))

    def end(number: int, frame: FrameType | None) -> None:
        os.kill(pid, number)

    signal.signal(signal.SIGTERM, end)
    for stream in range(3):
        os.close(stream)
    code = int(connection.recv(_LONGEST_ANSWER))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main())
