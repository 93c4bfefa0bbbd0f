"""Run programs in a container of podman or docker: one for each session, with its working folder mounted."""

import fcntl
import hashlib
import os
import re
import resource
import shlex
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
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
from talaria.core.ids import SessionId
from talaria.tools.sandbox.client_program import ClientResult, run_client
from talaria.tools.sandbox.inside import (
    PROXY_ENVIRONMENT,
    PROXY_FOLDER,
    Inside,
    build_end_argv,
    build_probe_argv,
    build_run_argv,
    describe_network,
    has_hit_limit,
    leave_out_proxy,
    list_delayed_effects,
    make_mark,
    read_probe,
)

if TYPE_CHECKING:  # loaded where hosts are listed
    from talaria.tools.sandbox.proxy import AllowListProxy

_START_SECONDS = 600  # the image may have to be pulled
_SECONDS = 60
_PROFILE, _SESSION, _OPTIONS = "talaria.profile", "talaria.session", "talaria.options"
_IDLE = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
# Variables that podman and docker themselves read: these are passed as values, not by name.
_OF_THE_CLIENT = ("PATH", "HOME", "TMPDIR", "XDG_", "DOCKER_", "CONTAINER", "STORAGE_", "SSH_", "DBUS_")


class ContainerOptions(Struct, frozen=True, kw_only=True):
    """Options of containers; ``locks`` is a folder of this profile that says which of them are in use."""

    image: str
    locks: Path
    extra: tuple[str, ...] = ()


class ContainerSandbox:
    """A container that starts with the first command of a session and is removed when the session closes.

    It stays while background processes of the session run in it (``has_background``), also after a restart. Containers
    that a killed process left are removed before the first one of this process starts. Implements `Sandbox`.
    """

    abilities = SandboxAbilities(allowed_hosts=True, limits=frozenset(("memory", "processes", "cpu")))

    def __init__(
        self,
        kind: Literal["podman", "docker"],
        policy: SandboxPolicy,
        options: ContainerOptions,
        session_id: SessionId,
        host: Mapping[str, str],
        has_background: Callable[[SessionId], Awaitable[bool]],
    ) -> None:
        self.kind: SandboxKind = kind
        self.policy = policy
        folders = " and ".join(map(str, policy.writable))
        self.description = (
            f"commands run in a {kind} container ({options.image}): of this machine they see only {folders}"
            f"{describe_network(policy)}; only the owner can change this, with the settings of sandbox"
        )
        self.programs: SandboxPrograms | None = SandboxPrograms(("sh",), ("python3",))
        self.name = f"talaria-{_make_profile_id(options.locks)}-{session_id}"
        self._session_id = session_id
        self._options = options
        self._host = host
        self._has_background = has_background
        self._inside: Inside | None = None
        self._lock: int | None = None
        self._proxy: AllowListProxy | None = None
        self._closing = AsyncExitStack()

    async def start(self) -> None:
        """Start the container, or use the one that is running; raises `ToolFailed`."""
        if problem := find_unsupported(self.policy, self.abilities, self.kind):
            raise refuse_sandbox(problem)
        if self._inside is not None and await self._is_running():
            return
        if self._lock is None:
            await self.remove_leftovers()
            self._lock = _lock(self._options.locks / f"{self.name}.lock", wait=True)
        if not self.policy.network and self.policy.hosts and self._proxy is None:
            from talaria.tools.sandbox.proxy import run_proxy  # noqa: PLC0415 (loaded where hosts are listed)

            self._proxy = await self._closing.enter_async_context(run_proxy(self.policy.hosts, self._proxy_folder))
        await self._make_sure_it_runs()
        found = await self._run("exec", self.name, *build_probe_argv())
        self._inside = read_probe(found.output)
        if self._inside is None:
            raise refuse_sandbox(f"The image {self._options.image} has no usable shell: {found.error}")
        self.programs = self._inside.programs
        if self._proxy is not None and not self._inside.has_python:
            raise refuse_sandbox(
                f"sandbox.allowed_hosts needs Python 3 in the container, and the image {self._options.image} has none. "
                "Set `sandbox.image` to one that has, or remove `sandbox.allowed_hosts`."
            )

    @property
    def _proxy_folder(self) -> Path:
        """Return a folder that stays the same after a restart, because the container has it mounted."""
        return self._options.locks / f"{self.name}.proxy"

    async def _is_running(self) -> bool:
        state = await self._run("inspect", "--type=container", "--format", "{{.State.Running}}", self.name)
        return state.output.strip() == b"true"

    async def _make_sure_it_runs(self) -> None:
        options = self._build_create_options()
        digest = hashlib.sha256(msgspec.json.encode(options)).hexdigest()[:16]
        label = f'{{{{index .Config.Labels "{_OPTIONS}"}}}}'
        state = await self._run("inspect", "--type=container", "--format", f"{{{{.State.Running}}}} {label}", self.name)
        if state.code == 0 and state.output.decode().split() == ["true", digest]:
            return
        if state.code == 0:
            await self._remove(self.name)
        made = await self._run(
            *("run", "--detach", "--name", self.name, "--label", f"{_OPTIONS}={digest}", *options),
            seconds=_START_SECONDS,
        )
        if made.code != 0:
            await self._remove(self.name)
            raise refuse_sandbox(self.explain_failure(made.error))

    def _build_create_options(self) -> list[str]:
        policy = self.policy
        return [
            *(
                "--label",
                f"{_PROFILE}={_make_profile_id(self._options.locks)}",
                "--label",
                f"{_SESSION}={self._session_id}",
            ),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", *self._build_user_options()),
            *(() if policy.network else ("--network", "none")),
            *(("--memory", f"{policy.memory_mb}m") if policy.memory_mb else ()),
            *(("--pids-limit", str(policy.processes)) if policy.processes else ()),
            *(("--ulimit", f"cpu={policy.cpu_seconds}") if policy.cpu_seconds else ()),
            *_build_limits(),
            *self._build_mounts(),
            *(("--volume", f"{self._proxy_folder}:{PROXY_FOLDER}:ro") if self._proxy else ()),
            *self._options.extra,
            *("--entrypoint", "sh", self._options.image, "-c", _IDLE),
        ]

    def _build_user_options(self) -> tuple[str, ...]:
        """Return the options with which files that are written inside belong to our account."""
        if os.geteuid() == 0:
            return ()
        ids = f"{os.geteuid()}:{os.getegid()}"
        return ("--userns", "keep-id", "--user", ids) if self.kind == "podman" else ("--user", ids)

    def _build_mounts(self) -> list[str]:
        """Return the mounts: the same paths inside and outside, outer folders first."""
        policy = self.policy
        mounts: dict[Path, str] = dict.fromkeys(policy.writable, "rw")
        mounts |= dict.fromkeys((*policy.read_only, *list_delayed_effects(policy.writable)), "ro")
        mounts |= {path: "" for path in policy.hidden if any(path.is_relative_to(one) for one in policy.writable)}
        found = {path.resolve(): how for path, how in mounts.items() if path.exists()}
        empty = "ro,size=4k,notmpcopyup" if self.kind == "podman" else "ro,size=4k"  # podman would copy what is there
        options: list[str] = []
        for path, how in sorted(found.items(), key=lambda entry: len(entry[0].parts)):
            options += ("--volume", f"{path}:{path}:{how}") if how else ("--tmpfs", f"{path}:{empty}")
        return options

    def call(self, command: SandboxCommand) -> SandboxedCall:
        """Return the call that runs a command inside."""
        assert self._inside is not None
        mark, variables = make_mark(), self._inside.choose_variables(command.environment, self._host)
        variables |= PROXY_ENVIRONMENT if self._proxy else {}
        ours = {name for name in variables if name.startswith(_OF_THE_CLIENT)}
        passed = [
            word for name in variables for word in ("--env", f"{name}={variables[name]}" if name in ours else name)
        ]
        bridge = self._proxy.build_bridge_argv(*self._inside.programs.python) if self._proxy else ()
        inside = (*bridge, *build_run_argv(command.argv, command.folder, SandboxPolicy(), mark))
        return SandboxedCall(
            (self.kind, "exec", "--interactive", *(("--tty",) if command.tty else ()), *passed, self.name, *inside),
            Path("/"),
            {**{name: value for name, value in variables.items() if name not in ours}, **self._host},
            self._build_end_call(mark),
        )

    def _build_end_call(self, mark: str) -> tuple[str, ...]:
        """Return the call that ends what has this mark; with so many processes that nothing else starts, everything."""
        ending = shlex.join((self.kind, "exec", self.name, *build_end_argv(mark)))
        return ("sh", "-c", f"{ending} || {shlex.join((self.kind, *self._build_remove_arguments(self.name)))}")

    def folder(self, workspace: SandboxWorkspace) -> str:
        """Return the working folder; a folder that only the container has is stored apart."""
        return workspace.sandbox_folder or str(workspace.folder)

    def move(self, workspace: SandboxWorkspace, folder: str) -> None:
        """Follow a command: with the file tools where the folder is mounted, else without."""
        if any(Path(folder).is_relative_to(path) for path in self.policy.writable) and Path(folder).is_dir():
            workspace.move_to(Path(folder))
        else:
            workspace.move_inside(folder)

    def exports(self, before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment of the workspace after a command."""
        if self._inside is None:
            return before
        exported = leave_out_proxy(before, after) if self._proxy and after else after
        return self._inside.exports(before, exported, self._host)

    def explain_failure(self, message: str) -> str:
        """Return a sentence for a command or a container that couldn't be started."""
        lines = [line for line in message.splitlines() if line.strip() and "--help" not in line]
        last = lines[-1].strip() if lines else "it gave no reason"
        fixes = {
            "not installed": f"Install {self.kind}, choose another `sandbox.kind`, or have the owner set "
            "`sandbox.enabled` to false.",
            "image not known": f"Load the image with `{self.kind} pull {self._options.image}`, or set `sandbox.image`.",
            "No such image": f"Load the image with `{self.kind} pull {self._options.image}`, or set `sandbox.image`.",
            "manifest": f"Set `sandbox.image` to an image that exists, or build it: {self._options.image}.",
            "pull": f"Check the network, or load the image {self._options.image} with `{self.kind} pull`.",
            "daemon": f"Start {self.kind}, or choose another `sandbox.kind`.",
        }
        fix = next(
            (fix for word, fix in fixes.items() if word in message), "Run `talaria doctor` to check the sandbox."
        )
        return f"{self.kind}: {last.rstrip('.')}. {fix}"

    def remarks(self, output: str, code: int | None) -> tuple[str, ...]:
        """Return the description if a program hit a limit, or missed something that only this machine has."""
        missing = code and re.search(r"not found|No such file", output)
        return (self.description,) if missing or has_hit_limit(self.policy, output, code) else ()

    async def close(self) -> None:
        """Remove the container, unless background processes run in it."""
        if self._lock is None:
            return
        if not await self._has_background(self._session_id):
            await self._remove(self.name)
            (self._options.locks / f"{self.name}.lock").unlink(missing_ok=True)
            shutil.rmtree(self._proxy_folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = self._inside = self._proxy = None
        await self._closing.aclose()

    async def remove_leftovers(self) -> list[str]:
        """Remove containers of this profile that no process uses, and return their names."""
        self._options.locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        profile = _make_profile_id(self._options.locks)
        label = f'index .Labels "{_SESSION}"' if self.kind == "podman" else f'.Label "{_SESSION}"'
        form = f"{{{{.Names}}}} {{{{{label}}}}}"
        listed = await self._run("ps", "--all", "--filter", f"label={_PROFILE}={profile}", "--format", form)
        if listed.code != 0:
            raise refuse_sandbox(self.explain_failure(listed.error))
        removed = []
        for line in listed.output.decode().splitlines():
            name, _, session = line.partition(" ")
            lock = _lock(self._options.locks / f"{name}.lock", wait=False)
            if lock is None:
                continue
            try:
                if not await self._has_background(SessionId(session)):
                    await self._remove(name)
                    shutil.rmtree(self._options.locks / f"{name}.proxy", ignore_errors=True)
                    removed.append(name)
            finally:
                os.close(lock)
        return removed

    async def _remove(self, name: str) -> None:
        await self._run(*self._build_remove_arguments(name))

    def _build_remove_arguments(self, name: str) -> tuple[str, ...]:
        return ("rm", "--force", *(("--time", "0") if self.kind == "podman" else ()), name)

    async def _run(self, *arguments: str, seconds: int = _SECONDS) -> ClientResult:
        return await run_client((self.kind, *arguments), self._host, seconds)


def _build_limits() -> Iterator[str]:
    """Yield options with at most our own limits: podman's defaults are refused where we are in a container."""
    for name, number, most in (("nofile", resource.RLIMIT_NOFILE, 65_536), ("nproc", resource.RLIMIT_NPROC, 32_768)):
        hard = resource.getrlimit(number)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(hard, most)
        yield from ("--ulimit", f"{name}={limit}:{limit}")


def _make_profile_id(locks: Path) -> str:
    return hashlib.sha256(str(locks).encode()).hexdigest()[:8]


def _lock(path: Path, *, wait: bool) -> int | None:
    """Return a descriptor that holds a lock until it is closed, or our process ends; ``None`` if another has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
