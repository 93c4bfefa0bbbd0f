"""`/background`: tasks run in parallel with the session and report in it."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client
from tests.runtime.delegation.delegating_model import DelegatingModel, delegate_tasks, run_report_turn, until_stored

from talaria.core.events import TurnAnswered
from talaria.testing.model_server import Ask, ModelServer, Received, Say, refused


def _handle_in(shown: str) -> str:
    """Return the handle of a task that a text contains."""
    found = re.search(r"`(bg-[0-9a-f]{6})`", shown)
    assert found is not None
    return found[1]


def _script_answers(server: ModelServer, **answers: str) -> dict[str, asyncio.Event]:
    """Answer each task when its gate is open, and everything else at once."""
    gates = {task: asyncio.Event() for task in answers}

    async def answer(request: Received) -> Say:
        if request.question in gates:
            await gates[request.question].wait()
            return Say(answers[request.question])
        return Say("I tell them." if "not from the person" in request.question else "hello")

    server.answering(answer)
    return gates


async def test_result_of_a_task_is_reported_in_the_session_that_continued_meanwhile(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        gates = _script_answers(server, height="Very *tall*.")
        handle = _handle_in(await client.use("/background height"))
        await server.arrived()
        assert await client.say("hi") == TurnAnswered("hello")
        listed = await client.use("/background")
        assert f"`{handle}`: height (started just now, in `" in listed
        gates["height"].set()
        report = await run_report_turn(client)
        assert "height" in report
        assert "Very *tall*." in report
        assert (await client.transcript())[-1] == ("assistant", "I tell them.")
        assert "No background tasks" in await client.use("/background")


async def test_result_is_reported_in_the_active_session_after_new(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        gates = _script_answers(server, product="42")
        await client.say("hi")
        before = client.active_session.session_id
        await client.use("/background product")
        await server.arrived(2)
        await client.use("/new")
        gates["product"].set()
        assert "42" in await run_report_turn(client)
        assert client.active_session.session_id != before


async def test_background_task_of_the_agent_ends_with_its_session(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        DelegatingModel(server, {"go": [delegate_tasks("count", background=True), Say("begun")]}, gates=("count",))
        assert await client.say("go") == TurnAnswered("begun")
        await server.arrived(3)
        await client.use("/new")
        await server.gone()
        await until_stored(
            client, lambda tx: not tx.delegated_tasks.in_background() and not tx.turns.find(running=True)
        )
        assert await client.application.store.read(lambda tx: tx.completions.waiting()) == []


@pytest.mark.slow
async def test_interrupted_task_continues_when_its_session_is_opened_again(tmp_path: Path) -> None:
    async with ModelServer() as server:
        async with open_chat_client(tmp_path, server) as client:
            _script_answers(server, count="never")
            await client.say("hi")
            before = client.active_session.session_id
            await client.use("/background count")
            await server.arrived(2)
        _script_answers(server, count="one to four")["count"].set()
        async with open_chat_client(tmp_path, server, resume=before) as client:
            assert "one to four" in await run_report_turn(client)


async def test_failure_of_a_task_is_reported(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.script(refused())
        await client.use("/background Something forbidden")
        report = await run_report_turn(client)
        assert "failed" in report
        assert "declined" in report


async def test_approval_in_a_background_task_is_refused_without_a_question(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.script(Say(calls=[Ask("terminal", {"command": "rm -rf /etc/nothing"})]), Say("I may not."))
        await client.use("/background Clean up")
        assert "I may not." in await run_report_turn(client)
        assert "nobody was there to approve it" in server.received[1].body.decode()


async def test_a_stopped_task_is_not_reported_and_leaves_nothing_running(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        _script_answers(server, count="never")
        await client.say("hi")
        handle = _handle_in(await client.use("/background count"))
        await server.arrived(2)
        assert (f"stop {handle}", "count") in await client.offers("background", "st")
        assert "Stopped" in await client.use(f"/background stop {handle}")
        await server.gone()
        await until_stored(
            client, lambda tx: not tx.delegated_tasks.in_background() and not tx.turns.find(running=True)
        )
        assert "No background tasks" in await client.use("/background")
        assert (await client.transcript())[-1][1].endswith(f"{handle}, so it won't be reported.")
        assert f"There is no background task `{handle}`" in await client.use(f"/background stop {handle}")


async def test_number_of_running_background_tasks_is_limited(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, "[delegation]\nbackground = 2\n") as client:
        _script_answers(server, one="1", two="2")
        await client.use("/background one")
        await client.use("/background two")
        assert "2 background tasks are already running" in await client.use("/background three")


async def test_background_task_is_refused_if_its_result_cannot_be_reported(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        client.application.background_role.present = False
        assert "can't report here" in await client.use("/background one")
        assert await _has_no_stored_tasks(client)


async def _has_no_stored_tasks(client: ChatClient) -> bool:
    return not await client.application.store.read(lambda tx: tx.delegated_tasks.in_background())
