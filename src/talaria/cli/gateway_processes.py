"""The gateway processes of a profile: what each says of itself when asked, else what it last wrote into the store."""

import os
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from talaria.cli.services import Services
from talaria.core.errors import StoreError
from talaria.core.ids import WorkerId
from talaria.sessions.ending import Ending, still_running
from talaria.sessions.presence import WorkerStatus, decode_worker, read_workers

_ASK_SECONDS = 3.0


def find_processes(services: Services) -> tuple[list[WorkerStatus], str]:
    """Return the processes that are alive, oldest first, and what is wrong with the store if it cannot be read.

    A file is left alone where a process of this machine answers: that knows more, and if somebody has put another file
    in its place, opening it would do harm.
    """
    here = still_running(services.profile.logs_folder)
    answers = {one.pid: _asked(one) for one in here}
    written: list[WorkerStatus] = []
    trouble = ""
    if services.settings().store.url or not any(answers.values()):
        try:
            written = _written(services)
        except StoreError as error:
            trouble = str(error)
    found = {one.worker: one for one in written}
    for one in here:
        answer = answers[one.pid]
        before = found.get(WorkerId(one.worker))
        found[WorkerId(one.worker)] = answer or structs.replace(before or _unheard(one), error=_silent(one))
    return sorted(found.values(), key=lambda one: one.started), trouble


def _written(services: Services) -> list[WorkerStatus]:
    with services.open_database() as database:
        return database.read(read_workers)


def _asked(process: Ending) -> WorkerStatus | None:
    """Return what a process says of itself; ``None`` where it does not answer."""
    connection = HTTPConnection(urlsplit(process.address).netloc or "127.0.0.1:0", timeout=_ASK_SECONDS)
    try:
        connection.request("GET", "/status")
        return decode_worker(connection.getresponse().read())
    except (OSError, HTTPException, msgspec.DecodeError):
        return None
    finally:
        connection.close()


def _unheard(process: Ending) -> WorkerStatus:
    return WorkerStatus(
        worker=WorkerId(process.worker),
        pid=process.pid,
        host=os.uname().nodename,
        started=process.started,
        at=process.started,
        version=process.version,
        address=process.address,
    )


def _silent(process: Ending) -> str:
    return f"Process {process.pid} runs, but does not say how it is doing at {process.address or 'any address'}."
