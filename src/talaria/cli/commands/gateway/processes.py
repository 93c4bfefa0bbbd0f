"""Gateway processes of a profile: their live status, or the one they last stored."""

import os
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from talaria.cli.services import Services
from talaria.core.errors import StoreError
from talaria.core.ids import WorkerId
from talaria.observability.shutdown_report import ShutdownReport, list_running
from talaria.runtime.workers import WorkerStatus, decode_worker, read_workers

_TIMEOUT_SECONDS = 3.0


def find_processes(services: Services) -> tuple[list[WorkerStatus], str]:
    """Return the live processes, oldest first, and the store's error if it cannot be read.

    A SQLite file is not opened if a process on this machine answers: its answer is more recent, and if the file was
    replaced, opening it would do harm.
    """
    here = list_running(services.profile.logs_folder)
    answers = {one.pid: _fetch_status(one) for one in here}
    stored: list[WorkerStatus] = []
    problem = ""
    if services.settings().store.url or not any(answers.values()):
        try:
            stored = _read_stored(services)
        except StoreError as error:
            problem = str(error)
    found = {one.worker: one for one in stored}
    for one in here:
        answer = answers[one.pid]
        last_stored = found.get(WorkerId(one.worker))
        found[WorkerId(one.worker)] = answer or structs.replace(
            last_stored or _build_unreachable_status(one), error=_describe_silent(one)
        )
    return sorted(found.values(), key=lambda one: one.started), problem


def _read_stored(services: Services) -> list[WorkerStatus]:
    with services.open_database() as database:
        return database.read(read_workers)


def _fetch_status(process: ShutdownReport) -> WorkerStatus | None:
    """Return the status that a process reports; ``None`` if it does not answer."""
    connection = HTTPConnection(urlsplit(process.address).netloc or "127.0.0.1:0", timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/status")
        return decode_worker(connection.getresponse().read())
    except (OSError, HTTPException, msgspec.DecodeError):
        return None
    finally:
        connection.close()


def _build_unreachable_status(process: ShutdownReport) -> WorkerStatus:
    return WorkerStatus(
        worker=WorkerId(process.worker),
        pid=process.pid,
        host=os.uname().nodename,
        started=process.started,
        at=process.started,
        version=process.version,
        address=process.address,
    )


def _describe_silent(process: ShutdownReport) -> str:
    return f"Process {process.pid} is running, but its status at {process.address or 'any address'} can't be read."
