"""`talaria ps`: what runs in the background is listed, read and ended from outside."""

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
    """A program in whose background something runs that a question has started."""
    program = scripted_program(tmp_path, server)
    command = "echo ready; exec sleep 600"
    server.script(Say(calls=[Ask("terminal", {"command": command, "background": True})]), Say("It runs."))
    assert (await talk(program, "chat", "-q", "serve it")).out.strip() == "It runs."
    yield program
    for process in await listed(program):
        kill_tree(process.pid)


async def listed(program: Program, *words: str) -> list[Started]:
    done = await asyncio.to_thread(program.run, "ps", "--json", *words)
    assert done.code == 0, done.err
    return msgspec.json.decode(done.out, type=list[Started])


async def until_printed(program: Program) -> Started:
    async with asyncio.timeout(LIMIT):
        while True:
            (process,) = await listed(program)
            if process.last_line:
                return process


async def test_what_a_question_has_started_continues_and_is_listed(program: Program, server: ModelServer) -> None:
    process = await until_printed(program)
    assert (process.state, process.last_line) == ("running", "ready")
    assert is_running(process.pid)
    told = server.received[-1].json["messages"][-1]["content"]
    assert f"process {process.id}, pid {process.pid}" in told
    assert "can't be woken here" in told
    plain = await asyncio.to_thread(program.run, "ps")
    assert plain.out.split("\t")[0] == process.id
    log = await asyncio.to_thread(program.run, "ps", "log", process.id[:4])
    assert log.out == "ready\n"


async def test_what_is_ended_from_outside_is_gone_at_once_and_said_to_be_so(program: Program) -> None:
    process = await until_printed(program)
    done = await asyncio.to_thread(program.run, "ps", "kill", process.id)
    assert "and everything it started" in done.err
    assert not is_running(process.pid)
    (left,) = await listed(program)
    assert left.state == "unreported"
    async with asyncio.timeout(60):
        while await listed(program):  # whoever runs next finds out, if it runs for long enough
            assert (await talk(program, "chat", "-q", "and now?")).code == 0
    (over,) = await listed(program, "--all")
    assert over.state == "killed"
    again = await asyncio.to_thread(program.run, "ps", "kill", process.id)
    assert again.code == 1
    assert "has already ended" in again.err


async def test_what_is_not_there_cannot_be_ended(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server)
    done = await asyncio.to_thread(program.run, "ps", "kill", "p0")
    assert done.code == 1
    assert "There is no background process `p0`." in done.err
    assert (await asyncio.to_thread(program.run, "ps")).out == ""
