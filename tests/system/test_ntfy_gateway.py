"""The gateway on ntfy: a whole process between a person at a topic and the model."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running

from talaria.testing.model_server import ModelServer, Say
from talaria.testing.ntfy_server import NtfyServer, ntfy_server
from talaria.testing.wait import until

TOKEN = "tk_of_the_tests"


@pytest.fixture
async def ntfy() -> AsyncIterator[NtfyServer]:
    async with ntfy_server(TOKEN, frozenset({"ann"})) as server:
        yield server


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, ntfy: NtfyServer) -> Program:
    settings = (
        f'[gateway]\nlease_seconds = 1.0\n[access]\nallowed = ["ntfy:ann"]\n'
        f'[platforms.ntfy.options]\nserver = "{ntfy.url}"\n'
    )
    return scripted_program(tmp_path, server, settings, f"NTFY_TOPIC=ann\nNTFY_TOKEN={TOKEN}\n")


def replies(ntfy: NtfyServer) -> list[str]:
    return [one["message"] for one in ntfy.messages if one.get("title") == "Talaria"]


async def test_message_is_answered_once_after_a_kill_during_its_turn(
    program: Program, server: ModelServer, ntfy: NtfyServer
) -> None:
    server.script(Say("slow " * 100, pause=0.1))
    async with running(program) as process:
        await until(lambda: ntfy.is_followed)
        await ntfy.publish("ann", "Is the door open?")
        await server.arrived(1)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    await ntfy.publish("ann", "And the window?")
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with running(program):
        await until(lambda: len(replies(ntfy)) == 2)
    assert replies(ntfy) == ["re: Is the door open?", "re: And the window?"]
