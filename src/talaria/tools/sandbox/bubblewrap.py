"""Run a program with bubblewrap: it writes to its folder only, and sees no secrets of ours."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from talaria.core.errors import ToolFailed

_PROBE_SECONDS = 10
# Who may talk to one of these can have work done outside.
_DOORS = tuple(Path(path) for path in ("/run/docker.sock", "/run/containerd", "/run/podman", "/run/user", "/run/dbus"))
_ALONE = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL")
_ROOT = 0
_NOBODY = "65534"
# Settings of the kernel and of devices, which are the host's: root may write them even without capabilities.
_KERNEL = tuple(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "fs"))
_KERNEL_SETTING = "/proc/sys/kernel/core_pattern"
_RUNS_LATER = (".git/hooks", ".git/config", ".talaria", "AGENTS.md", "CLAUDE.md")


class Sandbox(Struct, frozen=True, kw_only=True):
    """What a program may reach.

    All files are readable but those in ``hidden``, and those in ``/tmp`` that ``readable`` does not name. Only
    ``writable`` can be written, the folder in which the conversation began as a rule: a later ``cd`` widens nothing.
    What is there of git hooks, git configuration and instructions for agents stays read-only, because it takes effect
    outside. ``/tmp`` is private: the folder ``temporary``, or one that is forgotten after each run. ``network`` is all
    or none. Nothing that runs inside outlives the program, not even what starts a session of its own.

    ``problem`` says why there can be no sandbox here: then nothing runs.
    """

    writable: tuple[Path, ...]
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    temporary: Path | None = None
    network: bool = True
    problem: str = ""

    def wrap(self, argv: Sequence[str], folder: Path) -> list[str]:
        """Return the call that runs ``argv`` inside, in ``folder``; raises `ToolFailed` where there is no sandbox."""
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
        """The sentence for a person or a model whose command does not run."""
        return (
            f"Commands run only in a sandbox here, and there is none: {self.problem}"
            " Install it, or let the owner set sandbox.enabled to false."
        )

    def _mounts(self) -> list[str]:
        """Return the mounts, outer folders first: what lies deeper is said later and holds."""
        read = {place.resolve(): "--ro-bind" for place in (*self.readable, *self._runs_later()) if place.exists()}
        show = {place.resolve(): "--bind" for place in self.writable if place.exists()}
        hide = {place.resolve(): "" for place in (*_DOORS, *self.hidden) if place.exists()}
        mounts: list[str] = []
        for place, how in sorted({**read, **show, **hide}.items(), key=lambda entry: len(entry[0].parts)):
            mounts += (how, str(place), str(place)) if how else _cover(place)
        return mounts

    def _runs_later(self) -> Iterator[Path]:
        """Yield what is in the writable folders that runs or instructs outside of the sandbox."""
        for place in self.writable:
            yield from (place / name for name in _RUNS_LATER)


def sandbox_available() -> str | None:
    """Return ``None`` where a sandbox works and holds, else a sentence that says what is missing."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed."
    look = f"if (: >>{_KERNEL_SETTING}) 2>/dev/null; then exit 9; fi"
    probe = [program, "--ro-bind", "/", "/", "--dev", "/dev", *_processes(), *_ALONE, "--", "sh", "-c", look]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run here: {error}"
    if done.returncode == 9:
        return "settings of the kernel could be written from within it."
    return None if done.returncode == 0 else f"bubblewrap does not run here: {done.stderr.strip()}"


def _processes() -> list[str]:
    """Return the options for a ``/proc`` of its own; root is nobody inside, and the kernel's settings are read-only."""
    kernel = (word for path in _KERNEL if os.path.exists(path) for word in ("--ro-bind", path, path))  # noqa: PTH110
    as_nobody = ("--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY) if os.geteuid() == _ROOT else ()
    return [*as_nobody, "--proc", "/proc", *kernel]


def _cover(place: Path) -> tuple[str, ...]:
    if place.is_dir():
        return ("--tmpfs", str(place))
    return ("--ro-bind", "/dev/null", str(place))
