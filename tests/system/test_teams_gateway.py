"""The gateway on Microsoft Teams: killed while activities arrive and replies are posted, everything is answered."""

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
from talaria.testing.teams_server import TeamsServer, teams_server
from talaria.testing.wait import until

APP_ID, SECRET, TENANT = "00000000-1111-2222-3333-444444444444", "teams-secret-of-the-tests", "contoso.example"
PEOPLE = ("ann", "bob", "cleo")
CHATS = {f"a:1chat-of-{person}": "personal" for person in PEOPLE}
KILLS = 3


@pytest.fixture
async def teams() -> AsyncIterator[TeamsServer]:
    async with teams_server(APP_ID, SECRET, TENANT, CHATS) as server:
        yield server


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, teams: TeamsServer) -> Program:
    port = free_port()
    teams.tunnel = f"http://127.0.0.1:{port}/teams"
    allowed = ", ".join(f'"teams:{person}"' for person in PEOPLE)
    settings = (
        f"[gateway]\nlease_seconds = 1.0\n[access]\nallowed = [{allowed}]\n[platforms.teams.options]\n"
        f'authority = "{teams.url}"\ntenant = "{TENANT}"\nport = "{port}"\n'
        f'openid_url = "{teams.url}/v1/.well-known/openidconfiguration"\n'
        'public_url = "https://talaria.example/teams"\n'
    )
    return scripted_program(tmp_path, server, settings, f"TEAMS_APP_ID={APP_ID}\nTEAMS_APP_SECRET={SECRET}\n")


async def test_every_message_is_answered_although_the_gateway_is_killed(
    program: Program, server: ModelServer, teams: TeamsServer
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    asked: list[str] = []
    for number in range(KILLS):
        for person in PEOPLE:
            asked.append(f"{person} {number}")
            teams.say(f"a:1chat-of-{person}", person, asked[-1])
        async with running(program) as process:
            await until(lambda: teams.sender.accepted + len(teams.sent) > number * len(PEOPLE))  # noqa: B023 (at once)
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with running(program):
        await until(lambda: all(any(one in text for text in _replies(teams)) for one in asked))
    answered = Counter(line for text in _replies(teams) for line in text.removeprefix("re: ").splitlines() if line)
    assert set(answered) == set(asked)
    assert sum(answered.values()) - len(answered) <= KILLS * len(PEOPLE)  # killed between a reply and its record


def _replies(teams: TeamsServer) -> list[str]:
    return [one.activity["text"].replace("  \n", "\n") for one in teams.sent]
