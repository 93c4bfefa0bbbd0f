"""Run programs in bubblewrap: they write only to their folder, and see none of our secrets."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from talaria.contracts.sandbox import (
    SandboxAbilities,
    SandboxCommand,
    SandboxedCall,
    SandboxKind,
    SandboxLimit,
    SandboxPolicy,
    SandboxPrograms,
    SandboxWorkspace,
    find_unsupported,
    refuse_sandbox,
)
from talaria.tools.sandbox.inside import (
    PROXY_ENVIRONMENT,
    PROXY_FOLDER,
    build_limit_argv,
    describe_network,
    has_hit_limit,
    leave_out_proxy,
    list_delayed_effects,
)

if TYPE_CHECKING:  # loaded where hosts are listed
    from talaria.tools.sandbox.proxy import AllowListProxy

HOW_TO_FIX = (
    "Install it (on Debian and Ubuntu: `apt install bubblewrap`), choose another `sandbox.kind`, or have the owner set "
    "`sandbox.enabled` to false."
)

_PROBE_SECONDS = 10
# A program that can talk to one of these can act outside.
_DOORS = tuple(Path(path) for path in ("/run/docker.sock", "/run/containerd", "/run/podman", "/run/user", "/run/dbus"))
_ALONE = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL")
_ROOT = 0
_NOBODY = "65534"
# Settings of the kernel and of devices, which belong to the host: root may write them even without capabilities.
_KERNEL = tuple(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "fs"))
_HIDDEN_FILE = re.compile(r"/tmp/.*No such file|No such file.*/tmp/")  # noqa: S108 (a pattern)
_KERNEL_SETTING = "/proc/sys/kernel/core_pattern"


class BubblewrapSandbox:
    """Programs of this machine, in their own namespaces. Implements `Sandbox`.

    All files are readable except hidden ones, and those in ``/tmp`` that the policy doesn't name. Existing git hooks,
    git configuration and agent instructions stay read-only, because they take effect outside. ``/tmp`` is deleted after
    each run. No process inside outlives the program, even in its own session.
    """

    kind: SandboxKind = "bubblewrap"
    programs: SandboxPrograms | None = None

    def __init__(self, policy: SandboxPolicy) -> None:
        self.policy = policy
        folders = " and ".join(map(str, policy.writable))
        self.description = (
            f"commands run in a sandbox: they can write only to {folders} and to a /tmp that is emptied after "
            f"each command{describe_network(policy)}; only the owner can change this, with the setting "
            "sandbox.enabled"
        )
        self.abilities = _find_abilities()
        self._proxy: AllowListProxy | None = None
        self._closing = AsyncExitStack()

    async def start(self) -> None:
        """Check that it works and enforces the policy; raises `ToolFailed`."""
        problem = await asyncio.to_thread(find_sandbox_problem)
        if problem:
            raise refuse_sandbox(f"{problem} {HOW_TO_FIX}")
        if problem := find_unsupported(self.policy, self.abilities, self.kind):
            raise refuse_sandbox(problem)
        if not self.policy.network and self.policy.hosts and self._proxy is None:
            from talaria.tools.sandbox.proxy import run_proxy  # noqa: PLC0415 (loaded where hosts are listed)

            self._proxy = await self._closing.enter_async_context(run_proxy(self.policy.hosts))

    async def close(self) -> None:
        """Stop the proxy."""
        self._proxy = None
        await self._closing.aclose()

    def call(self, command: SandboxCommand) -> SandboxedCall:
        """Return the call that runs a command inside."""
        wrapped = (
            *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", *_build_proc_options(), "--tmpfs", "/tmp"),  # noqa: S108
            *self._build_mounts(),
            *(("--ro-bind", str(self._proxy.folder), PROXY_FOLDER) if self._proxy else ()),
            *_ALONE,
            *(() if self.policy.network else ("--unshare-net",)),
            *("--chdir", command.folder, "--", *build_limit_argv(self.policy)),
            *(self._proxy.build_bridge_argv(sys.executable) if self._proxy else ()),
            *command.argv,
        )
        given = {**command.environment, **(PROXY_ENVIRONMENT if self._proxy else {})}
        return SandboxedCall(wrapped, Path(command.folder), given)

    def folder(self, workspace: SandboxWorkspace) -> str:
        """Return the working folder: paths are the same inside and outside."""
        return str(workspace.folder)

    def move(self, workspace: SandboxWorkspace, folder: str) -> None:
        """Follow a command to another folder."""
        if Path(folder).is_dir():
            workspace.move_to(Path(folder))

    def exports(self, before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment after a command, without the address of the proxy."""
        return leave_out_proxy(before, after) if self._proxy else after

    def explain_failure(self, message: str) -> str:
        """Return a sentence for a program that couldn't be started."""
        return f"bubblewrap couldn't run it: {message.removeprefix('bwrap: ')}"

    def remarks(self, output: str, code: int | None) -> tuple[str, ...]:
        """Return the description if a program seems to have hit a limit."""
        missing = code != 0 and _HIDDEN_FILE.search(output)
        return (self.description,) if missing or has_hit_limit(self.policy, output, code) else ()

    def _build_mounts(self) -> list[str]:
        """Return the mounts, outer folders first: later, deeper mounts take precedence."""
        policy = self.policy
        mounts: dict[Path, str] = dict.fromkeys(policy.readable, "--ro-bind")
        mounts |= dict.fromkeys(policy.writable, "--bind")
        mounts |= dict.fromkeys((*policy.read_only, *list_delayed_effects(policy.writable)), "--ro-bind")
        mounts |= dict.fromkeys((*_DOORS, *policy.hidden), "")
        found = {path.resolve(): how for path, how in mounts.items() if path.exists()}
        options: list[str] = []
        for path, how in sorted(found.items(), key=lambda entry: len(entry[0].parts)):
            options += (how, str(path), str(path)) if how else _build_cover(path)
        return options


def _find_abilities() -> SandboxAbilities:
    # The kernel doesn't count processes of root, in whatever namespace they are.
    limits: tuple[SandboxLimit, ...] = ("memory", "cpu") if os.geteuid() == _ROOT else ("memory", "cpu", "processes")
    return SandboxAbilities(allowed_hosts=True, limits=frozenset(limits))


def find_sandbox_problem() -> str | None:
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
    probe = [program, "--ro-bind", "/", "/", "--dev", "/dev", *_build_proc_options(), *_ALONE, "--", "sh", "-c", look]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    if done.returncode == 9:
        return "kernel settings are writable from inside it."
    return None if done.returncode == 0 else f"bubblewrap doesn't work here: {done.stderr.strip()}"


def _build_proc_options() -> list[str]:
    """Return the options for a private ``/proc``; root is nobody inside, and kernel settings are read-only."""
    kernel = (word for path in _KERNEL if os.path.exists(path) for word in ("--ro-bind", path, path))  # noqa: PTH110
    as_nobody = ("--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY) if os.geteuid() == _ROOT else ()
    return [*as_nobody, "--proc", "/proc", *kernel]


def _build_cover(path: Path) -> tuple[str, ...]:
    if path.is_dir():
        return ("--tmpfs", str(path))
    return ("--ro-bind", "/dev/null", str(path))
