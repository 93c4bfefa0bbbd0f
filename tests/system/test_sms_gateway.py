"""The gateway on SMS: killed during traffic and away for a while, it answers every message."""

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
from talaria.testing.twilio_server import ACCOUNT, NUMBER, TwilioServer, twilio_server
from talaria.testing.wait import until

TOKEN = "0123456789abcdef0123456789abcdef"
PEOPLE = ("+14155550101", "+14155550102", "+14155550103")
KILLS = 3


@pytest.fixture
async def twilio() -> AsyncIterator[TwilioServer]:
    async with twilio_server(TOKEN, frozenset(PEOPLE)) as server:
        yield server


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, twilio: TwilioServer) -> Program:
    port = free_port()
    twilio.tunnel = f"http://127.0.0.1:{port}/sms"
    allowed = ", ".join(f'"sms:{person}"' for person in PEOPLE)
    settings = (
        f"[gateway]\nlease_seconds = 1.0\n[access]\nallowed = [{allowed}]\n[platforms.sms.options]\n"
        f'api_url = "{twilio.url}"\nport = "{port}"\npublic_url = "https://talaria.example/sms"\ninterval = "1"\n'
    )
    secrets = {"TWILIO_ACCOUNT_SID": ACCOUNT, "TWILIO_AUTH_TOKEN": TOKEN, "TWILIO_PHONE_NUMBER": NUMBER}
    return scripted_program(tmp_path, server, settings, "".join(f"{key}={value}\n" for key, value in secrets.items()))


async def test_every_message_is_answered_although_webhook_calls_are_lost(
    program: Program, server: ModelServer, twilio: TwilioServer
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    asked: list[str] = []
    for number in range(KILLS):
        async with running(program) as process:
            await until(lambda: twilio.sms_url)
            for person in PEOPLE:
                asked.append(f"{person[-1]} during run {number}")
                twilio.say(person, asked[-1])
            await until(lambda: set(asked) <= {one.question for one in server.received})
            process.send_signal(signal.SIGKILL)
            await process.wait()
        for person in PEOPLE:  # while no gateway runs; Twilio does not repeat the call
            asked.append(f"{person[-1]} after run {number}")
            twilio.say(person, asked[-1])
    expected = {f"re: {question}" for question in asked}
    async with running(program):
        await until(lambda: expected <= {one["body"] for one in twilio.sent})
    counts = Counter(one["body"] for one in twilio.sent)
    assert set(counts) == expected
    # Sent but not recorded before a kill: at most one for each person and kill.
    assert sum(counts.values()) - len(counts) <= KILLS * len(PEOPLE)
