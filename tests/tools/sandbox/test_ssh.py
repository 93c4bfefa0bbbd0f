"""Commands on another host over ssh, with a real OpenSSH server on loopback."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.tools.process.process_fixture import SupervisedSession
from tests.tools.sandbox.sandboxes import PATH, SandboxedFolder, make_ssh, new_folder, processes_with

from talaria.contracts.sandbox import SandboxPolicy
from talaria.core.errors import ToolFailed
from talaria.testing.wait import until
from talaria.tools.sandbox.ssh import SshHost, SshSandbox
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.tool import Terminal
from talaria.tools.workspace import LocalWorkspace

pytestmark = pytest.mark.slow


@pytest.fixture
async def sandboxed(ssh_server: tuple[SshHost, Path]) -> AsyncIterator[SandboxedFolder]:
    with new_folder() as root:
        (root / "work").mkdir()
        sandboxed = make_ssh(root, root / "work", ssh_server[0])
        yield sandboxed
        await sandboxed.sandbox.close()


async def refusal(sandboxed: SandboxedFolder, host: SshHost, policy: SandboxPolicy | None = None) -> str:
    sandboxed.sandbox = SshSandbox(policy or SandboxPolicy(), host, {"PATH": PATH, "HOME": str(sandboxed.work)})
    with pytest.raises(ToolFailed) as refused:
        await sandboxed.run("touch ran")
    assert not (sandboxed.work / "ran").exists()
    await sandboxed.sandbox.close()
    return str(refused.value)


async def test_remote_folder_is_stored_apart_from_the_local_folder(sandboxed: SandboxedFolder) -> None:
    await sandboxed.run("mkdir there; cd there")
    assert sandboxed.workspace.folder == sandboxed.work
    again = LocalWorkspace(sandboxed.work, sandboxed.workspace.environment)
    again.restore(sandboxed.workspace.snapshot())
    sandboxed.workspace = again
    assert await sandboxed.run("pwd") == f"{sandboxed.work}/there\n[exit code 0]"


async def test_commands_share_one_connection_and_limits_apply(
    sandboxed: SandboxedFolder, ssh_server: tuple[SshHost, Path]
) -> None:
    policy = SandboxPolicy(cpu_seconds=7, memory_mb=512)
    sandboxed.sandbox = SshSandbox(
        policy, msgspec.structs.replace(ssh_server[0], folder=str(sandboxed.work)), {"PATH": PATH}
    )
    first = await sandboxed.run("echo $SSH_CONNECTION; ulimit -t; ulimit -d")
    second = await sandboxed.run("echo $SSH_CONNECTION")
    assert first.splitlines()[0] == second.splitlines()[0]
    assert first.splitlines()[1:3] == ["7", str(512 * 1024)]


async def test_failed_connection_is_reported_with_its_cause(
    sandboxed: SandboxedFolder, ssh_server: tuple[SshHost, Path]
) -> None:
    host, keys = ssh_server
    (sandboxed.work / "empty").write_text("")
    unknown = msgspec.structs.replace(host, known_hosts=str(sandboxed.work / "empty"))
    assert "host key isn't known or has changed" in await refusal(sandboxed, unknown)
    swapped = sandboxed.work / "swapped"
    ours, other = ((keys / f"{name}.pub").read_text().split()[1] for name in ("host", "user"))
    swapped.write_text((keys / "known_hosts").read_text().replace(ours, other))
    assert "has changed" in await refusal(sandboxed, msgspec.structs.replace(host, known_hosts=str(swapped)))
    assert "refused the key. Check `sandbox.ssh_key`" in await refusal(
        sandboxed, msgspec.structs.replace(host, key=str(keys / "host"))
    )
    assert "can't be reached" in await refusal(sandboxed, msgspec.structs.replace(host, port=1))
    assert "No host is set" in await refusal(sandboxed, SshHost(target=""))
    offline = SandboxPolicy(network=False)
    assert "A ssh sandbox can't enforce sandbox.network = false" in await refusal(sandboxed, host, offline)


async def test_background_processes_have_their_own_connection_and_are_killed(
    supervised: SupervisedSession, sandboxed: SandboxedFolder, ssh_server: tuple[SshHost, Path]
) -> None:
    host = msgspec.structs.replace(ssh_server[0], folder=str(sandboxed.work))
    sandbox = SshSandbox(SandboxPolicy(), host, {"PATH": PATH})
    supervised.terminal = Terminal(Processes(), supervised.outputs, sandbox=sandbox, background=supervised.supervisor)
    process = await supervised.start(
        "setsid sh -c ': escaped-ssh; sleep 9873' & read line; echo got $line >got; sleep 9873"
    )
    await sandbox.close()
    await supervised.use("write", process, text="it\n")
    await until((sandboxed.work / "got").exists)
    await until(lambda: bool(processes_with("escaped-ssh")))
    assert "was killed" in await supervised.use("kill", process)
    await until(lambda: not processes_with("sleep 9873"))
