"""Plan mode: only reading until the plan is approved, in every process and on every surface."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.core.addresses import Address
from talaria.core.events import ApprovalAsked, ToolRefused
from talaria.runtime.open_session import ResumeSession
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until

OFF = "[approval]\nmode = 'off'\n"
WRITE = Say(calls=[Ask("write_file", {"path": "result", "content": "done"})])
READ = Say(calls=[Ask("terminal", {"command": "ls | head -3"}), Ask("list_files", {}), Ask("todo", {})])

pytestmark = pytest.mark.slow  # turns that change files start git


def refusals(client: ChatClient) -> list[str]:
    return [event.reason for event in client.events if isinstance(event, ToolRefused)]


def questions(client: ChatClient) -> list[ApprovalAsked]:
    return [event for event in client.events if isinstance(event, ApprovalAsked)]


async def answer(client: ChatClient, text: str) -> None:
    """Answer the next question when it is asked."""
    count = len(questions(client))
    await until(lambda: len(questions(client)) > count)
    client.active_session.questions.answer(questions(client)[-1].id, text)


async def settled(client: ChatClient) -> None:
    await client.active_session.chat.conversation.wait_until_idle()


async def test_only_reading_is_allowed_until_the_plan_is_approved(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, OFF) as client:
        await client.use("/plan")
        server.script(READ, WRITE, WRITE, Say("The plan: tests, then the file."))
        await asyncio.gather(client.say("write the result"), answer(client, "first add tests"))
        instructed, changed = refusals(client)
        assert "Plan mode is on" in instructed
        assert "the user wants changes: first add tests" in changed
        assert not (tmp_path / "work" / "result").exists()


async def test_an_approved_plan_is_carried_out_in_the_same_turn(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, OFF) as client:
        server.script(WRITE, WRITE, Say("Done."))
        await client.use("/plan write the result")
        await asyncio.gather(settled(client), answer(client, "once"))
        assert (tmp_path / "work" / "result").read_text() == "done"
        (question,) = questions(client)
        assert question.summary == "First step: write_file: result"
        assert "Plan mode is off" in await client.use("/plan status")
        assert b"Plan mode is on" in server.received[0].body


async def test_plan_mode_survives_a_restart(tmp_path: Path) -> None:
    async with ModelServer() as server:
        async with open_chat_client(tmp_path, server, OFF) as client:
            server.script(Say("The plan."))
            await client.use("/plan write the result")
            await settled(client)
            session_id = client.active_session.session_id
        async with open_chat_client(tmp_path, server, OFF, session=ResumeSession(session_id)) as client:
            server.script(WRITE, Say("Then not."))
            await asyncio.gather(client.say("go"), answer(client, "no"))
            assert not (tmp_path / "work" / "result").exists()


async def test_a_plan_can_be_approved_after_the_turn(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, OFF) as client:
        server.script(Say("The plan."), WRITE, Say("Done."))
        await client.use("/plan write the result")
        await settled(client)
        assert await client.use("/plan approve") == "Plan approved."
        await settled(client)
        assert (tmp_path / "work" / "result").exists()
        assert questions(client) == []


async def test_a_branch_stays_in_plan_mode(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, OFF) as client:
        server.script(Say("The plan."))
        await client.use("/plan write the result")
        await settled(client)
        await client.use("/branch")
        assert "Plan mode is on" in await client.use("/plan status")


async def test_plan_mode_can_be_left(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, OFF) as client:
        await client.use("/plan")
        assert await client.use("/plan off") == "Plan mode is off."
        server.script(WRITE, Say("Done."))
        await client.say("write")
        assert (tmp_path / "work" / "result").exists()


@pytest.mark.parametrize("options", [{"plan": True}, {"chat": Address("telegram", "1"), "key": "k", "plan": True}])
async def test_session_can_start_in_plan_mode(tmp_path: Path, options: dict[str, Any]) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, OFF, **options) as client:
        server.script(WRITE, Say("A plan first, then."))
        await client.say("write")
        assert not (tmp_path / "work" / "result").exists()
        assert "Plan mode is on" in refusals(client)[0]


async def test_plan_mode_does_not_change_instructions_and_tools_of_requests(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, OFF) as client:
        server.script(Say("Hello."), Say("The plan."))
        await client.say("hello")
        await client.use("/plan write the result")
        await settled(client)
        before, after = (json.loads(one.body) for one in server.received)
        assert before["tools"] == after["tools"]
        assert after["messages"][: len(before["messages"])] == before["messages"]


async def test_only_the_owner_can_change_plan_mode(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, OFF) as client:
        await client.use("/plan")
        guest = type(client.author)(name="Eve", owner=False, id="7")
        assert "Only the owner" in await client.use("/plan off", author=guest)
        assert "Plan mode is on" in await client.use("/plan status")
