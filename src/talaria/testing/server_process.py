"""Servers of the system as processes on loopback, for tests: free ports, certificates, start and end."""

import random
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60
_STOP_SECONDS = 20
_PORTS = range(20_000, 32_000)  # the system gives none of them to clients, so they stay free


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[None]:
    """Run a server, which ends with this process too."""
    with (folder / "output").open("ab") as output:
        # setpriv: the server ends even if the test run is killed
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *command], stdout=output, stderr=output, cwd=folder
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(number: int) -> list[int]:
    """Return different ports that nobody listens at."""
    sockets: list[socket.socket] = []
    while len(sockets) < number:
        try:
            sockets.append(socket.create_server(("127.0.0.1", random.choice(_PORTS))))  # noqa: S311 (no secret)
        except OSError:
            continue
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for_port(port: int) -> None:
    """Wait until a server listens."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
        else:
            return


def make_certificate(certificate: Path, key: Path) -> None:
    """Write a self-signed certificate for localhost."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", str(key), "-out", str(certificate), "-days", "30", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
