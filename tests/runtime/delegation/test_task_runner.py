"""Delegated tasks that the parent turn waits for."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.commands.command_fixture import Desk, open_desk
from tests.runtime.delegation.delegating_model import (
    Company,
    Script,
    asked_for,
    children,
    hand_on,
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
    return not stored and not tx.turns.find(running=True) and not tx.inbox.unsettled()


def is_written(pid: Path) -> bool:
    return pid.exists() and pid.read_text().endswith("\n")


def is_gone(pid: Path) -> bool:
    return not Path(f"/proc/{pid.read_text().strip()}").exists()


async def test_results_are_in_the_order_of_the_tasks_whichever_ends_first(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        script: Script = {"go": [hand_on("slow", "quick"), Say("both")], "slow": Say("tortoise"), "quick": Say("hare")}
        company = Company(server, script, gates=("slow",))
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(desk.say("go"))
            await until_stored(desk, lambda tx: any(one.state == "answered" for one in tx.turns.find()))
            company.gates["slow"].set()
        assert turn.result() == TurnAnswered("both")
        assert await result(desk) == "## 1: done\ntortoise\n\n## 2: done\nhare"
        steps = [event.text for event in desk.events if isinstance(event, ToolProgressed)]
        assert steps == ["child 2: done", "child 1: done"]
        await until_stored(desk, is_over)


async def test_child_has_its_own_archived_session_without_the_parents_messages(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        Company(server, {"My cat is Ada.": Say("Nice."), "go": [hand_on("name it"), Say("done")]})
        await desk.say("My cat is Ada.")
        await desk.say("go")
        assert await result(desk) == "ok"
        [asked] = asked_for(server, "name it")
        assert "Ada" not in asked.body.decode()
        [child] = await children(desk)
        session = await desk.application.store.read(lambda tx: tx.sessions.get(child))
        assert session is not None
        assert (session.source, session.parent_id, session.parent_seq) == (
            "delegate",
            desk.active_session.session_id,
            0,
        )
        assert session.archived_at is not None
        assert child not in await desk.use("/sessions")


async def test_child_has_only_the_tools_passed_on_to_it(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        some = {"goal": "some", "tools": ["read_file", "clarify"]}
        Company(server, {"go": [hand_on("usual", some), Say("done")]})
        await desk.say("go")
        own = tools_of(server.received[0])
        assert {"clarify", "delegate_task", "terminal"} <= own
        assert tools_of(asked_for(server, "usual")[0]) == own - {"clarify"}
        assert tools_of(asked_for(server, "some")[0]) == {"read_file"}


async def test_child_can_delegate_up_to_the_configured_depth(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        script: Script = {
            "go": [hand_on("one"), Say("done")],
            "one": [hand_on("two"), Say("from two")],
            "two": Say("deep"),
        }
        Company(server, script)
        await desk.say("go")
        assert await result(desk) == "from two"
        assert "delegate_task" in tools_of(asked_for(server, "one")[0])
        assert "delegate_task" not in tools_of(asked_for(server, "two")[0])
        assert "deep" in asked_for(server, "one")[1].body.decode()
        steps = [event.text for event in desk.events if isinstance(event, ToolProgressed)]
        assert steps == ["child 1: delegate_task: two", "child 1: child 1: done", "child 1: done"]
        await until_stored(desk, is_over)


async def test_delegation_depth_zero_removes_the_tool(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, "[delegation]\ndepth = 0\n") as desk:
        await desk.say("hi")
        assert "delegate_task" not in tools_of(server.received[0])


async def test_answer_that_does_not_match_its_schema_is_requested_once_more(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        good, bad = {"goal": "good", "output_schema": NUMBER}, {"goal": "bad", "output_schema": NUMBER}
        fixed = 'Here:\n```json\n{"sum": 3}\n```'
        again = "That answer doesn't match: {}. Answer again, only with JSON that matches the schema."
        script: Script = {
            "go": [hand_on(good, bad), Say("done")],
            "good": Say('{"sum": "three"}'),
            "bad": Say("three"),
            again.format('answer.sum: "three" is not of type "integer"'): Say(fixed),
            again.format("the answer is not JSON"): Say("still three"),
        }
        company = Company(server, script)
        await desk.say("go")
        assert await result(desk) == (
            '## 1: done\n{"sum":3}\n\n## 2: failed\n'
            "The answer doesn't match the schema, even after a second try: the answer is not JSON.\nstill three"
        )
        assert len(company.asked) == 6
        assert '"sum":{"type":"integer"}' in asked_for(server, "good")[0].question


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
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        Company(server, {"go": [hand_on(task), Say("done")]})
        await desk.say("go")
        assert complaint in await result(desk)
        assert await children(desk) == []


async def test_tasks_per_call_and_tasks_in_parallel_are_limited(tmp_path: Path) -> None:
    goals = [f"task {number}" for number in range(5)]
    settings = "[delegation]\ntasks = 5\nat_once = 2\n"
    async with ModelServer() as server, open_desk(tmp_path, server, settings) as desk:
        script: Script = {"go": [hand_on(*goals), Say("done")], "more": [hand_on(*goals, "task 5"), Say("done")]}
        company = Company(server, script, gates=tuple(goals))
        async with asyncio.TaskGroup() as group:
            group.create_task(desk.say("go"))
            await server.arrived(3)
            for gate in company.gates.values():
                gate.set()
        assert company.most_at_work == 2
        assert (await result(desk)).count(": done\nok") == 5
        await desk.say("more")
        assert "At most 5 tasks" in await result(desk)


@pytest.mark.slow
async def test_stopping_the_turn_ends_its_children_and_their_processes(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        sleeping = Say(calls=[Ask("terminal", {"command": "echo $$ > pid; exec sleep 600"})])
        Company(server, {"go": hand_on("think", "sleep"), "sleep": sleeping}, gates=("think",))
        pid = tmp_path / "work" / "pid"
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(desk.say("go"))
            await until_stored(desk, lambda tx: is_written(pid) and len(tx.turns.find()) == 3)
            desk.active_session.chat.conversation.stop()
        assert turn.result() == TurnStopped()
        await server.gone()
        await until_stored(desk, is_over)
        assert is_gone(pid)
        for child in await children(desk):
            assert await _last_turn(desk, child) == "stopped"
        assert await desk.say("hi") == TurnAnswered("ok")


async def _last_turn(desk: Desk, session_id: SessionId) -> str:
    return await desk.application.store.read(lambda tx: tx.turns.find(session_id)[-1].state)


async def test_turn_out_of_time_ends_its_children(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, "[agent]\nmax_turn_seconds = 2\n") as desk:
        Company(server, {"go": hand_on("think")}, gates=("think",))
        end = await desk.say("go")
        assert isinstance(end, TurnOutOfBudget)
        await until_stored(desk, is_over)


async def test_resumed_turn_continues_unfinished_tasks_and_repeats_no_finished_one(tmp_path: Path) -> None:
    async with ModelServer() as server:
        script: Script = {"go": [hand_on("quick", "slow"), Say("both")], "quick": Say("hare"), "slow": Say("tortoise")}
        async with open_desk(tmp_path, server) as desk:
            company = Company(server, script, gates=("slow",))
            here = desk.active_session.session_id
            await desk.use("/queue go")
            await until_stored(desk, lambda tx: any(one.state == "answered" for one in tx.turns.find()))
            await server.arrived(3)
        assert sorted(company.asked) == ["go", "quick", "slow"]
        async with open_desk(tmp_path, server, resume=here) as desk:
            company.gates["slow"].set()
            assert await desk.active_session.chat.conversation.settled() == TurnAnswered("both")
            assert await result(desk) == "## 1: done\nhare\n\n## 2: done\ntortoise"
            assert sorted(company.asked) == ["go", "go", "quick", "slow", "slow"]
            assert len(await children(desk)) == 2
            await until_stored(desk, is_over)


async def test_child_asks_for_approval_in_the_chat_of_its_parent(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        dangerous = Say(calls=[Ask("terminal", {"command": "rm -rf /etc/nothing"})])
        Company(server, {"go": [hand_on("wait", "clean"), Say("done")], "clean": [dangerous, Say("I may not.")]})
        async with asyncio.TaskGroup() as group:
            group.create_task(desk.say("go"))
            await until(lambda: desk.active_session.chat.questions.approvals)
            [asked] = desk.active_session.chat.questions.approvals
            assert isinstance(asked, ApprovalAsked)
            assert asked.summary == "child 2: rm -rf /etc/nothing"
            assert desk.active_session.chat.questions.answer(asked.id, "not today")
        assert "I may not." in await result(desk)
        assert "the user refused: not today" in asked_for(server, "clean")[-1].body.decode()


async def test_cost_of_a_child_counts_against_all_its_parent_sessions(tmp_path: Path) -> None:
    async with ModelServer() as server:
        settings = f"{PRICED}[budget]\nsession = 100.0\n"
        async with open_desk(tmp_path, server, settings) as desk:
            costly = Say("deep", usage=Tokens(0, 1000))
            script: Script = {
                "go": [hand_on("one"), Say("done")],
                "one": [hand_on("two"), Say("from two")],
                "two": costly,
            }
            Company(server, script)
            await desk.say("go")
            [child] = await children(desk)
            [grandchild] = await children(desk, child)
            spent = await desk.application.store.read(
                lambda tx: [
                    tx.ledger.spent(session_account(one)) for one in (grandchild, child, desk.active_session.session_id)
                ]
            )
            assert spent[0] >= 1_000_000
            assert spent == sorted(spent)
            assert len(set(spent)) == 3


async def test_child_over_its_cost_cap_fails_without_failing_others(tmp_path: Path) -> None:
    settings = f"{PRICED}[delegation]\nmax_dollars = 1.5\n"
    async with ModelServer() as server, open_desk(tmp_path, server, settings) as desk:
        look = Say(calls=[Ask("list_files", {})], usage=Tokens(0, 900))
        Company(server, {"go": [hand_on("dear", "cheap"), Say("done")], "dear": [look, Say("never")]})
        assert await desk.say("go") == TurnAnswered("done")
        assert re.match(r"## 1: failed\n.+\n\n## 2: done\nok", await result(desk))
