"""A separate program inside of a sandbox: connects a loopback port to the proxy, then runs a command.

It imports nothing of ours, so that it starts fast: ``proxy_bridge.py SOCKET PORT COMMAND…``.
"""

import errno
import os
import socket
import sys
import threading

_CHUNK = 65_536
_CANNOT_RUN = 126


def main(path: str, port: int, command: list[str]) -> None:
    """Serve the port in a process of its own, unless an earlier one does, and become the command."""
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
    else:
        child = os.fork()
        if child == 0:
            os.setsid()  # in a container it stays for the next command
            if os.fork() == 0:
                _serve(listener, path)
            os._exit(0)
        os.waitpid(child, 0)
        listener.close()
    try:
        os.execvp(command[0], command)  # noqa: S606 (what to run is the whole purpose)
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
        os._exit(_CANNOT_RUN)


def _serve(listener: socket.socket, path: str) -> None:
    """Serve until the sandbox ends; holds none of the command's files open."""
    listener_fd = listener.fileno()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (pathlib takes longer to load than all the rest)
        if int(name) > 2 and int(name) != listener_fd:
            try:
                os.close(int(name))
            except OSError:  # the one that listed them
                continue
    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(path)
        except OSError:
            near.close()
            continue
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    try:
        while piece := one.recv(_CHUNK):
            other.sendall(piece)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        one.close()
        other.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
