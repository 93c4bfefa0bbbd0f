"""Completions returned by a tool call are not reported again after its turn; others are. On every engine."""

import re
from pathlib import Path

import pytest
from msgspec import structs
from tests.commands.command_fixture import open_chat_client

from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import Message, ToolResult
from talaria.runtime.completions import queue_pending_reports, record_pending_answers, report
from talaria.runtime.turns import read_inbox_message
from talaria.testing.clock import NOON
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received

STOPPED, ANSWERED = ToolResult("call-1", "stopped", failed=True), ToolResult("call-2", "it ended")


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


async def add_report(store: Store, session_id: SessionId, number: str) -> bool:
    return await store.write(lambda tx: report(tx, session_id, "process", number, f"it ended: {number}"))


async def test_report_to_an_interrupted_turn_waits_until_the_turn_has_ended(
    store: Store, session_id: SessionId
) -> None:
    await store.write(lambda tx: tx.turns.begin(session_id, TurnId("t1")))
    await add_report(store, session_id, "1")
    assert not await queue_pending_reports(store, session_id)
    await store.write(lambda tx: tx.turns.end(TurnId("t1"), "answered"))
    assert await queue_pending_reports(store, session_id)


async def test_a_completion_returned_by_a_call_is_not_reported_again(store: Store, session_id: SessionId) -> None:
    result = Message(role="tool", parts=(ToolResult("call-1", "it ended"),), at=NOON)
    await store.write(lambda tx: tx.messages.append(session_id, [result]))  # of an earlier call with the same id
    for number in ("1", "2"):
        await add_report(store, session_id, number)
    await store.write(lambda tx: record_pending_answers(tx, session_id, "process", ["1"], "call-1"))
    await store.write(lambda tx: record_pending_answers(tx, session_id, "process", ["2"], "call-2"))
    await store.write(lambda tx: tx.messages.append(session_id, [structs.replace(result, parts=(STOPPED, ANSWERED))]))
    assert await queue_pending_reports(store, session_id)
    (item,) = await store.read(lambda tx: tx.inbox.list_unsettled(session_id))
    assert read_inbox_message(item.payload).text.endswith("reports:\n\nit ended: 1")
    assert not await queue_pending_reports(store, session_id)


@pytest.mark.slow
async def test_a_process_awaited_in_a_turn_wakes_no_turn_after_it(tmp_path: Path) -> None:
    def answer(received: Received) -> Say:
        results = [one["content"] for one in received.json["messages"] if one["role"] == "tool"]
        if not results:
            return Say(calls=[Ask("terminal", {"command": "exit 7", "background": True})])
        if len(results) == 1:
            (process,) = re.findall(r"process (p\w+),", results[0])
            return Say(calls=[Ask("process", {"action": "wait", "id": process})])
        return Say(f"heard: {results[1]}")

    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.answering(answer)
        await client.say("run it and wait")
        (text,) = [text for role, text in await client.transcript() if role == "assistant" and text]
        assert "ended with exit code 7" in text
        assert await client.application.store.read(lambda tx: tx.completions.waiting()) == []
        assert len(server.received) == 3
