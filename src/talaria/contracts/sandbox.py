"""The sandbox contract: where the agent's programs run, and what they can reach there; and the shell of a person."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from talaria.contracts.tool import Workspace
from talaria.core.errors import ToolFailed

SandboxKind = Literal["bubblewrap", "podman", "docker", "ssh"]
SandboxLimit = Literal["memory", "processes", "cpu"]


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """Rules for what programs can reach, the same for every kind of sandbox.

    Only ``writable`` folders can be written, usually the one in which the session started: a later ``cd`` widens
    nothing. ``readable`` are needed inside, ``read_only`` can't be written even inside of a writable folder, and
    ``hidden`` can't be seen. Without ``network``, only ``hosts`` can be reached. Limits are off at 0.
    """

    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    network: bool = True
    hosts: tuple[str, ...] = ()
    memory_mb: int = 0
    processes: int = 0
    cpu_seconds: int = 0


class SandboxAbilities(Struct, frozen=True, kw_only=True):
    """Rules that a kind of sandbox can enforce; a policy that needs more is refused."""

    mounts: bool = True
    network_off: bool = True
    allowed_hosts: bool = False
    limits: frozenset[SandboxLimit] = frozenset()


class SandboxPrograms(Struct, frozen=True):
    """Programs of a sandbox that has its own: a shell, Python and ``env``, as calls."""

    shell: tuple[str, ...]
    python: tuple[str, ...]
    env: str = "env"


class SandboxCommand(Struct, frozen=True):
    """A program for a sandbox and its folder there; a ``lasting`` one may outlive the session."""

    argv: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    tty: bool = False
    lasting: bool = False


class SandboxedCall(Struct, frozen=True):
    """A program of this machine that runs a program inside of a sandbox.

    ``end`` is a call that ends everything the program started inside, even after a restart of ours; empty if that ends
    with the program.
    """

    argv: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    end: tuple[str, ...] = ()


class SandboxWorkspace(Protocol):
    """The part of a workspace that a sandbox reads and changes."""

    folder: Path
    sandbox_folder: str

    def move_to(self, folder: Path) -> None:
        """Change the working folder, also of commands in a sandbox."""

    def move_inside(self, folder: str) -> None:
        """Change the folder of commands in a sandbox with its own files."""


class Sandbox(Protocol):
    """A sandbox for the programs of one session.

    ``programs`` is ``None`` if it shows those of this machine. ``description`` says what programs can't do inside and
    which setting changes that, for a model and its user.
    """

    kind: SandboxKind
    abilities: SandboxAbilities
    programs: SandboxPrograms | None
    description: str

    async def start(self) -> None:
        """Make it ready, or raise `ToolFailed` with a sentence that says how to fix it. Cheap if it is ready."""

    def call(self, command: SandboxCommand) -> SandboxedCall:
        """Return the call that runs a command inside."""

    def folder(self, workspace: SandboxWorkspace) -> str:
        """Return the folder for the next command, as a path inside."""

    def move(self, workspace: SandboxWorkspace, folder: str) -> None:
        """Store the folder in which a command ended."""

    def exports(self, before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment of the workspace after a command that started with ``before`` and left ``after``."""

    def explain_failure(self, message: str) -> str:
        """Return a sentence for a program that couldn't be started, from the message of the sandbox's program."""

    def remarks(self, output: str, code: int | None) -> tuple[str, ...]:
        """Return the description if a program seems to have hit a limit, judging by its output and exit code."""

    async def close(self) -> None:
        """Release what it holds, when the session closes."""


def refuse_sandbox(problem: str) -> ToolFailed:
    """Return the error for a command that must run in a sandbox which isn't available."""
    return ToolFailed(f"The command didn't run, because its sandbox isn't available. {problem}")


def find_unsupported(policy: SandboxPolicy, abilities: SandboxAbilities, kind: SandboxKind) -> str:
    """Return a sentence about settings that this kind of sandbox can't enforce; empty if it can enforce all."""
    missing = [
        *(("sandbox.network = false",) if _needs_no_network(policy) and not abilities.network_off else ()),
        *(("sandbox.allowed_hosts",) if _needs_hosts(policy) and not abilities.allowed_hosts else ()),
        *(("sandbox.read_only",) if policy.read_only and not abilities.mounts else ()),
        *(("sandbox.memory_mb",) if policy.memory_mb and "memory" not in abilities.limits else ()),
        *(("sandbox.processes",) if policy.processes and "processes" not in abilities.limits else ()),
        *(("sandbox.cpu_seconds",) if policy.cpu_seconds and "cpu" not in abilities.limits else ()),
    ]
    if not missing:
        return ""
    names = " and ".join(missing)
    return f"A {kind} sandbox can't enforce {names} here. Remove that setting, or choose another sandbox.kind."


class ShellResult(Struct, frozen=True):
    """The result of a command: exit code, negative for a signal, ``None`` after a time-out; and its output."""

    code: int | None
    output: str


class UserShell(Protocol):
    """The shell of this machine."""

    async def run(self, line: str, arguments: Sequence[str], workspace: Workspace, *, seconds: float) -> ShellResult:
        """Run a command, with ``arguments`` as its positional parameters; long output is cut in the middle.

        Its child processes end with it, and cancelling ends it at once. Raises `Refused` if it can't start.
        """

    def stop(self, workspace: Workspace) -> bool:
        """Kill the running command; ``False`` if there is none."""


def _needs_no_network(policy: SandboxPolicy) -> bool:
    return not policy.network and not policy.hosts


def _needs_hosts(policy: SandboxPolicy) -> bool:
    return not policy.network and bool(policy.hosts)
