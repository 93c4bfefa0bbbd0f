"""The gateway on LINE: killed while messages arrive and replies are sent, everything is answered once."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running

from talaria.testing.line_server import LineServer, line_server
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.system_servers import free_port
from talaria.testing.wait import until

TOKEN, SECRET, ANN = "line-token-of-the-tests", "0123456789abcdef0123456789abcdef", "U0000000000000000000000000000000a"
KILLS, MESSAGES = 3, 12


@pytest.fixture
async def line() -> AsyncIterator[LineServer]:
    async with line_server(TOKEN, SECRET, {ANN: "Ann"}) as server:
        yield server


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, line: LineServer) -> Program:
    port = free_port()
    line.tunnel = f"http://127.0.0.1:{port}/line"
    settings = (
        f'[gateway]\nlease_seconds = 1.0\n[access]\nallowed = ["line:{ANN}"]\n[platforms.line.options]\n'
        f'api_url = "{line.url}"\ndata_url = "{line.url}"\nport = "{port}"\n'
        'public_url = "https://talaria.example/line"\n'
    )
    return scripted_program(tmp_path, server, settings, f"LINE_CHANNEL_TOKEN={TOKEN}\nLINE_CHANNEL_SECRET={SECRET}\n")


async def test_every_message_is_answered_once_although_the_gateway_is_killed(
    program: Program, server: ModelServer, line: LineServer
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    for number in range(MESSAGES):
        line.say(ANN, ANN, {"type": "text", "text": f"question {number}"})
    for kill in range(KILLS):
        async with running(program) as process:
            await until(lambda: line.sender.accepted + len(line.sent) > kill * 3)  # noqa: B023 (used at once)
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with running(program):
        await until(lambda: all(any(f"question {one}" in text for text in _replies(line)) for one in range(MESSAGES)))
        line.say(ANN, ANN, {"type": "text", "text": "the end"})
        await until(lambda: any("the end" in text for text in _replies(line)))
    asked = [line for text in _replies(line) for line in text.removeprefix("re: ").splitlines()]
    assert sorted(filter(None, asked)) == sorted([*(f"question {one}" for one in range(MESSAGES)), "the end"])


def _replies(line: LineServer) -> list[str]:
    return [one["text"] for one in line.sent]
