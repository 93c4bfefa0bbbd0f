"""Isolation of the bubblewrap sandbox, checked from inside with a real bubblewrap."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.tools.sandbox.sandboxes import PATH, SandboxedFolder, new_folder, processes_with

from talaria.contracts.sandbox import SandboxPolicy
from talaria.core.errors import ToolFailed
from talaria.testing.wait import until
from talaria.tools.sandbox.bubblewrap import BubblewrapSandbox, find_sandbox_problem

MISSING = find_sandbox_problem()
needs_sandbox = pytest.mark.skipif(MISSING is not None, reason=f"No sandbox on this machine: {MISSING}")


class Machine(SandboxedFolder):
    """A sandboxed working folder, next to a profile with secrets and another folder."""

    def __init__(self, root: Path) -> None:
        work, self.profile, self.other = root / "work", root / "profile", root / "other"
        for folder in (work, self.profile, self.other):
            folder.mkdir()
        (self.profile / ".env").write_text("KEY=hush")
        (self.other / "kept").write_text("as it was")
        self.policy = SandboxPolicy(writable=(work,), hidden=(self.profile,))
        super().__init__(root, BubblewrapSandbox(self.policy), work, {"PATH": PATH})

    def restrict(self, **changes: object) -> None:
        """Change the policy."""
        self.sandbox = BubblewrapSandbox(msgspec.structs.replace(self.policy, **changes))


@pytest.fixture
async def sandboxed() -> AsyncIterator[Machine]:
    with new_folder() as root:
        machine = Machine(root)
        yield machine
        await machine.sandbox.close()


@pytest.mark.slow
@needs_sandbox
async def test_only_the_working_folder_is_writable(sandboxed: Machine) -> None:
    text = await sandboxed.run(
        f"echo mine >file; echo bad >{sandboxed.other}/kept; rm -rf {sandboxed.other} /usr/bin/env 2>&1"
    )
    assert (sandboxed.work / "file").read_text() == "mine\n"
    assert (sandboxed.other / "kept").read_text() == "as it was"
    assert "exit code 1" in text


@pytest.mark.slow
@needs_sandbox
async def test_changing_the_folder_makes_no_other_folder_writable(sandboxed: Machine) -> None:
    await sandboxed.run(f"cd {sandboxed.other}")
    assert sandboxed.workspace.folder == sandboxed.other
    await sandboxed.run("echo bad >kept; echo bad >new")
    assert [(path.name, path.read_text()) for path in sandboxed.other.iterdir()] == [("kept", "as it was")]


@pytest.mark.slow
@needs_sandbox
async def test_secrets_of_the_profile_cannot_be_read(sandboxed: Machine) -> None:
    assert "hush" not in await sandboxed.run(
        f"cat {sandboxed.profile}/.env; find {sandboxed.profile} -type f | xargs cat"
    )


@pytest.mark.slow
@needs_sandbox
async def test_hidden_profile_may_contain_a_writable_folder(sandboxed: Machine) -> None:
    inner = sandboxed.profile / "desk"
    inner.mkdir()
    sandboxed.restrict(writable=(sandboxed.profile.parent, inner))
    text = await sandboxed.run(f"ls -A {sandboxed.profile}; echo here >{inner}/file")
    assert text == "desk\n[exit code 0]"
    assert (inner / "file").read_text() == "here\n"


@pytest.mark.slow
@needs_sandbox
async def test_the_temporary_folder_is_private(sandboxed: Machine) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        assert (await sandboxed.run(f"cat {file.name} || ls -A /tmp")).endswith(
            "No such file or directory\n[exit code 0]"
        )


@pytest.mark.slow
@needs_sandbox
async def test_network_can_be_disabled(sandboxed: Machine) -> None:
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        command = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached"
        assert (await sandboxed.run(command)).startswith("reached")
        sandboxed.restrict(network=False)
        assert (await sandboxed.run(command)).startswith("(no output)")


@pytest.mark.slow
@needs_sandbox
async def test_folder_and_exports_persist_between_commands(sandboxed: Machine) -> None:
    await sandboxed.run("mkdir sub; cd sub; export A=1")
    assert await sandboxed.run("pwd; echo $A") == f"{sandboxed.work / 'sub'}\n1\n[exit code 0]"


@pytest.mark.slow
@needs_sandbox
async def test_process_with_its_own_session_is_ended_with_the_command(sandboxed: Machine) -> None:
    await sandboxed.run("setsid -f sh -c 'echo begun >begun; while :; do sleep 0.01; touch alive; done' & "
                    "until [ -e alive ]; do sleep 0.01; done")  # fmt: skip
    assert processes_with("touch alive") == []


@pytest.mark.slow
@needs_sandbox
async def test_cancelled_command_leaves_no_process(sandboxed: Machine) -> None:
    running = asyncio.ensure_future(sandboxed.run("touch begun; exec sleep 98765"))
    await until((sandboxed.work / "begun").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_with("sleep 98765") == []


@pytest.mark.slow
@needs_sandbox
async def test_mounts_cannot_be_undone_from_inside(sandboxed: Machine) -> None:
    text = await sandboxed.run(
        f"umount {sandboxed.profile} 2>&1; mount -o remount,rw / 2>&1; ls -A {sandboxed.profile}"
    )
    assert ".env" not in text


@pytest.mark.slow
@needs_sandbox
async def test_settings_of_the_kernel_cannot_be_opened_for_writing(sandboxed: Machine) -> None:
    text = await sandboxed.run(
        "for file in /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/sysrq-trigger; do"
        " (: >>$file) 2>/dev/null && echo $file; done; id -u"
    )
    assert text == f"{'65534' if os.geteuid() == 0 else os.geteuid()}\n[exit code 0]"


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize("name", [".git/hooks/pre-commit", ".git/config", ".talaria/commands/x.md", "AGENTS.md"])
async def test_files_that_take_effect_outside_are_read_only(sandboxed: Machine, name: str) -> None:
    path = sandboxed.work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("as it was")
    text = await sandboxed.run(f"echo changed >{name}; rm -rf {name}; echo new >{name}.new; echo x >src.py; cat {name}")
    assert "as it was" in text
    assert path.read_text() == "as it was"
    assert (sandboxed.work / "src.py").exists()


async def test_command_is_refused_without_bubblewrap(sandboxed: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        ToolFailed, match=r"bubblewrap \(bwrap\) is not installed\. Install it .*apt install bubblewrap"
    ):
        await sandboxed.run("touch ran")
    assert not (sandboxed.work / "ran").exists()


@pytest.mark.slow
@needs_sandbox
async def test_read_only_folder_inside_a_writable_one_is_read_only(sandboxed: Machine) -> None:
    (sandboxed.work / "vendor").mkdir()
    sandboxed.restrict(read_only=(sandboxed.work / "vendor",))
    assert "Read-only file system" in await sandboxed.run("touch mine; touch vendor/x")
    assert (sandboxed.work / "mine").exists()
    sandboxed.restrict(read_only=(sandboxed.work,))
    assert "Read-only file system" in await sandboxed.run("touch other")


@pytest.mark.slow
@needs_sandbox
async def test_only_allowed_hosts_are_reached_and_only_through_the_proxy(sandboxed: Machine) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + head.split(b"\r\n")[0])
        writer.close()

    code = "import urllib.request as r\nfor n in {}:\n try: print(r.urlopen(n).read())\n except OSError as e: print(e)"
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sandboxed.restrict(network=False, hosts=("127.0.0.1", "*.example.org"))
        addresses = [f"http://127.0.0.1:{port}/a?b", f"http://127.0.0.2:{port}/", f"http://localhost:{port}/"]
        text = await sandboxed.run(f'export MINE=1; python3 -c "{code.format(addresses)}"')
        lines = text.splitlines()
        assert lines[:3] == ["b'GET /a?b HTTP/1.1'", "HTTP Error 403: Forbidden", "HTTP Error 403: Forbidden"]
        direct = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached; echo $MINE"
        assert (await sandboxed.run(direct)).startswith("1\n")
        tunnel = f"exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n' >&3;"
        tunnel += "read -r line <&3; echo $line"
        assert (await sandboxed.run(tunnel)).startswith("HTTP/1.1 200 Connection established")
    assert not any(name.lower().endswith("_proxy") for name in sandboxed.workspace.environment)


@pytest.mark.slow
@needs_sandbox
async def test_memory_and_cpu_time_are_limited(sandboxed: Machine) -> None:
    sandboxed.restrict(memory_mb=100, cpu_seconds=1)
    assert "MemoryError" in await sandboxed.run("python3 -c 'bytearray(200_000_000)'")
    assert "exit code 137" in await sandboxed.run("python3 -c 'while 1: pass'; exit $?")


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel counts processes of everybody but root")
@needs_sandbox
async def test_a_limit_that_cannot_be_enforced_refuses_commands(sandboxed: Machine) -> None:
    sandboxed.restrict(processes=10)
    with pytest.raises(ToolFailed, match=r"A bubblewrap sandbox can't enforce sandbox\.processes here"):
        await sandboxed.run("touch ran")
    assert not (sandboxed.work / "ran").exists()
