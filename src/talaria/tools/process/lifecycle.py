"""Start background processes, each with a folder of output and exit code, and end them with their children."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from talaria.contracts.background_processes import COOKIE, BackgroundProcess
from talaria.core.files import INHERIT, person_umask
from talaria.core.os_processes import (
    is_running,
    is_same_process,
    kill_tree,
    list_process_tree,
    list_session_processes,
    machine_id,
    signal_all,
)
from talaria.tools.output import make_readable
from talaria.tools.sandbox.client_program import end_inside

_KEEPER = Path(__file__).with_name("pty_holder.py")
# The shell holds the input open, so that no writer closes it; a signal makes the shell release it. That interrupts
# `wait`, so it is called again: it returns the status also of a process that has ended meanwhile. Without `set -m` the
# background processes of the shell would ignore SIGINT.
_WRAPPER = """files=$1 mask=$2; shift 2
exec 7<>"$files/in"
trap 'exec 7>&-; released=1' USR1
echo $$ >"$files/pid"
[ -z "$BASH_VERSION" ] || set -m
[ -z "$mask" ] || umask "$mask"
cd "$1" && { shift; "$@" <"$files/in" 7>&- & }
code=$? child=$!
[ -z "$mask" ] || umask 077
[ -z "$BASH_VERSION" ] || set +m
exec >/dev/null 2>&1
while [ -n "$child" ]; do released=; wait "$child"; code=$?; [ -n "$released" ] || child=; done
echo "$code" >"$files/status"
"""
_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXFSZ)
CLOSE_INPUT = signal.SIGUSR1
GRACE = 2.0
_POLL_INTERVAL = 0.05
ROTATE_AT = 8 * 1024 * 1024
_OWNER_ONLY = 0o700
_PRIVATE = 0o600
_AT_ONCE = 65_536
_TAIL = 16_384


class ProcessFiles:
    """The files of one process; ``out`` is its output, ``out.1`` the output before the last rotation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self._out = str(self.out)
        self.before = folder / "out.1"
        self.input = folder / "in"
        self._status = folder / "status"
        self._pid = folder / "pid"

    def prepare(self) -> None:
        """Create the folder, an empty output and a pipe for the input."""
        self.folder.mkdir(_OWNER_ONLY, parents=True)
        self.out.touch(_PRIVATE)
        os.mkfifo(self.input, _PRIVATE)

    @property
    def pid(self) -> int:
        """Return the number of the process that was started; 0 if none was."""
        return int(_read_complete_line(self._pid) or 0)

    @property
    def code(self) -> int | None:
        """Return the exit code, once it was written; negative for a signal."""
        line = _read_complete_line(self._status)
        return int(line) if line else None

    @property
    def ended_at(self) -> datetime | None:
        """Return when the exit code was written; ``None`` if it wasn't."""
        try:
            return datetime.fromtimestamp(self._status.stat().st_mtime, UTC)
        except OSError:
            return None

    @property
    def size(self) -> int:
        """Return the size of the output in bytes."""
        try:
            return os.stat(self._out).st_size  # noqa: PTH116 (asked often, of many)
        except OSError:
            return 0

    def read(self, start: int, most: int) -> bytes:
        """Return a piece of the output."""
        try:
            with self.out.open("rb") as file:
                file.seek(start)
                return file.read(most)
        except OSError:
            return b""

    def read_last_lines(self, count: int, limit: int = _TAIL) -> str:
        """Return the last lines of the output as a person would see them, within the limit of bytes."""
        raw = self.read(max(0, self.size - limit), limit)
        if len(raw) < limit and self.before.exists():
            raw = _read_tail(self.before, limit - len(raw)) + raw
        lines = make_readable(raw).rstrip("\n").split("\n")
        return "\n".join(lines[-count:])

    def write(self, text: bytes) -> None:
        """Write to the input; raises `BlockingIOError` while the process does not read, `OSError` if it is gone."""
        handle = os.open(self.input, os.O_WRONLY | os.O_NONBLOCK)
        try:
            while text:
                text = text[os.write(handle, text[:_AT_ONCE]) :]
        finally:
            os.close(handle)

    def rotate(self) -> bool:
        """Rotate the output if it is too long; output written at this moment may be lost."""
        if self.size < ROTATE_AT:
            return False
        self.before.touch(_PRIVATE)
        self.before.write_bytes(_read_tail(self.out, ROTATE_AT))
        os.truncate(self.out, 0)
        return True


def launch(
    files: ProcessFiles, argv: Sequence[str], *, folder: str, environment: Mapping[str, str], pty: bool = False
) -> int:
    """Start ``argv`` there and return the number of the leading process; raises `OSError` on failure."""
    bash, mask = shutil.which("bash") or "", person_umask()
    own = [str(files.folder), "" if mask == INHERIT else f"{mask:o}", folder]
    if pty:
        call = [sys.executable, "-I", "-S", str(_KEEPER), *own, *argv]
    elif bash:
        call = [bash, "--noprofile", "--norc", "-c", _WRAPPER, "bash", *own, *argv]
    else:
        call = ["/bin/sh", "-c", _WRAPPER, "sh", *own, *argv]
    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return os.posix_spawn(
        call[0],
        call,
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(files.out), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )


async def end_tree(process: BackgroundProcess) -> None:
    """Ask a process and all its children to stop, inside of its sandbox too, and kill the rest."""
    if not is_same_process(process.pid, process.started, process.machine):
        return
    await end_inside(process.end)
    cookie = f"{COOKIE}={process.id}"
    signal_all(await asyncio.to_thread(list_process_tree, process.pid, cookie), signal.SIGTERM)
    try:
        async with asyncio.timeout(GRACE):
            # The system signals the end of one process, but not of a tree.
            while await asyncio.to_thread(list_process_tree, process.pid, cookie):  # noqa: ASYNC110 (see above)
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError:
        await asyncio.to_thread(kill_tree, process.pid, cookie)
    except asyncio.CancelledError:
        kill_tree(process.pid, cookie)
        raise


class LeftBehind:
    """Processes left in the sessions of ended ones: first asked to stop, then killed."""

    def __init__(self) -> None:
        self._leaders: dict[int, signal.Signals] = {}

    def __bool__(self) -> bool:
        return bool(self._leaders)

    def add(self, process: BackgroundProcess) -> None:
        """Handle the leftovers of this process."""
        if process.pid > 1 and process.machine == machine_id():
            self._leaders[process.pid] = signal.SIGTERM

    async def end(self) -> None:
        """Take the next step for each."""
        if not self._leaders:
            return
        # A reused number belongs to another process: none is assigned while its session still exists.
        leaders = {leader: number for leader, number in self._leaders.items() if not is_running(leader)}
        self._leaders = {}
        asked = {leader for leader, number in leaders.items() if number is signal.SIGTERM}
        for number, some in ((signal.SIGTERM, asked), (signal.SIGKILL, leaders.keys() - asked)):
            rest = await asyncio.to_thread(list_session_processes, some) if some else set()
            signal_all(rest, number)
            if rest and number is signal.SIGTERM:
                self._leaders.update(dict.fromkeys(some, signal.SIGKILL))


def _read_complete_line(path: Path) -> str:
    """Return a completely written line; empty if there is none."""
    try:
        text = path.read_text()
    except OSError:
        return ""
    return text.strip() if text.endswith("\n") else ""


def _read_tail(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read(most)
