"""Container sandboxes with a real podman and docker: visible folders, limits and cleanup."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.process.process_fixture import SupervisedSession
from tests.tools.sandbox.sandboxes import (
    IMAGE,
    Containers,
    make_container,
    new_folder,
    no_background,
    processes_with,
)

from talaria.contracts.sandbox import SandboxPolicy
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.testing.wait import until
from talaria.tools.sandbox.container import ContainerOptions, ContainerSandbox
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.tool import Terminal

pytestmark = pytest.mark.slow
KILLED = """
import asyncio, sys
from pathlib import Path
from tests.tools.sandbox.sandboxes import Containers, make_container
root, entries = Path(sys.argv[1]), dict(entry.split("=", 1) for entry in sys.argv[3:])
sandboxed = make_container(Containers(sys.argv[2], root, entries), root, root / "work", session="killed")
asyncio.run(sandboxed.run("touch begun; setsid sleep 9876; : left-behind"))
"""
FETCH = "import urllib.request as r\nfor n in {}:\n try: print(r.urlopen(n).read())\n except OSError as e: print(e)"


@pytest.fixture(params=["podman", "docker"])
def containers(request: pytest.FixtureRequest) -> Containers:
    found: Containers = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def root(containers: Containers) -> Iterator[Path]:
    with new_folder() as folder:
        (folder / "work").mkdir()
        yield folder
        containers.remove_all()


async def test_only_mounted_folders_are_visible_and_limits_are_enforced(root: Path, containers: Containers) -> None:
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
    sandboxed = make_container(containers, root, work, policy, "limited")
    text = await sandboxed.run(
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
        await sandboxed.run("i=0; while [ $i -lt 60 ]; do sleep 9875 & i=$((i + 1)); done", seconds=3)
    assert not processes_with("sleep 9875")
    assert await sandboxed.run("echo fine") == "fine\n[exit code 0]"
    await sandboxed.sandbox.close()
    assert containers.names() == []


async def test_container_is_used_by_all_commands_of_a_session_until_it_closes(
    root: Path, containers: Containers
) -> None:
    sandboxed = make_container(containers, root, root / "work", session="one")
    await sandboxed.run("echo kept >/tmp/file; cd /tmp")
    assert await sandboxed.run("cat file; pwd") == "kept\n/tmp\n[exit code 0]"
    assert sandboxed.workspace.folder == root / "work"
    assert await sandboxed.run_code("import os; print(os.getcwd())") == "/tmp"
    assert len(containers.names()) == 1
    containers.remove_all()
    assert "No such file" in await sandboxed.run("cat /tmp/file", workdir="/")
    await sandboxed.sandbox.close()
    assert containers.names() == []


async def test_containers_of_a_killed_process_are_removed_by_the_next_one(root: Path, containers: Containers) -> None:
    entries = [f"{name}={value}" for name, value in containers.environment.items()]
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(root), containers.kind, *entries, cwd=Path(__file__).parents[3]
    )
    await until((root / "work" / "begun").exists)
    other = make_container(containers, root, root / "work", session="other")
    await other.run("true")
    assert len(containers.names()) == 2, "a container in use must stay"
    await other.sandbox.close()
    agent.kill()
    await agent.wait()
    assert len(containers.names()) == 1
    await other.run("true")
    assert containers.names() == [other.sandbox.name]  # type: ignore[attr-defined]
    await until(lambda: not processes_with("left-behind"))
    await other.sandbox.close()


async def test_background_processes_run_and_are_killed_in_the_container(
    supervised: SupervisedSession, root: Path, containers: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in containers.environment.items():
        monkeypatch.setenv(name, value)  # of the program, whose supervisor ends processes in the container

    async def has_background(session_id: SessionId) -> bool:
        return any(one.is_alive for one in await supervised.supervisor.of_session(session_id))

    options = ContainerOptions(image=IMAGE, locks=root / "containers", extra=("--volume=/usr:/usr:ro",))
    policy = SandboxPolicy(writable=(supervised.folder,), network=False)
    sandbox = ContainerSandbox(
        containers.kind, policy, options, SessionId(supervised.session_id), containers.environment, has_background
    )
    supervised.terminal = Terminal(Processes(), supervised.outputs, sandbox=sandbox, background=supervised.supervisor)
    command = "setsid sh -c ': escaped; sleep 9874' & read line; echo got $line; sleep 9874"
    process = await supervised.start(command)
    await supervised.use("write", process, text="it\n")
    await until(lambda: bool(processes_with(": escaped;")))
    await sandbox.close()
    assert containers.names() == [sandbox.name], "a background process needs its container"
    assert "was killed" in await supervised.use("kill", process)
    await until(lambda: not processes_with("sleep 9874"))
    again = ContainerSandbox(
        containers.kind, policy, options, SessionId("later"), containers.environment, has_background
    )
    assert await again.remove_leftovers() == [sandbox.name]


async def test_container_that_cannot_start_is_refused_with_a_fix(root: Path, containers: Containers) -> None:
    sandboxed = make_container(containers, root, root / "work", session="none")
    policy = SandboxPolicy(writable=(root / "work",))
    sandboxed.sandbox = containers.sandbox(root / "containers", policy, "none", "localhost/no-such-image")
    reason = rf"sandbox isn't available\. {containers.kind}: .*no-such-image.*`sandbox\.image`"
    with pytest.raises(ToolFailed, match=reason):
        await sandboxed.run("touch ran")
    nowhere = Containers(containers.kind, root, {"PATH": "/no"})
    sandboxed.sandbox = nowhere.sandbox(root / "containers", policy, "none")
    with pytest.raises(
        ToolFailed, match=rf"{containers.kind} is not installed\. Install {containers.kind}, choose ano"
    ):
        await sandboxed.run("touch ran")
    if containers.kind == "docker":
        stopped = Containers("docker", root, {"DOCKER_HOST": f"unix://{root}/none"})
        sandboxed.sandbox = stopped.sandbox(root / "containers", policy, "none")
        with pytest.raises(ToolFailed, match=r"docker: .*daemon.* Start docker, or choose another `sandbox\.kind`"):
            await sandboxed.run("touch ran")
    assert not (root / "work" / "ran").exists()


async def test_only_allowed_hosts_are_reached_and_only_through_the_proxy(root: Path, containers: Containers) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + head.split(b"\r\n")[0])
        writer.close()

    policy = SandboxPolicy(writable=(root / "work",), network=False, hosts=("127.0.0.1", "*.example.org"))
    sandboxed = make_container(containers, root, root / "work", policy, "hosts")
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        addresses = [f"http://127.0.0.1:{port}/a?b", f"http://localhost:{port}/"]
        for _ in range(2):  # the second command finds the bridge of the first one
            text = await sandboxed.run(f'export MINE=1; python3 -c "{FETCH.format(addresses)}"')
            assert text.splitlines()[:2] == ["b'GET /a?b HTTP/1.1'", "HTTP Error 403: Forbidden"]
        direct = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached; echo $MINE"
        assert (await sandboxed.run(direct)).startswith("1\n")
        # A new sandbox reuses the container that is still running: the proxy works again.
        again = make_container(containers, root, root / "work", policy, "hosts")
        assert (await again.run(f'python3 -c "{FETCH.format(addresses[:1])}"')).startswith("b'GET /a?b HTTP/1.1'")
        await again.sandbox.close()
    assert not any(name.lower().endswith("_proxy") for name in sandboxed.workspace.environment)
    await sandboxed.sandbox.close()
    assert [path.name for path in (root / "containers").iterdir()] == []


async def test_allowed_hosts_need_python_in_the_image(root: Path, containers: Containers) -> None:
    tools = root / "tools"
    tools.mkdir()
    for name in ("sh", "env", "sleep", "grep"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    policy = SandboxPolicy(writable=(root / "work",), read_only=(tools,), network=False, hosts=("example.org",))
    options = ContainerOptions(
        image=IMAGE, locks=root / "containers", extra=("--volume=/usr:/usr:ro", f"--env=PATH={tools}")
    )
    sandbox = ContainerSandbox(
        containers.kind, policy, options, SessionId("bare"), containers.environment, no_background
    )
    with pytest.raises(
        ToolFailed, match=r"sandbox\.allowed_hosts needs Python 3 in the container, and the image .* none"
    ):
        await sandbox.start()
    await sandbox.close()
