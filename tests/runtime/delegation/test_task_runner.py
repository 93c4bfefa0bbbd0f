"""Delegated tasks that the parent turn waits for."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client
from tests.runtime.delegation.delegating_model import (
    DelegatingModel,
    Script,
    children,
    delegate_tasks,
    model_calls_for,
    result,
    tools_of,
    until_stored,
)

from talaria.contracts.store import Transaction
from talaria.core.events import ApprovalAsked, ToolProgressed, TurnAnswered, TurnOutOfBudget, TurnStopped
from talaria.core.ids import SessionId
from talaria.sessions.branches import session_account
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Tokens
from talaria.testing.wait import until

NUMBER = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
PRICED = "[models.scripted]\ninput_price = 1.0\noutput_price = 1000.0\noutput_limit = 1000\n"


def is_over(tx: Transaction) -> bool:
    """Return whether no delegation is stored and nothing is running or pending."""
    stored = list(tx.archive.rows("delegated_tasks"))
    return not stored and not tx.turns.find(running=True) and not tx.inbox.list_unsettled()


def is_written(pid: Path) -> bool:
    return pid.exists() and pid.read_text().endswith("\n")


def is_gone(pid: Path) -> bool:
    return not Path(f"/proc/{pid.read_text().strip()}").exists()


async def test_results_are_in_the_order_of_the_tasks_whichever_ends_first(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        script: Script = {
            "go": [delegate_tasks("slow", "quick"), Say("both")],
            "slow": Say("tortoise"),
            "quick": Say("hare"),
        }
        delegating_model = DelegatingModel(server, script, gates=("slow",))
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(client.say("go"))
            await until_stored(client, lambda tx: any(one.state == "answered" for one in tx.turns.find()))
            delegating_model.gates["slow"].set()
        assert turn.result() == TurnAnswered("both")
        assert await result(client) == "## 1: done\ntortoise\n\n## 2: done\nhare"
        steps = [event.text for event in client.events if isinstance(event, ToolProgressed)]
        assert steps == ["child 2: done", "child 1: done"]
        await until_stored(client, is_over)


async def test_child_has_its_own_archived_session_without_the_parents_messages(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        DelegatingModel(server, {"My cat is Ada.": Say("Nice."), "go": [delegate_tasks("name it"), Say("done")]})
        await client.say("My cat is Ada.")
        await client.say("go")
        assert await result(client) == "ok"
        [asked] = model_calls_for(server, "name it")
        assert "Ada" not in asked.body.decode()
        [child] = await children(client)
        session = await client.application.store.read(lambda tx: tx.sessions.get(child))
        assert session is not None
        assert (session.source, session.parent_id, session.parent_seq) == (
            "delegate",
            client.active_session.session_id,
            0,
        )
        assert session.archived_at is not None
        assert child not in await client.use("/sessions")


async def test_child_has_only_the_tools_passed_on_to_it(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        some = {"goal": "some", "tools": ["read_file", "clarify"]}
        DelegatingModel(server, {"go": [delegate_tasks("usual", some), Say("done")]})
        await client.say("go")
        own = tools_of(server.received[0])
        assert {"clarify", "delegate_task", "terminal"} <= own
        assert tools_of(model_calls_for(server, "usual")[0]) == own - {"clarify"}
        assert tools_of(model_calls_for(server, "some")[0]) == {"read_file"}


async def test_child_can_delegate_up_to_the_configured_depth(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        script: Script = {
            "go": [delegate_tasks("one"), Say("done")],
            "one": [delegate_tasks("two"), Say("from two")],
            "two": Say("deep"),
        }
        DelegatingModel(server, script)
        await client.say("go")
        assert await result(client) == "from two"
        assert "delegate_task" in tools_of(model_calls_for(server, "one")[0])
        assert "delegate_task" not in tools_of(model_calls_for(server, "two")[0])
        assert "deep" in model_calls_for(server, "one")[1].body.decode()
        steps = [event.text for event in client.events if isinstance(event, ToolProgressed)]
        assert steps == ["child 1: delegate_task: two", "child 1: child 1: done", "child 1: done"]
        await until_stored(client, is_over)


async def test_delegation_depth_zero_removes_the_tool(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, "[delegation]\ndepth = 0\n") as client:
        await client.say("hi")
        assert "delegate_task" not in tools_of(server.received[0])


async def test_answer_that_does_not_match_its_schema_is_requested_once_more(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        good, bad = {"goal": "good", "output_schema": NUMBER}, {"goal": "bad", "output_schema": NUMBER}
        fixed = 'Here:\n```json\n{"sum": 3}\n```'
        again = "That answer doesn't match: {}. Answer again, only with JSON that matches the schema."
        script: Script = {
            "go": [delegate_tasks(good, bad), Say("done")],
            "good": Say('{"sum": "three"}'),
            "bad": Say("three"),
            again.format('answer.sum: "three" is not of type "integer"'): Say(fixed),
            again.format("the answer is not JSON"): Say("still three"),
        }
        delegating_model = DelegatingModel(server, script)
        await client.say("go")
        assert await result(client) == (
            '## 1: done\n{"sum":3}\n\n## 2: failed\n'
            "The answer doesn't match the schema, even after a second try: the answer is not JSON.\nstill three"
        )
        assert len(delegating_model.tasks) == 6
        assert '"sum":{"type":"integer"}' in model_calls_for(server, "good")[0].question


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        ({"goal": " "}, "each with a goal"),
        ({"goal": "x", "tools": ["fly"]}, "You have no tool fly to pass on"),
        ({"goal": "x", "model": "nowhere:none"}, "That model can't be used"),
        ({"goal": "x", "output_schema": {"type": "strange"}}, 'schema.type: "strange" is not valid'),
    ],
)
async def test_invalid_task_is_refused_with_the_reason(tmp_path: Path, task: dict[str, object], complaint: str) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        DelegatingModel(server, {"go": [delegate_tasks(task), Say("done")]})
        await client.say("go")
        assert complaint in await result(client)
        assert await children(client) == []


async def test_tasks_per_call_and_tasks_in_parallel_are_limited(tmp_path: Path) -> None:
    goals = [f"task {number}" for number in range(5)]
    settings = "[delegation]\ntasks = 5\nat_once = 2\n"
    async with ModelServer() as server, open_chat_client(tmp_path, server, settings) as client:
        script: Script = {
            "go": [delegate_tasks(*goals), Say("done")],
            "more": [delegate_tasks(*goals, "task 5"), Say("done")],
        }
        delegating_model = DelegatingModel(server, script, gates=tuple(goals))
        async with asyncio.TaskGroup() as group:
            group.create_task(client.say("go"))
            await server.arrived(3)
            for gate in delegating_model.gates.values():
                gate.set()
        assert delegating_model.most_running == 2
        assert (await result(client)).count(": done\nok") == 5
        await client.say("more")
        assert "At most 5 tasks" in await result(client)


@pytest.mark.slow
async def test_stopping_the_turn_ends_its_children_and_their_processes(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        sleeping = Say(calls=[Ask("terminal", {"command": "echo $$ > pid; exec sleep 600"})])
        DelegatingModel(server, {"go": delegate_tasks("think", "sleep"), "sleep": sleeping}, gates=("think",))
        pid = tmp_path / "work" / "pid"
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(client.say("go"))
            await until_stored(client, lambda tx: is_written(pid) and len(tx.turns.find()) == 3)
            client.active_session.chat.conversation.stop()
        assert turn.result() == TurnStopped()
        await server.gone()
        await until_stored(client, is_over)
        assert is_gone(pid)
        for child in await children(client):
            assert await _last_turn(client, child) == "stopped"
        assert await client.say("hi") == TurnAnswered("ok")


async def _last_turn(client: ChatClient, session_id: SessionId) -> str:
    return await client.application.store.read(lambda tx: tx.turns.find(session_id)[-1].state)


async def test_turn_out_of_time_ends_its_children(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, "[agent]\nmax_turn_seconds = 2\n") as client:
        DelegatingModel(server, {"go": delegate_tasks("think")}, gates=("think",))
        end = await client.say("go")
        assert isinstance(end, TurnOutOfBudget)
        await until_stored(client, is_over)


async def test_resumed_turn_continues_unfinished_tasks_and_repeats_no_finished_one(tmp_path: Path) -> None:
    async with ModelServer() as server:
        script: Script = {
            "go": [delegate_tasks("quick", "slow"), Say("both")],
            "quick": Say("hare"),
            "slow": Say("tortoise"),
        }
        async with open_chat_client(tmp_path, server) as client:
            delegating_model = DelegatingModel(server, script, gates=("slow",))
            here = client.active_session.session_id
            await client.use("/queue go")
            await until_stored(client, lambda tx: any(one.state == "answered" for one in tx.turns.find()))
            await server.arrived(3)
        assert sorted(delegating_model.tasks) == ["go", "quick", "slow"]
        async with open_chat_client(tmp_path, server, resume=here) as client:
            delegating_model.gates["slow"].set()
            assert await client.active_session.chat.conversation.wait_until_idle() == TurnAnswered("both")
            assert await result(client) == "## 1: done\nhare\n\n## 2: done\ntortoise"
            assert sorted(delegating_model.tasks) == ["go", "go", "quick", "slow", "slow"]
            assert len(await children(client)) == 2
            await until_stored(client, is_over)


async def test_child_asks_for_approval_in_the_chat_of_its_parent(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        dangerous = Say(calls=[Ask("terminal", {"command": "rm -rf /etc/nothing"})])
        DelegatingModel(
            server, {"go": [delegate_tasks("wait", "clean"), Say("done")], "clean": [dangerous, Say("I may not.")]}
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(client.say("go"))
            await until(lambda: client.active_session.chat.questions.approvals)
            [asked] = client.active_session.chat.questions.approvals
            assert isinstance(asked, ApprovalAsked)
            assert asked.summary == "child 2: rm -rf /etc/nothing"
            assert client.active_session.chat.questions.answer(asked.id, "not today")
        assert "I may not." in await result(client)
        assert "the user refused: not today" in model_calls_for(server, "clean")[-1].body.decode()


async def test_cost_of_a_child_counts_against_all_its_parent_sessions(tmp_path: Path) -> None:
    async with ModelServer() as server:
        settings = f"{PRICED}[budget]\nsession = 100.0\n"
        async with open_chat_client(tmp_path, server, settings) as client:
            costly = Say("deep", usage=Tokens(0, 1000))
            script: Script = {
                "go": [delegate_tasks("one"), Say("done")],
                "one": [delegate_tasks("two"), Say("from two")],
                "two": costly,
            }
            DelegatingModel(server, script)
            await client.say("go")
            [child] = await children(client)
            [grandchild] = await children(client, child)
            spent = await client.application.store.read(
                lambda tx: [
                    tx.ledger.read_spent(session_account(one))
                    for one in (grandchild, child, client.active_session.session_id)
                ]
            )
            assert spent[0] >= 1_000_000
            assert spent == sorted(spent)
            assert len(set(spent)) == 3


async def test_child_over_its_cost_cap_fails_without_failing_others(tmp_path: Path) -> None:
    settings = f"{PRICED}[delegation]\nmax_dollars = 1.5\n"
    async with ModelServer() as server, open_chat_client(tmp_path, server, settings) as client:
        look = Say(calls=[Ask("list_files", {})], usage=Tokens(0, 900))
        DelegatingModel(server, {"go": [delegate_tasks("dear", "cheap"), Say("done")], "dear": [look, Say("never")]})
        assert await client.say("go") == TurnAnswered("done")
        assert re.match(r"## 1: failed\n.+\n\n## 2: done\nok", await result(client))
