"""Whether commands of a turn run in the sandbox: by the setting, the surface and the available programs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.app.program_with_model import scripted_program, talk
from tests.app.serving_process import Process, process, send_message
from tests.system.test_gateway_process import running

from talaria.app.jobs import open_scheduler
from talaria.contracts.jobs import JobRequest, JobRequester
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.tools.sandbox.bubblewrap import find_sandbox_problem

MISSING = find_sandbox_problem()
needs_sandbox = pytest.mark.skipif(MISSING is not None, reason=f"No sandbox on this machine: {MISSING}")
UNASKED = {"TALARIA__APPROVAL__MODE": "off"}
NOTE = "with the setting sandbox.enabled]"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in /tmp: a sandbox has a separate /tmp."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that is invisible in a sandbox, which has a separate /tmp."""
    file = tmp_path / "outside"
    file.write_text("seen from inside")
    return file


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


async def result_of(here: Process, command: str, source: str) -> str:
    """Return the result of a command in a turn of ``source``, as the model reads it."""
    (here.request.surface.folder / "work").mkdir(exist_ok=True)
    chat = await here.open(source=source, folder=here.request.surface.folder / "work")
    here.server.script(Say(calls=[Ask("terminal", {"command": command})]), Say("done"))
    await send_message(chat, "go")
    return str(here.server.received[-1].json["messages"][-1]["content"])


@needs_sandbox
@pytest.mark.parametrize("source", ["telegram", "api", "cron", "boot"])
async def test_auto_runs_commands_in_the_sandbox_except_in_the_terminal(
    tmp_path: Path, outside: Path, source: str
) -> None:
    async with process(tmp_path, **UNASKED) as here:
        result = await result_of(here, f"cat {outside}", source)
    assert "seen from inside" not in result
    assert NOTE in result
    assert str(tmp_path / "work") in result


async def test_auto_uses_and_probes_no_sandbox_in_the_terminal(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\necho >>{tmp_path}/probed\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    async with process(tmp_path, **UNASKED) as here:
        result = await result_of(here, f"cat {outside}; cat /nowhere", "cli")
        assert not (tmp_path / "probed").exists()
        await result_of(here, "true", "telegram")
        await result_of(here, "true", "api")
        assert (tmp_path / "probed").read_text() == "\n"  # one probe for both
    assert "seen from inside" in result
    assert NOTE not in result


@pytest.mark.usefixtures("no_bubblewrap")
async def test_auto_without_bubblewrap_refuses_commands_in_chats(tmp_path: Path, outside: Path) -> None:
    async with process(tmp_path, **UNASKED) as here:
        refused = await result_of(here, f"cat {outside}; touch {tmp_path}/made", "telegram")
        assert "didn't run, because its sandbox isn't available. bubblewrap (bwrap) is not installed." in refused
        assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("no_bubblewrap")
@pytest.mark.parametrize("source", ["cli", "telegram"])
async def test_enabled_sandbox_without_bubblewrap_refuses_all_commands(
    tmp_path: Path, outside: Path, source: str
) -> None:
    async with process(tmp_path, **UNASKED, TALARIA__SANDBOX__ENABLED="true") as here:
        result = await result_of(here, f"touch {tmp_path}/made", source)
    assert "bubblewrap (bwrap) is not installed" in result
    assert "sandbox.enabled" in result
    assert not (tmp_path / "made").exists()


@needs_sandbox
async def test_sandbox_setting_true_applies_in_the_terminal_and_false_in_chats(tmp_path: Path, outside: Path) -> None:
    async with process(tmp_path, **UNASKED, TALARIA__SANDBOX__ENABLED="true") as here:
        assert "seen from inside" not in await result_of(here, f"cat {outside}", "cli")
    async with process(tmp_path, **UNASKED, TALARIA__SANDBOX__ENABLED="false") as here:
        assert "seen from inside" in await result_of(here, f"cat {outside}", "telegram")


@needs_sandbox
async def test_session_moved_to_a_chat_still_writes_to_its_original_folder(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with process(tmp_path, **UNASKED) as here:
        chat = await here.open(folder=project)
        here.server.script(Say(calls=[Ask("terminal", {"command": "cd / && pwd"})]), Say("done"))
        await send_message(chat, "go")
        await chat.conversation.close()
        (tmp_path / "served").mkdir()
        moved = await here.open(source="telegram", folder=tmp_path / "served", resume=chat.conversation.session_id)
        command = f"pwd; echo here >{project}/file; echo no >{tmp_path}/other"
        here.server.script(Say(calls=[Ask("terminal", {"command": command})]), Say("done"))
        await send_message(moved, "again")
    assert (project / "file").read_text() == "here\n"
    assert not (tmp_path / "other").exists()


@needs_sandbox
async def test_scripts_of_jobs_run_in_the_sandbox(tmp_path: Path, outside: Path) -> None:
    async with process(tmp_path) as here:
        schedules, scheduler = here.application.schedules, open_scheduler(here.application, here.jobs)
        await schedules.add(
            JobRequest(when="every 1h", script=f"echo begun | tee mine; cat {outside}", name="Look"), JobRequester()
        )
        await schedules.run("Look", JobRequester())
        assert await scheduler.run_pending_turns() == 1
        (run,) = await schedules.history("Look", JobRequester())
    assert (tmp_path / "workspaces" / "default" / "mine").read_text() == "begun\n"
    assert "begun" in run.output
    assert "seen from inside" not in run.output
    assert NOTE in run.output


@needs_sandbox
async def test_command_is_sandboxed_in_a_chat_and_not_in_a_one_shot(
    tmp_path: Path, outside: Path, server: ModelServer
) -> None:
    calls = (Say(calls=[Ask("terminal", {"command": f"cat {outside}"})]), Say("Looked."))
    async with LoopbackNetwork() as network:
        program = scripted_program(
            tmp_path,
            server,
            f'[access]\nowners = ["loopback:ann"]\n[platforms.loopback.options]\naddress = "{network.address}"\n',
        )
        server.script(*calls)
        async with running(program):
            network.say("ann", "look", sender="ann")
            await network.until(lambda: "Looked." in network.shown("ann"))
        in_chat = next(one for one in server.received if one.json["messages"][-1]["role"] == "tool")
    assert NOTE in in_chat.json["messages"][-1]["content"]
    server.script(*calls)
    await talk(program, "chat", "-q", "look")
    assert server.received[-1].json["messages"][-1]["content"].startswith("seen from inside")


@pytest.mark.usefixtures("no_bubblewrap")
async def test_sandbox_of_a_surface_is_required_even_if_unavailable(tmp_path: Path) -> None:
    own = {"TALARIA__SURFACES__CLI__SANDBOX": "docker", "TALARIA__SURFACES__TELEGRAM__SANDBOX": "off"}
    async with process(tmp_path, **UNASKED, **own, DOCKER_HOST=f"unix://{tmp_path}/none") as here:
        refused = await result_of(here, f"touch {tmp_path}/made", "cli")
        assert "sandbox isn't available. docker" in refused
        assert "choose another `sandbox.kind`" in refused
        assert not (tmp_path / "made").exists()
        assert "Commands and code run in a container" in str(here.server.received[-1].json["messages"][0])
        assert "exit code 0" in await result_of(here, f"touch {tmp_path}/made", "telegram")


async def test_limit_that_the_kind_of_sandbox_cannot_enforce_refuses_commands(tmp_path: Path) -> None:
    limits = {"TALARIA__SANDBOX__KIND": "ssh", "TALARIA__SANDBOX__SSH_HOST": "host.test"}
    async with process(tmp_path, **UNASKED, **limits, TALARIA__SANDBOX__NETWORK="false") as here:
        refused = await result_of(here, f"touch {tmp_path}/made", "telegram")
    assert "A ssh sandbox can't enforce sandbox.network = false here." in refused


@needs_sandbox
async def test_allowed_hosts_alone_restrict_the_network(tmp_path: Path, server: ModelServer) -> None:
    port = server.url.rpartition(":")[2]
    connect = f"import socket; socket.create_connection(('127.0.0.1', {port})); print('reached')"
    command = f'{sys.executable} -c "{connect}"; echo $http_proxy'
    async with process(tmp_path, **UNASKED, TALARIA__SANDBOX__ALLOWED_HOSTS="example.org") as here:
        result = await result_of(here, command, "telegram")
    assert "reached" not in result.replace(connect, "")
    assert "http://127.0.0.1:3128" in result
