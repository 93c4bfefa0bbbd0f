"""Containers: what they hide and limit, and that none is left behind. With a real podman."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.process.process_fixture import Bench
from tests.tools.sandbox.sandboxes import (
    IMAGE,
    make_podman,
    new_folder,
    no_background,
    podman,
    podman_problem,
    podman_storage,
    processes_with,
)

from talaria.contracts.sandbox import SandboxPolicy
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.testing.wait import until
from talaria.tools.sandbox.container import ContainerOptions, ContainerSandbox
from talaria.tools.terminal.processes import Processes
from talaria.tools.terminal.tool import Terminal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(podman_problem() != "", reason=f"No container here: {podman_problem()}"),
]
KILLED = """
import asyncio, sys
from pathlib import Path
from tests.tools.sandbox.sandboxes import make_podman
root = Path(sys.argv[1])
place = make_podman(root, root / "work", dict(entry.split("=", 1) for entry in sys.argv[2:]), session="killed")
asyncio.run(place.run("touch begun; setsid sleep 9876; : left-behind"))
"""


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, str]]:
    with podman_storage() as environment:
        yield environment


@pytest.fixture
def root(storage: dict[str, str]) -> Iterator[Path]:
    with new_folder() as folder:
        (folder / "work").mkdir()
        yield folder
        podman(storage, "rm", "--all", "--force", "--time", "0")


def containers(storage: dict[str, str]) -> list[str]:
    return podman(storage, "ps", "--all", "--format", "{{.Names}}").split()


async def test_only_the_mounted_folders_are_there_and_limits_hold(root: Path, storage: dict[str, str]) -> None:
    work = root / "work"
    (work / ".git" / "hooks").mkdir(parents=True)
    (work / "profile").mkdir()
    (work / "profile" / ".env").write_text("KEY=hush")
    (root / "other").write_text("of another")
    (root / "shown").mkdir()
    policy = SandboxPolicy(
        writable=(work,), read_only=(root / "shown",), hidden=(work / "profile",), network=False, memory_mb=64,
        processes=40, cpu_seconds=5,
    )  # fmt: skip
    place = make_podman(root, work, storage, policy, "limited")
    text = await place.run(
        f"cat {root}/other; ls -A profile; touch mine; touch .git/hooks/x; touch {root}/shown/x; ulimit -t;"
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; ls /sys/class/net"
    )
    assert "of another" not in text
    assert ".env" not in text
    assert text.count("Read-only file system") == 2
    assert "\n5\n67108864\n" in text
    assert "eth0" not in text
    assert (work / "mine").exists()
    with pytest.raises(ToolFailed, match=r"fork: (.|\n)*stopped after 3 s"):
        await place.run("i=0; while [ $i -lt 60 ]; do sleep 9875 & i=$((i + 1)); done", seconds=3)
    assert not processes_with("sleep 9875")
    assert await place.run("echo fine") == "fine\n[exit code 0]"
    await place.sandbox.close()
    assert containers(storage) == []


async def test_one_container_serves_a_session_until_it_closes(root: Path, storage: dict[str, str]) -> None:
    place = make_podman(root, root / "work", storage, session="one")
    await place.run("echo kept >/tmp/file; cd /tmp")
    assert await place.run("cat file; pwd") == "kept\n/tmp\n[exit code 0]"
    assert place.workspace.folder == root / "work"
    assert await place.run_code("import os; print(os.getcwd())") == "/tmp"
    (name,) = containers(storage)
    podman(storage, "rm", "--force", "--time", "0", name)
    assert "No such file" in await place.run("cat /tmp/file", workdir="/")
    await place.sandbox.close()
    assert containers(storage) == []


async def test_containers_of_a_killed_process_are_removed_by_the_next_one(root: Path, storage: dict[str, str]) -> None:
    entries = [f"{name}={value}" for name, value in storage.items()]
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(root), *entries, cwd=Path(__file__).parents[3]
    )
    await until((root / "work" / "begun").exists)
    other = make_podman(root, root / "work", storage, session="other")
    await other.run("true")
    assert len(containers(storage)) == 2, "a container in use must stay"
    await other.sandbox.close()
    agent.kill()
    await agent.wait()
    assert len(containers(storage)) == 1
    await other.run("true")
    assert containers(storage) == [other.sandbox.name]  # type: ignore[attr-defined]
    await until(lambda: not processes_with("left-behind"))
    await other.sandbox.close()


async def test_background_processes_live_in_the_container_and_are_ended_whole(
    bench: Bench, root: Path, storage: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in storage.items():
        monkeypatch.setenv(name, value)  # of the program, whose supervisor ends processes in the container

    async def has_background(session_id: SessionId) -> bool:
        return any(one.is_alive for one in await bench.supervisor.of_session(session_id))

    options = ContainerOptions(image=IMAGE, locks=root / "containers", extra=("--volume=/usr:/usr:ro",))
    policy = SandboxPolicy(writable=(bench.folder,), network=False)
    sandbox = ContainerSandbox("podman", policy, options, SessionId(bench.session_id), storage, has_background)
    bench.terminal = Terminal(Processes(), bench.outputs, sandbox=sandbox, background=bench.supervisor)
    command = "setsid sh -c ': escaped; sleep 9874' & read line; echo got $line; sleep 9874"
    process = await bench.start(command)
    await bench.use("write", process, text="it\n")
    await until(lambda: bool(processes_with(": escaped;")))
    await sandbox.close()
    assert containers(storage) == [sandbox.name], "a background process needs its container"
    assert "was killed" in await bench.use("kill", process)
    await until(lambda: not processes_with("sleep 9874"))
    again = ContainerSandbox("podman", policy, options, SessionId("later"), storage, has_background)
    assert await again.remove_leftovers() == [sandbox.name]


async def test_a_container_that_cannot_start_refuses_and_says_how_to_fix_it(
    root: Path, storage: dict[str, str]
) -> None:
    place = make_podman(root, root / "work", storage, session="none")
    options = ContainerOptions(image="localhost/no-such-image", locks=root / "containers", extra=("--pull=never",))
    policy = SandboxPolicy(writable=(root / "work",))
    place.sandbox = ContainerSandbox("podman", policy, options, SessionId("none"), storage, no_background)
    with pytest.raises(ToolFailed, match=r"sandbox isn't available\. podman: .*no-such-image.*`sandbox\.image`"):
        await place.run("touch ran")
    place.sandbox = ContainerSandbox("docker", policy, options, SessionId("none"), {"PATH": "/no"}, no_background)
    with pytest.raises(ToolFailed, match=r"docker is not installed\. Install docker, choose another `sandbox\.kind`"):
        await place.run("touch ran")
    hosts = SandboxPolicy(writable=(root / "work",), network=False, hosts=("example.org",))
    place.sandbox = ContainerSandbox("podman", hosts, options, SessionId("none"), storage, no_background)
    with pytest.raises(ToolFailed, match=r"podman sandbox can't enforce sandbox\.allowed_hosts here"):
        await place.run("touch ran")
    assert not (root / "work" / "ran").exists()
