"""`talaria ps`: background processes are listed, read and killed from another process."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program, talk

from talaria.core.os_processes import is_running, kill_tree
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import LIMIT


class Started(msgspec.Struct):
    id: str
    pid: int
    state: str
    command: str
    last_line: str
    session: str
    code: int | None


@pytest.fixture
async def program(tmp_path: Path, server: ModelServer) -> AsyncIterator[Program]:
    """A program with a running background process, started by a question."""
    program = scripted_program(tmp_path, server)
    command = "echo ready; exec sleep 600"
    server.script(Say(calls=[Ask("terminal", {"command": command, "background": True})]), Say("It runs."))
    assert (await talk(program, "chat", "-q", "serve it")).out.strip() == "It runs."
    yield program
    for process in await list_processes(program):
        kill_tree(process.pid)


async def list_processes(program: Program, *arguments: str) -> list[Started]:
    done = await asyncio.to_thread(program.run, "ps", "--json", *arguments)
    assert done.code == 0, done.err
    return msgspec.json.decode(done.out, type=list[Started])


async def until_printed(program: Program) -> Started:
    async with asyncio.timeout(LIMIT):
        while True:
            (process,) = await list_processes(program)
            if process.last_line:
                return process


async def test_background_process_of_a_question_keeps_running_and_is_listed(
    program: Program, server: ModelServer
) -> None:
    process = await until_printed(program)
    assert (process.state, process.last_line) == ("running", "ready")
    assert is_running(process.pid)
    result = server.received[-1].json["messages"][-1]["content"]
    assert f"process {process.id}, pid {process.pid}" in result
    assert "can't be woken here" in result
    plain = await asyncio.to_thread(program.run, "ps")
    assert plain.out.split("\t")[0] == process.id
    log = await asyncio.to_thread(program.run, "ps", "log", process.id[:4])
    assert log.out == "ready\n"


async def test_killed_process_ends_at_once_and_is_marked_as_killed(program: Program) -> None:
    process = await until_printed(program)
    done = await asyncio.to_thread(program.run, "ps", "kill", process.id)
    assert "and everything it started" in done.err
    assert not is_running(process.pid)
    (left,) = await list_processes(program)
    assert left.state == "unreported"
    async with asyncio.timeout(60):
        while await list_processes(program):  # the next process finds out, if it runs for long enough
            assert (await talk(program, "chat", "-q", "and now?")).code == 0
    (over,) = await list_processes(program, "--all")
    assert over.state == "killed"
    again = await asyncio.to_thread(program.run, "ps", "kill", process.id)
    assert again.code == 1
    assert "has already ended" in again.err


async def test_killing_an_unknown_process_is_refused(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server)
    done = await asyncio.to_thread(program.run, "ps", "kill", "p0")
    assert done.code == 1
    assert "There is no background process `p0`." in done.err
    assert (await asyncio.to_thread(program.run, "ps")).out == ""
