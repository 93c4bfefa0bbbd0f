"""The gateway on WhatsApp: killed during traffic, and one person with two ids."""

import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running

from talaria.testing.model_server import ModelServer, Say
from talaria.testing.system_servers import free_port
from talaria.testing.wait import until
from talaria.testing.whatsapp_server import NUMBER_ID, WhatsAppServer, whatsapp_server

TOKEN, SECRET = "EAA-token-of-the-tests", "0123456789abcdef0123456789abcdef"
PEOPLE = {f"1650555123{number}": (f"Person {number}", f"US.134912086553{number}") for number in range(3)}
ANN = "16505551230"
KILLS = 3


@pytest.fixture
async def whatsapp() -> AsyncIterator[WhatsAppServer]:
    async with whatsapp_server(TOKEN, SECRET, PEOPLE) as server:
        yield server


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, whatsapp: WhatsAppServer) -> Program:
    port = free_port()
    whatsapp.tunnel = f"http://127.0.0.1:{port}/whatsapp"
    allowed = ", ".join(f'"whatsapp:{person}"' for person in PEOPLE)
    settings = (
        f"[gateway]\nlease_seconds = 1.0\n[access]\nallowed = [{allowed}]\n[platforms.whatsapp.options]\n"
        f'api_url = "{whatsapp.url}"\nport = "{port}"\npublic_url = "https://talaria.example/whatsapp"\n'
        f'phone_number_id = "{NUMBER_ID}"\n'
    )
    secrets = {"WHATSAPP_TOKEN": TOKEN, "WHATSAPP_APP_SECRET": SECRET, "WHATSAPP_VERIFY_TOKEN": "verify me"}
    return scripted_program(tmp_path, server, settings, "".join(f"{key}={value}\n" for key, value in secrets.items()))


async def test_killed_gateway_answers_every_message_also_without_a_phone_number(
    program: Program, server: ModelServer, whatsapp: WhatsAppServer
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    asked: list[str] = []
    for number in range(KILLS):
        async with running(program) as process:
            for person in PEOPLE:
                asked.append(f"{person[-1]} during run {number}")
                whatsapp.write(person, asked[-1])
            await until(lambda: set(asked) <= {one.question for one in server.received})
            process.send_signal(signal.SIGKILL)
            await process.wait()
        whatsapp.hidden.add(ANN)  # from now on WhatsApp sends only her other id, which is not in the settings
        for person in PEOPLE:
            asked.append(f"{person[-1]} after run {number}")
            whatsapp.write(person, asked[-1])
    expected = {f"re: {question}" for question in asked}
    async with running(program):
        await until(lambda: expected <= {one["text"]["body"] for one in whatsapp.sent})
    counts = Counter(one["text"]["body"] for one in whatsapp.sent)
    assert set(counts) == expected
    # Sent but not recorded before a kill: at most one for each person and kill.
    assert sum(counts.values()) - len(counts) <= KILLS * len(PEOPLE)
    last = next(one for one in server.received if one.question == f"0 after run {KILLS - 1}")
    assert "0 during run 0" in str(last.body)  # the same session as under her phone number
