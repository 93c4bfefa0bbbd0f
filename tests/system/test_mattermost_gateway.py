"""The gateway on Mattermost: a whole process, killed during traffic, between people and the model."""

import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running

from talaria.testing.mattermost_server import MattermostServer, ServerChannel, mattermost_server
from talaria.testing.model_server import ModelServer, Received, Say
from talaria.testing.wait import until

TOKEN = "token-of-the-tests"
PEOPLE = ("ann", "bob", "cleo")
KILLS = 3


@pytest.fixture
async def mattermost() -> AsyncIterator[MattermostServer]:
    async with mattermost_server(TOKEN) as server:
        yield server


@pytest.fixture
def chats(mattermost: MattermostServer) -> dict[str, ServerChannel]:
    """Direct chats by the ids of people."""
    people = [mattermost.add_user(name) for name in PEOPLE]
    return {person: mattermost.add_channel("D", person) for person in people}


@pytest.fixture
def program(
    tmp_path: Path, server: ModelServer, mattermost: MattermostServer, chats: dict[str, ServerChannel]
) -> Program:
    allowed = ", ".join(f'"mattermost:{person}"' for person in chats)
    settings = f"[gateway]\nlease_seconds = 1.0\n[access]\nallowed = [{allowed}]\n"
    return scripted_program(tmp_path, server, settings, f"MATTERMOST_URL={mattermost.url}\nMATTERMOST_TOKEN={TOKEN}\n")


async def test_gateway_killed_during_traffic_answers_every_message(
    program: Program, server: ModelServer, mattermost: MattermostServer, chats: dict[str, ServerChannel]
) -> None:
    def answer(received: Received) -> Say:
        slow = received.question.endswith("slowly") and len(server.received) <= len(PEOPLE)
        return Say(f"re: {received.question}", pause=60 if slow else 0)

    def replies() -> Counter[str]:
        return Counter(one["message"] for one in mattermost.posts.values() if one["user_id"] == mattermost.bot)

    server.answering(answer)
    asked: list[str] = []
    for number in range(KILLS):
        async with running(program) as process:
            await until(lambda: mattermost.is_followed)
            for person, chat in chats.items():
                asked.append(f"{mattermost.users[person]} {number}" + (" slowly" if number == 0 else ""))
                mattermost.publish(person, chat.id, asked[-1])
            await until(lambda: set(asked) <= {one.question for one in server.received})
            process.send_signal(signal.SIGKILL)
            await process.wait()
        for person, chat in chats.items():  # while no gateway runs
            asked.append(f"{mattermost.users[person]} {number} meanwhile")
            mattermost.publish(person, chat.id, asked[-1])
        await until(lambda: not mattermost.is_followed)
    expected = {f"re: {question}" for question in asked}
    async with running(program):
        await until(lambda: expected <= set(replies()))
    counts = replies()
    assert set(counts) == expected
    assert sum(counts.values()) - len(counts) <= KILLS  # killed between a post and its record
