"""Gateways of all profiles on this machine: which run, stop them, start them again, wait until they are healthy."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import msgspec

from talaria.cli.commands.gateway.service_units import change, find_service, is_active
from talaria.cli.commands.update.versions import RunningGateway
from talaria.core.errors import Refused
from talaria.runtime.workers import WorkerStatus

_POLL_SECONDS = 0.2
_PROBE_SECONDS = 3.0
_LAST_CHARACTERS = 2_000
_decode_workers = msgspec.json.Decoder(list[WorkerStatus]).decode


class Gateways:
    """Gateways of the profiles of one home, through the ``command`` that starts Talaria."""

    def __init__(self, command: Sequence[str], profiles: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._profiles = profiles
        self._environment = environment

    def find_running(self) -> tuple[RunningGateway, ...]:
        """Return the gateways that run on this machine."""
        return tuple(one for profile in self._profiles if (one := self._find(profile)) is not None)

    def stop(self, gateways: Sequence[RunningGateway]) -> None:
        """Stop gateways; their running turns may finish first."""
        for one in gateways:
            service = find_service(one.profile, self._environment, system=sys.platform) if one.is_service else None
            if service is not None:
                change(service.stop, self._environment)
            elif self._list_workers(one.profile):
                self.run(one.profile, "gateway", "stop")

    def start(self, gateways: Sequence[RunningGateway]) -> None:
        """Start gateways that do not run."""
        for one in gateways:
            service = find_service(one.profile, self._environment, system=sys.platform) if one.is_service else None
            if service is not None:
                change(service.start, self._environment)
            elif not self._list_workers(one.profile):
                self.run(one.profile, "gateway", "start")

    def wait_until_healthy(self, gateways: Sequence[RunningGateway], version: str, seconds: float) -> None:
        """Wait until gateways of ``version`` answer, ready if they were before; raises `Refused` if they do not."""
        deadline = time.monotonic() + seconds
        for one in gateways:
            while not self._is_healthy(one, version):
                if time.monotonic() > deadline:
                    raise Refused(
                        f"The gateway of the profile {one.profile} didn't become healthy within {seconds:g} s."
                        f" `talaria -p {one.profile} gateway logs` may say why."
                    )
                time.sleep(_POLL_SECONDS)

    def run(self, profile: str, *arguments: str) -> str:
        """Run a command of the selected version and return its output; raises `Refused` with its error."""
        return run_talaria(self._command, profile, arguments, self._environment)

    def _find(self, profile: str) -> RunningGateway | None:
        workers = self._list_workers(profile)
        if not workers:
            return None
        service = find_service(profile, self._environment, system=sys.platform)
        is_service = service is not None and is_active(service, self._environment)
        return RunningGateway(profile, is_service, any(map(_is_ready, workers)))

    def _is_healthy(self, gateway: RunningGateway, version: str) -> bool:
        workers = [one for one in self._list_workers(gateway.profile) if one.version.split()[-1] == version]
        return any(_is_reachable(one, "/health") and (not gateway.is_ready or _is_ready(one)) for one in workers)

    def _list_workers(self, profile: str) -> list[WorkerStatus]:
        """Return the processes of a profile's gateway on this machine, if they answer."""
        command = [*self._command, "-p", profile, "gateway", "status", "--json"]
        done = subprocess.run(command, env=self._environment, capture_output=True, check=False)
        try:
            workers = _decode_workers(done.stdout or b"[]")
        except msgspec.DecodeError:
            return []
        return [one for one in workers if one.host == os.uname().nodename]


def run_talaria(command: Sequence[str], profile: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a command of some version and return its output; raises `Refused` with its error."""
    done = subprocess.run(
        [*command, "-p", profile, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        problem = done.stderr.strip()[-_LAST_CHARACTERS:].removeprefix("talaria: ")
        raise Refused(problem or f"`talaria {' '.join(arguments)}` failed with exit code {done.returncode}.")
    return done.stdout


def _is_ready(worker: WorkerStatus) -> bool:
    return _is_reachable(worker, "/ready")


def _is_reachable(worker: WorkerStatus, path: str) -> bool:
    connection = HTTPConnection(urlsplit(worker.address).netloc, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
