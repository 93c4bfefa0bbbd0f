"""Plan mode: only reading until the plan is approved, in every process and on every surface."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands.command_fixture import Desk, open_desk

from talaria.core.addresses import Address
from talaria.core.events import ApprovalAsked, ToolRefused
from talaria.runtime.open_session import ResumeSession
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until

OFF = "[approval]\nmode = 'off'\n"
WRITE = Say(calls=[Ask("write_file", {"path": "result", "content": "done"})])
READ = Say(calls=[Ask("terminal", {"command": "ls | head -3"}), Ask("list_files", {}), Ask("todo", {})])

pytestmark = pytest.mark.slow  # turns that change files start git


def refusals(desk: Desk) -> list[str]:
    return [event.reason for event in desk.events if isinstance(event, ToolRefused)]


def questions(desk: Desk) -> list[ApprovalAsked]:
    return [event for event in desk.events if isinstance(event, ApprovalAsked)]


async def answer(desk: Desk, text: str) -> None:
    """Answer the next question when it is asked."""
    count = len(questions(desk))
    await until(lambda: len(questions(desk)) > count)
    desk.active_session.questions.answer(questions(desk)[-1].id, text)


async def settled(desk: Desk) -> None:
    await desk.active_session.chat.conversation.settled()


async def test_only_reading_is_allowed_until_the_plan_is_approved(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, OFF) as desk:
        await desk.use("/plan")
        server.script(READ, WRITE, WRITE, Say("The plan: tests, then the file."))
        await asyncio.gather(desk.say("write the result"), answer(desk, "first add tests"))
        instructed, changed = refusals(desk)
        assert "Plan mode is on" in instructed
        assert "the user wants changes: first add tests" in changed
        assert not (tmp_path / "work" / "result").exists()


async def test_an_approved_plan_is_carried_out_in_the_same_turn(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, OFF) as desk:
        server.script(WRITE, WRITE, Say("Done."))
        await desk.use("/plan write the result")
        await asyncio.gather(settled(desk), answer(desk, "once"))
        assert (tmp_path / "work" / "result").read_text() == "done"
        (question,) = questions(desk)
        assert question.summary == "First step: write_file: result"
        assert "Plan mode is off" in await desk.use("/plan status")
        assert b"Plan mode is on" in server.received[0].body


async def test_plan_mode_survives_a_restart(tmp_path: Path) -> None:
    async with ModelServer() as server:
        async with open_desk(tmp_path, server, OFF) as desk:
            server.script(Say("The plan."))
            await desk.use("/plan write the result")
            await settled(desk)
            session_id = desk.active_session.session_id
        async with open_desk(tmp_path, server, OFF, session=ResumeSession(session_id)) as desk:
            server.script(WRITE, Say("Then not."))
            await asyncio.gather(desk.say("go"), answer(desk, "no"))
            assert not (tmp_path / "work" / "result").exists()


async def test_a_plan_can_be_approved_after_the_turn(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, OFF) as desk:
        server.script(Say("The plan."), WRITE, Say("Done."))
        await desk.use("/plan write the result")
        await settled(desk)
        assert await desk.use("/plan approve") == "Plan approved."
        await settled(desk)
        assert (tmp_path / "work" / "result").exists()
        assert questions(desk) == []


async def test_a_branch_stays_in_plan_mode(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, OFF) as desk:
        server.script(Say("The plan."))
        await desk.use("/plan write the result")
        await settled(desk)
        await desk.use("/branch")
        assert "Plan mode is on" in await desk.use("/plan status")


async def test_plan_mode_can_be_left(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, OFF) as desk:
        await desk.use("/plan")
        assert await desk.use("/plan off") == "Plan mode is off."
        server.script(WRITE, Say("Done."))
        await desk.say("write")
        assert (tmp_path / "work" / "result").exists()


@pytest.mark.parametrize("options", [{"plan": True}, {"chat": Address("telegram", "1"), "key": "k", "plan": True}])
async def test_session_can_start_in_plan_mode(tmp_path: Path, options: dict[str, Any]) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, OFF, **options) as desk:
        server.script(WRITE, Say("A plan first, then."))
        await desk.say("write")
        assert not (tmp_path / "work" / "result").exists()
        assert "Plan mode is on" in refusals(desk)[0]


async def test_plan_mode_does_not_change_instructions_and_tools_of_requests(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, OFF) as desk:
        server.script(Say("Hello."), Say("The plan."))
        await desk.say("hello")
        await desk.use("/plan write the result")
        await settled(desk)
        before, after = (json.loads(one.body) for one in server.received)
        assert before["tools"] == after["tools"]
        assert after["messages"][: len(before["messages"])] == before["messages"]


async def test_only_the_owner_can_change_plan_mode(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, OFF) as desk:
        await desk.use("/plan")
        guest = type(desk.author)(name="Eve", owner=False, id="7")
        assert "Only the owner" in await desk.use("/plan off", author=guest)
        assert "Plan mode is on" in await desk.use("/plan status")
