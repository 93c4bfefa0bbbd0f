"""Start background processes, and end them with all their children."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from talaria.contracts.background_processes import COOKIE, BackgroundProcess
from talaria.core.os_processes import (
    is_running,
    is_same_process,
    kill_tree,
    list_process_tree,
    list_session_processes,
    machine_id,
    signal_all,
)
from talaria.core.umask import INHERIT, person_umask
from talaria.tools.process.run_folder import ProcessFiles
from talaria.tools.sandbox.client_program import end_inside

_KEEPER = Path(__file__).with_name("pty_holder.py")
# The shell holds the input open, so that no writer closes it; a signal makes the shell release it. Without `set -m` its
# background processes would ignore SIGINT.
_WRAPPER = """place=$1 mask=$2; shift 2
exec 7<>"$place/in"
trap 'exec 7>&-' USR1
echo $$ >"$place/pid"
[ -z "$BASH_VERSION" ] || set -m
[ -z "$mask" ] || umask "$mask"
cd "$1" && { shift; "$@" <"$place/in" 7>&- & }
code=$? child=$!
[ -z "$mask" ] || umask 077
[ -z "$BASH_VERSION" ] || set +m
exec >/dev/null 2>&1
while [ -n "$child" ]; do wait "$child"; code=$?; kill -0 "$child" || child=; done
echo "$code" >"$place/status"
"""
_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXFSZ)
CLOSE_INPUT = signal.SIGUSR1
GRACE = 2.0
_POLL_INTERVAL = 0.05


def launch(
    files: ProcessFiles, argv: Sequence[str], *, folder: str, environment: Mapping[str, str], pty: bool = False
) -> int:
    """Start ``argv`` there and return the number of the leading process; raises `OSError` on failure."""
    bash, mask = shutil.which("bash") or "", person_umask()
    own = [str(files.place), "" if mask == INHERIT else f"{mask:o}", folder]
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
