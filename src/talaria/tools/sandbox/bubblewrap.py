"""Run a program with bubblewrap: it writes to its folder only, and sees no secrets of ours."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

_PROBE_SECONDS = 10
# Who may talk to one of these can have work done outside.
_DOORS = tuple(Path(path) for path in ("/run/docker.sock", "/run/containerd", "/run/podman", "/run/user", "/run/dbus"))
_ALONE = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL")


class Sandbox(Struct, frozen=True, kw_only=True):
    """What a program may reach.

    All files are readable but those in ``hidden``, and those in ``/tmp`` that ``readable`` does not name. Only
    ``writable`` can be written, the folder in which the conversation began as a rule: a later ``cd`` widens nothing.
    ``/tmp`` is private: the folder ``temporary``, or one that is forgotten after each run. ``network`` is all or none.
    Nothing that runs inside outlives the program, not even what starts a session of its own.
    """

    writable: tuple[Path, ...]
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    temporary: Path | None = None
    network: bool = True

    def wrap(self, argv: Sequence[str], folder: Path) -> list[str]:
        """Return the call that runs ``argv`` inside, in ``folder``."""
        return [
            *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *(("--bind", str(self.temporary), "/tmp") if self.temporary else ("--tmpfs", "/tmp")),  # noqa: S108
            *self._mounts(),
            *_ALONE,
            *(() if self.network else ("--unshare-net",)),
            *("--chdir", str(folder), "--", *argv),
        ]

    def _mounts(self) -> list[str]:
        """Return the mounts, outer folders first: what lies deeper is said later and holds."""
        read = {place.resolve(): "--ro-bind" for place in self.readable if place.exists()}
        show = {place.resolve(): "--bind" for place in self.writable if place.exists()}
        hide = {place.resolve(): "" for place in (*_DOORS, *self.hidden) if place.exists()}
        mounts: list[str] = []
        for place, how in sorted({**read, **show, **hide}.items(), key=lambda entry: len(entry[0].parts)):
            mounts += (how, str(place), str(place)) if how else _cover(place)
        return mounts


def sandbox_available() -> str | None:
    """Return ``None`` where a sandbox works, else a sentence that says what is missing."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed."
    probe = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *_ALONE, "--", "true"]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run here: {error}"
    return None if done.returncode == 0 else f"bubblewrap does not run here: {done.stderr.strip()}"


def _cover(place: Path) -> tuple[str, ...]:
    if place.is_dir():
        return ("--tmpfs", str(place))
    return ("--ro-bind", "/dev/null", str(place))
