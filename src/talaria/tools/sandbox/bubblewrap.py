"""Run programs in bubblewrap: they write only to their folder, and see none of our secrets."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from talaria.core.errors import ToolFailed

_PROBE_SECONDS = 10
# A program that can talk to one of these can act outside.
_DOORS = tuple(Path(path) for path in ("/run/docker.sock", "/run/containerd", "/run/podman", "/run/user", "/run/dbus"))
_ALONE = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL")
_ROOT = 0
_NOBODY = "65534"
# Settings of the kernel and of devices, which belong to the host: root may write them even without capabilities.
_KERNEL = tuple(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "fs"))
_KERNEL_SETTING = "/proc/sys/kernel/core_pattern"
_RUNS_LATER = (".git/hooks", ".git/config", ".talaria", "AGENTS.md", "CLAUDE.md")
_READ_ONLY = "Read-only file system"
_FORBIDDEN = re.compile(
    r"Permission denied|Operation not permitted|no new privileges|\bE(?:ROFS|ACCES|PERM)\b|Docker daemon|to bus:"
    r"|/tmp/.*No such file|No such file.*/tmp/"
)
_OFFLINE = re.compile(r"resol(?:ve|ution)|(?i:network is )unreachable|Connection refused|\bE(?:AI_AGAIN|NETUNREACH)\b")


class Sandbox(Struct, frozen=True, kw_only=True):
    """The limits of a sandboxed program.

    All files are readable except those in ``hidden``, and those in ``/tmp`` that ``readable`` doesn't name. Only
    ``writable`` can be written, usually the folder in which the session started: a later ``cd`` widens nothing.
    Existing git hooks, git configuration and agent instructions stay read-only, because they take effect outside.
    ``/tmp`` is private: the folder ``temporary``, or one that is deleted after each run. ``network`` is all or nothing.
    No process inside outlives the program, even in its own session.

    ``problem`` says why there is no sandbox here: then nothing runs.
    """

    writable: tuple[Path, ...]
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    temporary: Path | None = None
    network: bool = True
    problem: str = ""

    def wrap(self, argv: Sequence[str], folder: Path) -> list[str]:
        """Return the call that runs ``argv`` inside, in ``folder``; raises `ToolFailed` if there is no sandbox."""
        if self.problem:
            raise ToolFailed(self.refusal)
        return [
            *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", *_processes()),
            *(("--bind", str(self.temporary), "/tmp") if self.temporary else ("--tmpfs", "/tmp")),  # noqa: S108
            *self._mounts(),
            *_ALONE,
            *(() if self.network else ("--unshare-net",)),
            *("--chdir", str(folder), "--", *argv),
        ]

    @property
    def refusal(self) -> str:
        """Return the sentence for a person or a model whose command doesn't run."""
        return (
            f"Commands must run in a sandbox here, and none is available: {self.problem} Install it, or have "
            "the owner set sandbox.enabled to false."
        )

    @property
    def limits(self) -> str:
        """Return what programs can't do inside and which setting changes that, for a model and its user."""
        network = "" if self.network else ", without network access (sandbox.network)"
        folders = " and ".join(str(place) for place in self.writable)
        return (
            f"commands run in a sandbox: they can write only to {folders} and to a /tmp that is emptied after "
            f"each command{network}; only the owner can change this, with the setting sandbox.enabled"
        )

    def remarks(self, output: str, code: int | None) -> tuple[str, ...]:
        """Return the limits if a program seems to have hit one, judging by its exit code and its output."""
        offline = not self.network and _OFFLINE.search(output)
        met = _READ_ONLY in output or (code != 0 and (_FORBIDDEN.search(output) or offline))
        return (self.limits,) if met else ()

    def _mounts(self) -> list[str]:
        """Return the mounts, outer folders first: later, deeper mounts take precedence."""
        read = {place.resolve(): "--ro-bind" for place in (*self.readable, *self._runs_later()) if place.exists()}
        show = {place.resolve(): "--bind" for place in self.writable if place.exists()}
        hide = {place.resolve(): "" for place in (*_DOORS, *self.hidden) if place.exists()}
        mounts: list[str] = []
        for place, how in sorted({**read, **show, **hide}.items(), key=lambda entry: len(entry[0].parts)):
            mounts += (how, str(place), str(place)) if how else _cover(place)
        return mounts

    def _runs_later(self) -> Iterator[Path]:
        """Yield files in the writable folders that run or give instructions outside of the sandbox."""
        for place in self.writable:
            yield from (place / name for name in _RUNS_LATER)


def sandbox_available() -> str | None:
    """Return ``None`` if a sandbox works and holds, otherwise a sentence that says what is missing.

    Each program found is tested once per process; an unfinished test is repeated next time.
    """
    import shutil  # noqa: PLC0415 (loaded when a sandbox is looked for)

    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed."
    try:
        return _probe(program)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap doesn't work here: {error}"


@cache
def _probe(program: str) -> str | None:
    look = f"if (: >>{_KERNEL_SETTING}) 2>/dev/null; then exit 9; fi"
    probe = [program, "--ro-bind", "/", "/", "--dev", "/dev", *_processes(), *_ALONE, "--", "sh", "-c", look]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    if done.returncode == 9:
        return "kernel settings are writable from inside it."
    return None if done.returncode == 0 else f"bubblewrap doesn't work here: {done.stderr.strip()}"


def _processes() -> list[str]:
    """Return the options for a private ``/proc``; root is nobody inside, and kernel settings are read-only."""
    kernel = (word for path in _KERNEL if os.path.exists(path) for word in ("--ro-bind", path, path))  # noqa: PTH110
    as_nobody = ("--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY) if os.geteuid() == _ROOT else ()
    return [*as_nobody, "--proc", "/proc", *kernel]


def _cover(place: Path) -> tuple[str, ...]:
    if place.is_dir():
        return ("--tmpfs", str(place))
    return ("--ro-bind", "/dev/null", str(place))
