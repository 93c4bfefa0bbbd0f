"""Launch a process independent of ours: it leads its own session, and a shell records its exit code."""

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from talaria.core.umask import INHERIT, person_umask
from talaria.tools.process.run_folder import ProcessFiles

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
