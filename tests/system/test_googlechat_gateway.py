"""The gateway on Google Chat: killed while messages arrive and replies are sent, everything is answered once."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running

from talaria.testing.googlechat_server import GoogleChatServer, googlechat_server
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.system_servers import free_port
from talaria.testing.wait import until

PROJECT = "123456789012"
PEOPLE = ("ann", "bob", "cleo")
KILLS, MESSAGES = 3, 4


@pytest.fixture
async def chat() -> AsyncIterator[GoogleChatServer]:
    async with googlechat_server(PROJECT, {f"AAAA{person}": "DIRECT_MESSAGE" for person in PEOPLE}) as server:
        yield server


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, chat: GoogleChatServer) -> Program:
    port = free_port()
    chat.tunnel = f"http://127.0.0.1:{port}/googlechat"
    chat.write_key_file(tmp_path / "key.json")
    allowed = ", ".join(f'"googlechat:{person}"' for person in PEOPLE)
    settings = (
        f"[gateway]\nlease_seconds = 1.0\n[access]\nallowed = [{allowed}]\n[platforms.googlechat.options]\n"
        f'api_url = "{chat.url}"\nkeys_url = "{chat.url}/keys"\nproject_number = "{PROJECT}"\nport = "{port}"\n'
        'public_url = "https://talaria.example/googlechat"\n'
    )
    return scripted_program(tmp_path, server, settings, f"GOOGLE_CHAT_CREDENTIALS={tmp_path / 'key.json'}\n")


async def test_every_message_is_answered_once_although_the_gateway_is_killed(
    program: Program, server: ModelServer, chat: GoogleChatServer
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    asked = [f"{person} {number}" for number in range(MESSAGES) for person in PEOPLE]
    for question in asked:
        person = question.split()[0]
        chat.say(f"AAAA{person}", person, question)
    for kill in range(KILLS):
        async with running(program) as process:
            await until(lambda: chat.sender.accepted + len(chat.sent) > kill * 3)  # noqa: B023 (used at once)
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with running(program):
        await until(lambda: all(any(one in text for text in _replies(chat)) for one in asked))
        chat.say("AAAAann", "ann", "the end")
        await until(lambda: any("the end" in text for text in _replies(chat)))
    answered = [line for text in _replies(chat) for line in text.removeprefix("re: ").splitlines()]
    assert sorted(filter(None, answered)) == sorted([*asked, "the end"])


def _replies(chat: GoogleChatServer) -> list[str]:
    return [one["text"] for one in chat.sent]
