"""Run programs on another host with the `ssh` program: files, folder and processes are there."""

import asyncio
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from talaria.contracts.sandbox import (
    SandboxAbilities,
    SandboxCommand,
    SandboxedCall,
    SandboxKind,
    SandboxPolicy,
    SandboxPrograms,
    SandboxWorkspace,
    find_unsupported,
    refuse_sandbox,
)
from talaria.tools.sandbox.client_program import run_client
from talaria.tools.sandbox.inside import Inside, build_end_argv, build_probe_argv, build_run_argv, make_mark, read_probe

_SECONDS = 30
_OPTIONS = ("BatchMode=yes", "StrictHostKeyChecking=yes", "LogLevel=ERROR", "ConnectTimeout=10",
            "ServerAliveInterval=15", "ServerAliveCountMax=4", "ForwardAgent=no", "ForwardX11=no")  # fmt: skip
_NOT_SHARED = ("ControlMaster=no", "ControlPath=none")
_CAUSES = (
    (
        r"(?i)host key verification failed|identification has changed|no .* host key is known",
        "Its host key isn't known or has changed. Connect once with `ssh {host}` in a terminal and compare the key.",
    ),
    (
        r"(?i)permission denied|too many authentication",
        "It refused the key. Check `sandbox.ssh_key`, and that the public key is in its authorized_keys.",
    ),
    (r"(?i)could not resolve", "Its name can't be resolved. Check `sandbox.ssh_host`."),
    (
        r"(?i)refused|timed out|no route|unreachable|didn't answer",
        "It can't be reached. Check that it is up, and `sandbox.ssh_port`.",
    ),
    (r"not installed", "Install the OpenSSH client."),
)


class SshHost(Struct, frozen=True, kw_only=True):
    """The host for commands; empty values are those of the person's ssh configuration."""

    target: str
    port: int = 0
    key: str = ""
    known_hosts: str = ""
    folder: str = ""


class SshSandbox:
    """Another host, over one connection for each session. Implements `Sandbox`.

    Host keys are always checked and passwords never asked for. Background processes have their own connections.
    """

    kind: SandboxKind = "ssh"
    abilities = SandboxAbilities(mounts=False, network_off=False, limits=frozenset(("memory", "cpu")))

    def __init__(self, policy: SandboxPolicy, host: SshHost, environment: Mapping[str, str]) -> None:
        self.policy = policy
        self.description = (
            f"commands run on {host.target or 'another host'} over ssh, with its files; the tools for files work on "
            "this machine; only the owner can change this, with the settings of sandbox"
        )
        self.programs: SandboxPrograms | None = SandboxPrograms(("sh",), ("python3",))
        self._host = host
        self._environment = environment
        self._inside: Inside | None = None
        self._sockets: Path | None = None

    @property
    def _home(self) -> str:
        home, folder = self._inside.home if self._inside else "~", self._host.folder
        return f"{home}/{folder[2:]}" if folder.startswith("~/") else folder or home

    async def start(self) -> None:
        """Connect, unless it is connected; raises `ToolFailed`."""
        if not self._host.target:
            raise refuse_sandbox("No host is set. Set `sandbox.ssh_host`, for example to user@host.")
        if problem := find_unsupported(self.policy, self.abilities, self.kind):
            raise refuse_sandbox(problem)
        if self._sockets is None:
            self._sockets = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="tssh-"))
        if self._inside is not None:
            return
        found = await run_client(self._build_argv(build_probe_argv(), ()), self._environment, _SECONDS)
        inside = read_probe(found.output)
        if found.code != 0 or inside is None:
            raise refuse_sandbox(self.explain_failure(found.error or "it has no usable shell."))
        self._inside = inside
        self.programs = inside.programs

    def call(self, command: SandboxCommand) -> SandboxedCall:
        """Return the call that runs a command there."""
        assert self._inside is not None
        mark, variables = make_mark(), self._inside.choose_variables(command.environment, self._environment)
        exports = [f"{name}={value}" for name, value in variables.items()]
        argv = ["env", *exports, *command.argv] if exports else command.argv
        inside = build_run_argv(argv, command.folder, self.policy, mark)
        return SandboxedCall(
            tuple(self._build_argv(inside, _NOT_SHARED if command.lasting else (), tty=command.tty)),
            Path("/"),
            self._environment,
            tuple(self._build_argv(build_end_argv(mark), _NOT_SHARED)),
        )

    def folder(self, workspace: SandboxWorkspace) -> str:
        """Return the folder on the host."""
        return workspace.sandbox_folder or self._home

    def move(self, workspace: SandboxWorkspace, folder: str) -> None:
        """Store the folder on the host; the tools for files stay where they are."""
        workspace.move_inside(folder)

    def exports(self, before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment of the workspace after a command."""
        return self._inside.exports(before, after, self._environment) if self._inside else before

    def explain_failure(self, message: str) -> str:
        """Return a sentence for a host that didn't run a command."""
        target, line = self._host.target, message.strip().rpartition("\n")[2]
        for pattern, fix in _CAUSES:
            if re.search(pattern, message):
                return f"ssh {target}: {line.rstrip('.')}. {fix.format(host=target)}"
        return f"ssh {target}: {line}"

    def remarks(self, output: str, code: int | None) -> tuple[str, ...]:
        """Return the description if a file or program wasn't found: those of this machine aren't there."""
        return (self.description,) if code and re.search(r"not found|No such file", output) else ()

    async def close(self) -> None:
        """Close the shared connection."""
        if self._sockets is None:
            return
        await run_client(self._build_argv((), (), before=("-O", "exit")), self._environment, _SECONDS)
        await asyncio.to_thread(shutil.rmtree, self._sockets, ignore_errors=True)
        self._sockets = self._inside = None

    def _build_argv(
        self, inside: Sequence[str], options: Sequence[str], *, tty: bool = False, before: Sequence[str] = ()
    ) -> list[str]:
        """Return the call of ssh; ``options`` are used instead of the shared connection."""
        host = self._host
        shared = (f"ControlPath={self._sockets}/%C", "ControlMaster=auto", "ControlPersist=60")
        known = (f"UserKnownHostsFile={host.known_hosts}", "GlobalKnownHostsFile=/dev/null") if host.known_hosts else ()
        settings = [word for one in (*_OPTIONS, *known, *(options or shared)) for word in ("-o", one)]
        return [
            *("ssh", *before, *settings, "-tt" if tty else "-T"),
            *(("-p", str(host.port)) if host.port else ()),
            *(("-i", host.key, "-o", "IdentitiesOnly=yes") if host.key else ()),
            *("--", host.target),
            *((shlex.join(inside),) if inside else ()),
        ]
