"""Real sandboxes for tests: bubblewrap, containers of podman and docker, and an OpenSSH server on loopback."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Literal

import msgspec
from tests.leftover_processes import RUN_VARIABLE
from tests.tools.tool_calls import call_from

from talaria.contracts.sandbox import Sandbox, SandboxPolicy
from talaria.contracts.tool import Call, ToolOutput
from talaria.core.ids import SessionId
from talaria.settings.environment import process_environment
from talaria.testing.system_servers import free_port
from talaria.testing.wait import LIMIT
from talaria.tools.code.tool import ExecuteCode, ExecuteCodeArguments
from talaria.tools.output import FullOutputs
from talaria.tools.sandbox.bubblewrap import BubblewrapSandbox, find_sandbox_problem
from talaria.tools.sandbox.container import ContainerOptions, ContainerSandbox
from talaria.tools.sandbox.ssh import SshHost, SshSandbox
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.tool import Terminal, TerminalArguments
from talaria.tools.workspace import LocalWorkspace

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
IMAGE = "localhost/talaria-test:latest"


class SandboxedFolder:
    """A working folder with a sandbox around its commands."""

    def __init__(self, root: Path, sandbox: Sandbox, work: Path, environment: dict[str, str]) -> None:
        self.sandbox, self.work = sandbox, work
        self.workspace = LocalWorkspace(work, environment)
        self._outputs = FullOutputs(root / "outputs")
        self.processes = Processes()

    async def run(self, command: str, *, seconds: int = 60, workdir: str = "") -> str:
        terminal = Terminal(self.processes, self._outputs, sandbox=self.sandbox)
        arguments = TerminalArguments(command, timeout_seconds=seconds, workdir=workdir)
        return (await terminal.run(arguments, self.call())).text

    async def run_code(self, code: str) -> str:
        return (
            await ExecuteCode(lambda _: _echo, sandbox=self.sandbox).run(ExecuteCodeArguments(code), self.call())
        ).text

    def call(self) -> Call:
        return msgspec.structs.replace(call_from(self.work), workspace=self.workspace)


async def _echo(name: str, arguments: str) -> ToolOutput:
    return ToolOutput(f"{name} {arguments}")


async def no_background(session_id: SessionId) -> bool:
    del session_id
    return False


@contextmanager
def new_folder() -> Iterator[Path]:
    """Yield a folder that isn't in /tmp, because a sandbox has one of its own."""
    prefix = process_environment()[RUN_VARIABLE]
    with tempfile.TemporaryDirectory(prefix=f"{prefix}-", dir="/var/tmp", ignore_cleanup_errors=True) as root:
        yield Path(root)


def bubblewrap_problem() -> str:
    return find_sandbox_problem() or ""


def make_bubblewrap(root: Path, work: Path, policy: SandboxPolicy | None = None) -> SandboxedFolder:
    sandbox = BubblewrapSandbox(policy or SandboxPolicy(writable=(work,)))
    return SandboxedFolder(root, sandbox, work, {"PATH": PATH})


@cache
def podman_problem() -> str:
    """Return why no container can be started here."""
    if shutil.which("podman") is None or os.geteuid() != 0:
        return "podman isn't installed, or this isn't root"
    return ""


@cache
def docker_problem() -> str:
    """Return why no docker daemon can be started here."""
    if shutil.which("dockerd", path=PATH) is None or shutil.which("docker", path=PATH) is None or os.geteuid() != 0:
        return "docker isn't installed, or this isn't root"
    return ""


class Containers:
    """A podman or docker of our own, whose only image shows the programs of this machine."""

    def __init__(self, kind: Literal["podman", "docker"], root: Path, environment: dict[str, str]) -> None:
        self.kind = kind
        self.root, self.environment = root, {"PATH": PATH, "HOME": str(root), **environment}

    def run(self, *arguments: str) -> str:
        command = [self.kind, *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def names(self) -> list[str]:
        return self.run("ps", "--all", "--format", "{{.Names}}").split()

    def remove_all(self) -> None:
        if names := self.names():
            self.run("rm", "--force", *(("--time", "0") if self.kind == "podman" else ()), *names)

    def sandbox(self, locks: Path, policy: SandboxPolicy, session: str, image: str = IMAGE) -> ContainerSandbox:
        options = ContainerOptions(image=image, locks=locks, extra=("--volume=/usr:/usr:ro", "--pull=never"))
        return ContainerSandbox(self.kind, policy, options, SessionId(session), self.environment, no_background)

    def import_image(self) -> None:
        tree = self.root / "tree"
        for folder in ("usr", "tmp", "etc", "proc", "sys", "dev", "var/tmp", "run"):
            (tree / folder).mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            (tree / name).symlink_to(f"usr/{name}")
        (tree / "etc" / "passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
        subprocess.run(["tar", "-C", tree, "-cf", self.root / "tree.tar", "."], check=True)
        self.run("import", str(self.root / "tree.tar"), IMAGE)


@contextmanager
def running_podman() -> Iterator[Containers]:
    """Yield a podman with its own storage."""
    with new_folder() as root:
        (root / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{root}/graph"\nrunroot = "{root}/run"\n'
        )
        podman = Containers("podman", root, {"CONTAINERS_STORAGE_CONF": str(root / "storage.conf")})
        podman.import_image()
        try:
            yield podman
        finally:
            podman.remove_all()
            subprocess.run(["umount", root / "graph" / "vfs"], capture_output=True, check=False)


@contextmanager
def running_docker() -> Iterator[Containers]:
    """Yield a docker with its own daemon, which changes nothing outside of its folder: it has no network."""
    with new_folder() as root:
        options = (
            *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none"),
            *("--storage-driver=vfs", f"--data-root={root}/data", f"--exec-root={root}/exec", f"--pidfile={root}/pid"),
            *(f"--host=unix://{root}/socket", "--userland-proxy=false"),
        )
        docker = Containers("docker", root, {"DOCKER_HOST": f"unix://{root}/socket"})
        with (root / "log").open("wb") as log:
            daemon = subprocess.Popen(["dockerd", *options], env=docker.environment, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + LIMIT
            ask = partial(
                subprocess.run, ["docker", "version"], env=docker.environment, capture_output=True, check=False
            )
            while ask().returncode:
                assert daemon.poll() is None, (root / "log").read_text()[-2000:]
                assert time.monotonic() < deadline, "dockerd didn't start"
            docker.import_image()
            yield docker
            docker.remove_all()
        finally:
            daemon.terminate()
            daemon.wait()


def make_container(
    containers: Containers, root: Path, work: Path, policy: SandboxPolicy | None = None, session: str = "s1"
) -> SandboxedFolder:
    rules = policy or SandboxPolicy(writable=(work,), network=False)
    sandbox = containers.sandbox(root / "containers", rules, session)
    return SandboxedFolder(root, sandbox, work, containers.environment)


@cache
def sshd_problem() -> str:
    """Return why no ssh server can be started here."""
    return "" if shutil.which("sshd", path=PATH) and shutil.which("ssh-keygen") else "openssh-server isn't installed"


@contextmanager
def running_sshd() -> Iterator[tuple[SshHost, Path]]:
    """Yield a host whose server runs on loopback, with keys of its own, and the folder of these keys."""
    with new_folder() as root:
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", root / name], check=True)
        port = free_port()
        key = (root / "host.pub").read_text().split()[:2]
        (root / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(key)}\n")
        (root / "sshd_config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {root}/host\nAuthorizedKeysFile {root}/user.pub\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "PermitRootLogin yes\nPidFile none\nMaxStartups 100\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        program = shutil.which("sshd", path=PATH)
        assert program
        with (root / "log").open("wb") as log:
            server = subprocess.Popen([program, "-D", "-e", "-f", root / "sshd_config"], stderr=log)
        try:
            _wait_for_port(port)
            yield (
                SshHost(target="127.0.0.1", port=port, key=str(root / "user"), known_hosts=str(root / "known_hosts")),
                root,
            )
        finally:
            server.terminate()
            server.wait()


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + LIMIT
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "sshd didn't start"
        time.sleep(0.02)  # real time: another program starts


def make_ssh(root: Path, work: Path, host: SshHost, policy: SandboxPolicy | None = None) -> SandboxedFolder:
    environment = {"PATH": PATH, "HOME": str(root)}
    host = msgspec.structs.replace(host, folder=str(work))
    return SandboxedFolder(root, SshSandbox(policy or SandboxPolicy(), host, environment), work, environment)


def processes_with(text: str) -> list[str]:
    """Return the processes of this machine, also those in containers, whose command contains a text."""
    return [one.name for one in Path("/proc").iterdir() if one.name.isdigit() and text in _command_of(one)]


def _command_of(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""
