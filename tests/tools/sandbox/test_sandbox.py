"""The sandbox holds: checked from inside, with a real bubblewrap."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.tools.tool_calls import call_from

from talaria.core.errors import ToolFailed
from talaria.testing.wait import until
from talaria.tools.output import FullOutputs
from talaria.tools.sandbox.bubblewrap import Sandbox, sandbox_available
from talaria.tools.terminal.processes import Processes
from talaria.tools.terminal.tool import Terminal, TerminalArguments
from talaria.tools.workspace import LocalWorkspace

MISSING = sandbox_available()
needs_sandbox = pytest.mark.skipif(MISSING is not None, reason=f"No sandbox on this machine: {MISSING}")


class Place:
    """A machine in small: a working folder, a profile with secrets, something else."""

    def __init__(self, root: Path) -> None:
        self.work, self.profile, self.other = root / "work", root / "profile", root / "other"
        for folder in (self.work, self.profile, self.other):
            folder.mkdir()
        (self.profile / ".env").write_text("KEY=hush")
        (self.other / "kept").write_text("as it was")
        self.workspace = LocalWorkspace(self.work, {"PATH": "/usr/local/bin:/usr/bin:/bin"})
        self.sandbox = Sandbox(writable=(self.work,), hidden=(self.profile,))

    async def run(self, command: str) -> str:
        terminal = Terminal(Processes(), FullOutputs(self.other), sandbox=self.sandbox)
        call = msgspec.structs.replace(call_from(self.work), workspace=self.workspace)
        return (await terminal.run(TerminalArguments(command), call)).text


@pytest.fixture
def place() -> Iterator[Place]:
    """Not below /tmp, because a sandbox has one of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as root:
        yield Place(Path(root))


@pytest.mark.slow
@needs_sandbox
async def test_the_working_folder_can_be_written_and_nothing_else(place: Place) -> None:
    text = await place.run(f"echo mine >file; echo bad >{place.other}/kept; rm -rf {place.other} /usr/bin/env 2>&1")
    assert (place.work / "file").read_text() == "mine\n"
    assert (place.other / "kept").read_text() == "as it was"
    assert "exit code 1" in text


@pytest.mark.slow
@needs_sandbox
async def test_moving_out_of_the_folder_does_not_widen_it(place: Place) -> None:
    await place.run(f"cd {place.other}")
    assert place.workspace.folder == place.other
    await place.run("echo bad >kept; echo bad >new")
    assert [(path.name, path.read_text()) for path in place.other.iterdir()] == [("kept", "as it was")]


@pytest.mark.slow
@needs_sandbox
async def test_secrets_are_out_of_reach(place: Place) -> None:
    assert "hush" not in await place.run(f"cat {place.profile}/.env; find {place.profile} -type f | xargs cat")


@pytest.mark.slow
@needs_sandbox
async def test_a_profile_inside_the_folder_is_hidden_and_a_folder_inside_the_profile_is_not(place: Place) -> None:
    inner = place.profile / "desk"
    inner.mkdir()
    place.sandbox = Sandbox(writable=(place.profile.parent, inner), hidden=(place.profile,))
    text = await place.run(f"ls -A {place.profile}; echo here >{inner}/file")
    assert text == "desk\n[exit code 0]"
    assert (inner / "file").read_text() == "here\n"


@pytest.mark.slow
@needs_sandbox
async def test_the_temporary_folder_is_private_and_may_last(place: Place, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    assert (await place.run(f"cat {tmp_path}/there || ls -A /tmp")).endswith("No such file or directory\n[exit code 0]")
    (tmp_path / "tmp").mkdir()
    place.sandbox = msgspec.structs.replace(place.sandbox, temporary=tmp_path / "tmp")
    await place.run("echo kept >/tmp/file")
    assert (await place.run("cat /tmp/file")).startswith("kept\n")


@pytest.mark.slow
@needs_sandbox
async def test_the_network_is_a_setting(place: Place) -> None:
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        command = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached"
        assert (await place.run(command)).startswith("reached")
        place.sandbox = msgspec.structs.replace(place.sandbox, network=False)
        assert (await place.run(command)).startswith("(no output)")


@pytest.mark.slow
@needs_sandbox
async def test_folder_and_exports_last_here_too(place: Place) -> None:
    await place.run("mkdir sub; cd sub; export A=1")
    assert await place.run("pwd; echo $A") == f"{place.work / 'sub'}\n1\n[exit code 0]"


@pytest.mark.slow
@needs_sandbox
async def test_nothing_escapes_by_a_session_of_its_own(place: Place) -> None:
    await place.run("setsid -f sh -c 'echo begun >begun; while :; do sleep 0.01; touch alive; done' & "
                    "until [ -e alive ]; do sleep 0.01; done")  # fmt: skip
    assert processes_with("touch alive") == []


@pytest.mark.slow
@needs_sandbox
async def test_a_stopped_command_leaves_nothing(place: Place) -> None:
    running = asyncio.ensure_future(place.run("touch begun; exec sleep 98765"))
    await until((place.work / "begun").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_with("sleep\x0098765") == []


@pytest.mark.slow
@needs_sandbox
async def test_mounts_cannot_be_undone_from_inside(place: Place) -> None:
    text = await place.run(f"umount {place.profile} 2>&1; mount -o remount,rw / 2>&1; ls -A {place.profile}")
    assert ".env" not in text


@pytest.mark.slow
@needs_sandbox
async def test_settings_of_the_kernel_cannot_be_opened_for_writing(place: Place) -> None:
    text = await place.run(
        "for file in /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/sysrq-trigger; do"
        " (: >>$file) 2>/dev/null && echo $file; done; id -u"
    )
    assert text == f"{'65534' if os.geteuid() == 0 else os.geteuid()}\n[exit code 0]"


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize("name", [".git/hooks/pre-commit", ".git/config", ".talaria/commands/x.md", "AGENTS.md"])
async def test_what_takes_effect_outside_is_read_only(place: Place, name: str) -> None:
    path = place.work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("as it was")
    text = await place.run(f"echo changed >{name}; rm -rf {name}; echo new >{name}.new; echo x >src.py; cat {name}")
    assert "as it was" in text
    assert path.read_text() == "as it was"
    assert (place.work / "src.py").exists()


async def test_a_sandbox_that_is_not_there_runs_nothing(place: Place) -> None:
    place.sandbox = msgspec.structs.replace(place.sandbox, problem="bubblewrap (bwrap) is not installed.")
    with pytest.raises(ToolFailed, match="Commands must run in a sandbox here, and none is available: bubblewrap"):
        await place.run("touch ran")
    assert not (place.work / "ran").exists()


def processes_with(text: str) -> list[str]:
    return [folder.name for folder in Path("/proc").iterdir() if folder.name.isdigit() and text in command_of(folder)]


def command_of(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_text(errors="replace")
    except OSError:
        return ""
