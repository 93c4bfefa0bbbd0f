"""Turns that clients wait for: stopped on disconnect, run one after the other, without later notifications."""

import asyncio
import gc
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from tests.api.in_process_server import Hosted, hosted
from tests.contracts.session_leases import claim_session_lease

from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.runtime.runner import SessionRunner
from talaria.runtime.turns import LEASE, make_arrival
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.wait import until

HI = {"messages": [{"role": "user", "content": "hi"}]}
STREAM = {**HI, "stream": True}
CHAT = "/v1/chat/completions"
SESSION = "x-talaria-session-id"


async def _until_stopped(host: Hosted, count: int = 1) -> None:
    """Wait until ``count`` turns have ended as stopped, and none runs."""

    def are_stopped(tx: Transaction) -> bool:
        return [turn.state for turn in tx.turns.find()] == ["stopped"] * count

    await until(lambda: host.application.store.read(are_stopped))


async def test_disconnected_client_stops_its_turn(host: Hosted, model: ModelServer) -> None:
    model.otherwise(Say("words " * 1000, pause=0.5))
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(host.http.post(CHAT, json=HI))
        await model.arrived()
        asking.cancel()
    await model.gone()
    await _until_stopped(host)


async def test_closed_stream_stops_its_turn(host: Hosted, model: ModelServer) -> None:
    model.otherwise(Say("words " * 1000, pause=0.05))
    async with host.http.stream("POST", CHAT, json=STREAM) as answer:
        async for piece in answer.aiter_text():
            if '"content":"words' in piece:
                break
    await model.gone()
    await _until_stopped(host)


async def test_session_continues_after_its_client_disconnected(host: Hosted, model: ModelServer) -> None:
    model.script(Say("words " * 1000, pause=0.05))
    async with host.http.stream("POST", CHAT, json=STREAM) as answer:
        named = {SESSION: answer.headers[SESSION]}
        async for piece in answer.aiter_text():
            if '"content":"words' in piece:
                break
    again = await host.http.post(CHAT, json=HI, headers=named)
    assert again.json()["choices"][0]["message"]["content"] == "ok"


async def test_deleted_session_leaves_no_reference_cycle(host: Hosted) -> None:
    named = (await host.http.post(CHAT, json=HI)).headers[SESSION]

    def is_left() -> bool:
        return any(type(one) is SessionRunner and one.session_id == named for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        assert is_left()
        await host.http.delete(f"/v1/sessions/{named}")
        await until(lambda: not is_left())
    finally:
        gc.enable()


async def test_parallel_requests_in_one_session_are_answered_one_after_the_other(
    host: Hosted, model: ModelServer
) -> None:
    named = {SESSION: (await host.http.post(CHAT, json=HI)).headers[SESSION]}

    def echo(received: Received) -> Say:
        return Say(f"You said {received.question}.", chunks=3, pause=0.02)

    model.answering(echo)

    async def say(word: str) -> str:
        body = {"messages": [{"role": "user", "content": word}]}
        answer = await host.http.post(CHAT, json=body, headers=named)
        content: str = answer.json()["choices"][0]["message"]["content"]
        return content

    words = [f"w{number}" for number in range(8)]
    assert await asyncio.gather(*map(say, words)) == [f"You said {word}." for word in words]
    stored = await host.application.store.read(lambda tx: tx.messages.load(SessionId(named[SESSION])))
    assert [one.message.role for one in stored] == ["user", "assistant"] * 9


async def test_session_leased_by_another_worker_is_a_conflict(host: Hosted) -> None:
    named = {SESSION: (await host.http.post(CHAT, json=HI)).headers[SESSION]}
    session_id = SessionId(named[SESSION])

    async def claim_session() -> bool:
        claim = await host.application.store.write(lambda tx: claim_session_lease(tx, LEASE * 10, session_id))
        return claim is not None

    await until(claim_session)
    answer = await host.http.post(CHAT, json=HI, headers=named)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    pending = await host.application.store.read(lambda tx: tx.inbox.list_unsettled(session_id))
    assert pending == []


async def test_plain_request_has_no_late_notifications_and_no_approvals(
    tmp_path: Path, model: ModelServer, host: Hosted
) -> None:
    call = Ask("terminal", {"command": "sleep 0.1", "background": True, "notify_on_complete": True}, id="c1")
    danger = Ask("terminal", {"command": "rm -rf ."}, id="c2")
    model.script(Say(calls=[call]), Say(calls=[danger]), Say("Done."))
    answer = await host.http.post(CHAT, json=HI)
    assert answer.json()["choices"][0]["message"]["content"] == "Done."
    results = {
        one["tool_call_id"]: one["content"] for one in model.received[-1].json["messages"] if one["role"] == "tool"
    }
    assert "poll" in results["c1"].lower()
    assert "not allowed" in results["c2"].lower() or "nobody" in results["c2"].lower(), results["c2"]


async def test_silent_stream_sends_keep_alives(tmp_path: Path, model: ModelServer) -> None:
    released = asyncio.Event()

    async def wait(_: object) -> Say:
        await released.wait()
        return Say("At last.")

    model.answering(wait)
    received = ""
    settings = "[api]\nheartbeat_seconds = 0.05\n"
    async with hosted(tmp_path, model, settings) as host, host.http.stream("POST", CHAT, json=STREAM) as answer:
        async for piece in answer.aiter_text():
            received += piece
            if received.count(": still here\n\n") > 2:
                released.set()
    assert received.endswith("data: [DONE]\n\n")
    lines = [line for line in received.splitlines() if line.startswith("data: {")]
    assert "At last." in "".join(
        msgspec.json.decode(one[6:])["choices"][0]["delta"].get("content", "") for one in lines
    )


async def test_client_that_reads_nothing_counts_as_disconnected(tmp_path: Path, model: ModelServer) -> None:
    model.otherwise(Say("\x01" * 900_000, chunks=200, pause=0.01))  # six times as long as JSON
    async with hosted(tmp_path, model, "[api]\nstall_seconds = 0.2\n") as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", host.port, limit=1024)
        body = msgspec.json.encode(STREAM)
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {host.key}\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await reader.read(10)
        await model.gone()
        await _until_stopped(host)
        writer.close()


async def test_pending_message_is_answered_before_the_next_one(host: Hosted, model: ModelServer) -> None:
    named = {SESSION: (await host.http.post(CHAT, json=HI)).headers[SESSION]}
    message = Message(role="user", parts=(Text("left behind"),), at=datetime.now(UTC))
    left = make_arrival(SessionId(named[SESSION]), "api", "left", message)
    await host.application.store.write(lambda tx: tx.inbox.add(left))
    model.answering(lambda received: Say(f"You said {received.question}."))
    answer = await host.http.post(CHAT, json=HI, headers=named)
    assert answer.json()["choices"][0]["message"]["content"] == "You said hi."
    stored = await host.application.store.read(lambda tx: tx.messages.load(SessionId(named[SESSION])))
    assert [one.message.text for one in stored[2:]] == ["left behind", "You said left behind.", "hi", "You said hi."]
