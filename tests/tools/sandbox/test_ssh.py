"""Commands on another host over ssh, with a real OpenSSH server on loopback."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.tools.process.process_fixture import Bench
from tests.tools.sandbox.sandboxes import PATH, Place, make_ssh, new_folder, processes_with

from talaria.contracts.sandbox import SandboxPolicy
from talaria.core.errors import ToolFailed
from talaria.testing.wait import until
from talaria.tools.sandbox.ssh import SshHost, SshSandbox
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.tool import Terminal
from talaria.tools.workspace import LocalWorkspace

pytestmark = pytest.mark.slow


@pytest.fixture
async def place(ssh_server: tuple[SshHost, Path]) -> AsyncIterator[Place]:
    with new_folder() as root:
        (root / "work").mkdir()
        place = make_ssh(root, root / "work", ssh_server[0])
        yield place
        await place.sandbox.close()


async def refusal(place: Place, host: SshHost, policy: SandboxPolicy | None = None) -> str:
    place.sandbox = SshSandbox(policy or SandboxPolicy(), host, {"PATH": PATH, "HOME": str(place.work)})
    with pytest.raises(ToolFailed) as refused:
        await place.run("touch ran")
    assert not (place.work / "ran").exists()
    return str(refused.value)


async def test_the_folder_there_is_apart_from_the_folder_here_and_is_stored(place: Place) -> None:
    await place.run("mkdir there; cd there")
    assert place.workspace.folder == place.work
    again = LocalWorkspace(place.work, place.workspace.environment)
    again.restore(place.workspace.snapshot())
    place.workspace = again
    assert await place.run("pwd") == f"{place.work}/there\n[exit code 0]"


async def test_commands_share_one_connection_and_limits_apply(place: Place, ssh_server: tuple[SshHost, Path]) -> None:
    policy = SandboxPolicy(cpu_seconds=7, memory_mb=512)
    place.sandbox = SshSandbox(policy, msgspec.structs.replace(ssh_server[0], folder=str(place.work)), {"PATH": PATH})
    first = await place.run("echo $SSH_CONNECTION; ulimit -t; ulimit -d")
    second = await place.run("echo $SSH_CONNECTION")
    assert first.splitlines()[0] == second.splitlines()[0]
    assert first.splitlines()[1:3] == ["7", str(512 * 1024)]


async def test_a_host_that_does_not_let_us_in_is_explained(place: Place, ssh_server: tuple[SshHost, Path]) -> None:
    host, keys = ssh_server
    (place.work / "empty").write_text("")
    unknown = msgspec.structs.replace(host, known_hosts=str(place.work / "empty"))
    assert "host key isn't known or has changed" in await refusal(place, unknown)
    swapped = place.work / "swapped"
    ours, other = ((keys / f"{name}.pub").read_text().split()[1] for name in ("host", "user"))
    swapped.write_text((keys / "known_hosts").read_text().replace(ours, other))
    assert "has changed" in await refusal(place, msgspec.structs.replace(host, known_hosts=str(swapped)))
    assert "refused the key. Check `sandbox.ssh_key`" in await refusal(
        place, msgspec.structs.replace(host, key=str(keys / "host"))
    )
    assert "can't be reached" in await refusal(place, msgspec.structs.replace(host, port=1))
    assert "No host is set" in await refusal(place, SshHost(target=""))
    offline = SandboxPolicy(network=False)
    assert "A ssh sandbox can't enforce sandbox.network = false" in await refusal(place, host, offline)


async def test_background_processes_have_their_own_connection_and_are_ended_whole(
    bench: Bench, place: Place, ssh_server: tuple[SshHost, Path]
) -> None:
    host = msgspec.structs.replace(ssh_server[0], folder=str(place.work))
    sandbox = SshSandbox(SandboxPolicy(), host, {"PATH": PATH})
    bench.terminal = Terminal(Processes(), bench.outputs, sandbox=sandbox, background=bench.supervisor)
    process = await bench.start("setsid sh -c ': escaped-ssh; sleep 9873' & read line; echo got $line >got; sleep 9873")
    await sandbox.close()
    await bench.use("write", process, text="it\n")
    await until((place.work / "got").exists)
    await until(lambda: bool(processes_with("escaped-ssh")))
    assert "was killed" in await bench.use("kill", process)
    await until(lambda: not processes_with("sleep 9873"))
