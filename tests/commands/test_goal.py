"""`/goal` and `/subgoal` as a person uses them, in a terminal and in a chat."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.commands.command import Author
from talaria.core.addresses import Address
from talaria.core.events import ApprovalAsked, Noticed
from talaria.runtime.open_session import LatestSession
from talaria.testing.model_server import Answer, Ask, ModelServer, Received, Say
from talaria.testing.wait import until

CHAT = Address("telegram", "7")
DONE = Say('{"verdict": "done", "reason": "It is shown."}')
NOT_YET = Say('{"verdict": "continue", "reason": "One part is missing."}')


class Models:
    """The working model and the judge: one server, distinguished by the request."""

    def __init__(self, server: ModelServer) -> None:
        self.replies: list[Answer] = []
        self.verdicts: list[Answer] = []
        self.judged: list[str] = []
        self.calls = 0
        self.hold = asyncio.Event()
        self.hold.set()
        server.answering(self._answer)

    async def _answer(self, received: Received) -> Answer:
        if "You judge whether" in received.json["messages"][0]["content"]:
            self.judged.append(received.question)
            return self.verdicts.pop(0) if self.verdicts else DONE
        self.calls += 1
        await self.hold.wait()
        return self.replies.pop(0) if self.replies else Say("a step")


@pytest.fixture
def models(server: ModelServer) -> Models:
    return Models(server)


@pytest.fixture(params=["terminal", "chat"])
async def client(
    request: pytest.FixtureRequest, tmp_path: Path, server: ModelServer, models: Models
) -> AsyncIterator[ChatClient]:
    chat = CHAT if request.param == "chat" else None
    settings = '[access]\nowners = ["telegram:7"]\n'
    async with open_chat_client(tmp_path, server, settings, chat=chat, key="telegram:7" if chat else "") as client:
        client.author = Author(id="7")
        yield client


async def wait_for_notice(client: ChatClient, part: str) -> str:
    found: list[str] = []

    def is_noticed() -> bool:
        found[:] = [event.text for event in client.events if isinstance(event, Noticed) and part in event.text]
        return bool(found)

    await until(is_noticed)
    return found[-1]


async def test_goal_runs_turns_until_the_judge_finds_it_reached(client: ChatClient, models: Models) -> None:
    models.verdicts = [NOT_YET]
    shown = await client.use("/goal Win the game")
    assert "Goal (active, 0 of 20 turns): Win the game" in shown
    assert (
        await wait_for_notice(client, "not reached yet")
        == "Goal: not reached yet (1 of 20 turns): One part is missing."
    )
    await wait_for_notice(client, "Goal reached (2 of 20 turns)")
    transcript = await client.transcript()
    assert [role for role, _ in transcript] == ["user", "assistant"] * 2
    assert transcript[0] == ("user", "Win the game")
    assert "Goal reached (2 of 20 turns): Win the game" in await client.use("/goal status")
    history = await client.use("/goal history")
    assert "**continue**: One part is missing." in history
    assert "**done**: It is shown." in history


async def test_every_goal_command_reports_that_there_is_no_goal(client: ChatClient) -> None:
    for command in ("/goal", "/goal status", "/goal pause", "/goal clear", "/subgoal"):
        assert "There is no goal" in await client.use(command)
    for command in ("/goal resume", "/subgoal be quick", "/subgoal remove 1"):
        assert "There is no goal" in await client.use(command)
    assert "No turn has been judged yet" in await client.use("/goal history")


async def test_goal_can_be_shown_paused_and_cleared_but_not_replaced_during_a_turn(
    client: ChatClient, models: Models
) -> None:
    models.hold.clear()
    await client.use("/goal Win the game")
    await until(lambda: models.calls > 0)
    assert "stop it first (`/stop`)" in await client.use("/goal Lose the game")
    assert "Win the game" in await client.use("/goal")
    assert "paused" in await client.use("/goal pause")
    assert "stop it first (`/stop`)" in await client.use("/goal resume")
    assert "cleared" in await client.use("/goal clear")
    models.hold.set()
    await client.active_session.chat.conversation.wait_until_idle()
    assert models.judged == []


async def test_guest_cannot_replace_a_goal_during_a_turn(client: ChatClient, models: Models) -> None:
    models.hold.clear()
    await client.use("/goal Win the game")
    await until(lambda: models.calls > 0)
    assert "stop it first" in await client.use("/goal Lose the game", author=Author("ann", owner=False))
    models.hold.set()


async def test_resuming_a_goal_starts_a_turn(client: ChatClient, models: Models) -> None:
    models.verdicts = [NOT_YET]
    await client.use("/goal Win the game | budget: 1 turn")
    assert "its budget of 1 turn is used up" in await wait_for_notice(client, "Goal paused")
    assert "(active, 0 of 1 turns)" in await client.use("/goal resume")
    await wait_for_notice(client, "Goal reached")


async def test_criteria_are_added_listed_and_removed(client: ChatClient, models: Models) -> None:
    models.verdicts = [NOT_YET]
    client.author = Author(id="1")
    await client.use("/goal Win the game | budget: 1 turn")
    await wait_for_notice(client, "Goal paused")
    await client.use("/subgoal be quick")
    assert await client.use("/subgoal remove the rust") == "1. be quick\n2. remove the rust"
    assert await client.use("/subgoal remove 1") == "1. remove the rust"
    assert "no criterion 9" in await client.use("/subgoal remove 9")
    assert "Which one?" in await client.use("/subgoal remove")
    assert "Criterion 1: remove the rust" in await client.use("/goal")
    await client.use("/goal resume")
    await wait_for_notice(client, "Goal reached")
    assert "remove the rust" in models.judged[-1]


@pytest.mark.slow
async def test_verify_command_of_a_goal_runs_in_the_session_folder(
    client: ChatClient, models: Models, tmp_path: Path
) -> None:
    write = Ask("write_file", {"path": "proof.txt", "content": "here"})
    models.replies = [Say("I am done."), Say(calls=[write]), Say("Now I am.")]
    await client.use("/goal Write it\nverify: echo looking; test -f proof.txt")
    await wait_for_notice(client, "Goal reached (2 of 20 turns)")
    history = await client.use("/goal history")
    assert "(exit code 1): `echo looking; test -f proof.txt` ended with exit code 1: looking" in history
    assert "(exit code 0): It is shown." in history
    assert (tmp_path / "work" / "proof.txt").read_text() == "here"
    assert client.active_session.chat.workspace.folder == tmp_path / "work"


async def test_verify_command_of_a_guest_needs_approval(client: ChatClient, models: Models) -> None:
    models.verdicts = [DONE]
    await client.use("/goal Win | verify: cat ~/.ssh/id_ed25519", author=Author("ann", owner=False))
    await until(lambda: any(isinstance(event, ApprovalAsked) for event in client.events))
    question = next(event for event in client.events if isinstance(event, ApprovalAsked))
    assert ".ssh" in question.summary
    client.active_session.chat.questions.answer(question.id, "no")
    assert "It wasn't allowed to run" in await wait_for_notice(client, "not reached yet")
    await client.use("/goal clear")


async def test_goal_continues_after_the_program_was_restarted(
    tmp_path: Path, server: ModelServer, models: Models
) -> None:
    models.hold.clear()
    async with open_chat_client(tmp_path, server) as client:
        await client.use("/goal Win the game")
        await until(lambda: bool(server.received))
    models.hold.set()
    async with open_chat_client(tmp_path, server, session=LatestSession()) as client:
        await wait_for_notice(client, "Goal reached")
        assert [text for role, text in await client.transcript() if role == "user"] == ["Win the game"]


async def test_budget_of_a_goal_comes_from_the_settings(tmp_path: Path, server: ModelServer, models: Models) -> None:
    settings = "[goals]\nmax_turns = 7\nmax_tokens = 200000\nmax_dollars = 1.5\nmax_minutes = 90\n"
    settings += "[models.scripted]\ninput_price = 3.0\noutput_price = 15.0\n"
    async with open_chat_client(tmp_path, server, settings) as client:
        await client.use("/goal Win the game")
        await wait_for_notice(client, "Goal reached")
        assert "- Budget: 7 turns, 200,000 tokens, $1.50, 1.5 h" in await client.use("/goal")


@pytest.mark.slow
async def test_verify_command_that_times_out_is_killed_with_its_children(
    tmp_path: Path, server: ModelServer, models: Models
) -> None:
    async with open_chat_client(tmp_path, server, "[goals]\nverify_seconds = 1\n") as client:
        await client.use("/goal Win | verify: echo begun; sleep 60 & echo $! > pid; wait | budget: 1 turn")
        await wait_for_notice(client, "Goal paused")
        assert "[stopped after 1 s]" in await client.use("/goal history")
        pid = int((tmp_path / "work" / "pid").read_text())
        await until(lambda: not _is_running(pid))


@pytest.mark.slow
async def test_pausing_a_goal_kills_its_running_verify_command(
    tmp_path: Path, server: ModelServer, models: Models
) -> None:
    async with open_chat_client(tmp_path, server) as client:
        await client.use("/goal Win | verify: sleep 60 & echo $! > pid.new; mv pid.new pid; wait")
        file = tmp_path / "work" / "pid"
        await until(file.exists)
        await client.use("/goal pause")
        await until(lambda: not _is_running(int(file.read_text())))
        assert models.judged == []


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
