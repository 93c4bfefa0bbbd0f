"""Repeated requests with an idempotency key get the first answer: from any server, also after a kill."""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec
import pytest
from tests.api.in_process_server import Hosted, hosted
from tests.api.server_process import client, serving
from tests.app.program_with_model import scripted_program
from tests.contracts.session_leases import claim_session_lease

from talaria.contracts.stores.queues import SessionClaim
from talaria.core.ids import SessionId
from talaria.runtime.turns import LEASE
from talaria.testing.model_server import ModelServer, Say, bad_key
from talaria.testing.wait import until

HI = {"messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"
KEY = {"idempotency-key": "the first of May"}


async def _hold_model(model: ModelServer) -> asyncio.Event:
    """Let the model wait until the returned event is set."""
    released = asyncio.Event()

    async def wait(_: object) -> Say:
        await released.wait()
        return Say("At last.", chunks=1)

    model.answering(wait)
    return released


async def _until_answered(host: Hosted, body: bytes) -> httpx.Response:
    """Repeat the request until the first answer is available."""

    async def ask() -> httpx.Response | None:
        answer = await host.http.post(CHAT, content=body, headers=KEY)
        return answer if answer.status_code != httpx.codes.CONFLICT else None

    answer: httpx.Response = await until(ask)
    return answer


@pytest.mark.parametrize("stream", [False, True])
async def test_repeated_request_gets_the_first_answer(host: Hosted, model: ModelServer, *, stream: bool) -> None:
    body = {**HI, "stream": stream}
    first = await host.http.post(CHAT, json=body, headers=KEY)
    again = await host.http.post(CHAT, json=body, headers=KEY)
    assert first.status_code == again.status_code == 200
    assert again.content == first.content
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["x-talaria-session-id"] == first.headers["x-talaria-session-id"]
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    assert len(model.received) == 1


async def test_one_of_many_parallel_requests_to_two_servers_is_answered(
    pair: Sequence[httpx.AsyncClient], model: ModelServer
) -> None:
    released = await _hold_model(model)
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(pair[number % 2].post(CHAT, json=HI, headers=KEY)) for number in range(6)]
        while sum(task.done() for task in asked) < 5:
            await asyncio.wait([task for task in asked if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        released.set()
    (first,) = (task.result() for task in asked if task.result().status_code == 200)
    codes = {task.result().json()["error"]["code"] for task in asked if task.result() is not first}
    assert (codes, len(model.received)) == ({"in_progress"}, 1)
    for http in pair:
        assert (await http.post(CHAT, json=HI, headers=KEY)).content == first.content
    assert len(model.received) == 1


async def test_request_with_another_key_is_answered_separately(host: Hosted, model: ModelServer) -> None:
    await host.http.post(CHAT, json=HI, headers=KEY)
    await host.http.post(CHAT, json=HI, headers={"idempotency-key": "another"})
    await host.http.post(CHAT, json=HI)
    assert len(model.received) == 3


async def test_reused_or_invalid_idempotency_key_is_refused(host: Hosted) -> None:
    await host.http.post(CHAT, json=HI, headers=KEY)
    other = await host.http.post(CHAT, json={"messages": [{"role": "user", "content": "bye"}]}, headers=KEY)
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    for bad in ("", "k" * 300):
        answer = await host.http.post(CHAT, json=HI, headers={"idempotency-key": bad})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_idempotency_key")


async def test_repeated_request_gets_the_first_error(host: Hosted, model: ModelServer) -> None:
    model.otherwise(bad_key())
    first = await host.http.post(CHAT, json=HI, headers=KEY)
    asked = len(model.received)
    again = await host.http.post(CHAT, json=HI, headers=KEY)
    assert first.status_code == again.status_code == 502
    assert again.json() == first.json()
    assert len(model.received) == asked


async def test_retryable_error_does_not_use_up_the_key(host: Hosted, model: ModelServer) -> None:
    named = {"x-talaria-session-id": (await host.http.post(CHAT, json=HI)).headers["x-talaria-session-id"]}
    session_id = SessionId(named["x-talaria-session-id"])

    async def claim_session() -> SessionClaim | None:
        return await host.application.store.write(lambda tx: claim_session_lease(tx, LEASE * 10, session_id))

    claim = await until(claim_session)
    busy = await host.http.post(CHAT, json=HI, headers=KEY | named)
    assert busy.status_code == 409
    await host.application.store.write(lambda tx: tx.leases.release(claim.lease))
    again = await host.http.post(CHAT, json=HI, headers=KEY | named)
    assert (again.status_code, len(model.received)) == (200, 2)


async def test_a_repeated_request_is_rejected_while_the_first_is_running(host: Hosted, model: ModelServer) -> None:
    released = await _hold_model(model)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(host.http.post(CHAT, json=HI, headers=KEY))
        await model.arrived()
        early = await host.http.post(CHAT, json=HI, headers=KEY)
        assert (early.status_code, early.json()["error"]["code"]) == (409, "in_progress")
        assert int(early.headers["retry-after"]) > 0
        released.set()
    again = await host.http.post(CHAT, json=HI, headers=KEY)
    assert again.content == first.result().content


@pytest.mark.parametrize("stream", [False, True])
async def test_disconnected_client_can_fetch_the_answer_later(
    host: Hosted, model: ModelServer, *, stream: bool
) -> None:
    released, body = await _hold_model(model), {**HI, "stream": stream}
    async with asyncio.TaskGroup() as group:
        first = group.create_task(host.http.post(CHAT, content=msgspec.json.encode(body), headers=KEY))
        await model.arrived()
        first.cancel()
    released.set()
    answer = await _until_answered(host, msgspec.json.encode(body))
    assert "At last." in answer.text
    assert len(model.received) == 1


async def test_a_turn_finishes_when_its_client_reads_nothing(tmp_path: Path, model: ModelServer) -> None:
    model.script(Say("\x01" * 900_000, chunks=100, pause=0.02))  # as JSON, more than the buffers of two sockets
    body = msgspec.json.encode({**HI, "stream": True})
    async with hosted(tmp_path, model, "[api]\nstall_seconds = 0.1\nheartbeat_seconds = 0.02\n") as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", host.port, limit=1024)
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {host.key}\r\n"
        head += f"idempotency-key: {KEY['idempotency-key']}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await reader.read(10)
        answer = await _until_answered(host, body)
        writer.close()
    assert answer.json()["error"]["code"] == "answer_not_kept"  # so the turn was finished
    assert len(model.received) == 1


async def test_a_turn_finishes_when_its_client_reads_nothing_and_the_model_pauses(
    tmp_path: Path, model: ModelServer
) -> None:
    """The server drops the client while it sends a keep-alive, and must remember that for the next piece."""
    text = "\x01" * 500_000  # half of it, as JSON, is more than the buffers of the two sockets
    model.script(Say(text, chunks=2, pause=1.0))
    body = msgspec.json.encode({**HI, "stream": True})
    async with hosted(tmp_path, model, "[api]\nstall_seconds = 0.1\nheartbeat_seconds = 0.02\n") as host:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", host.port))
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {host.key}\r\n"
        head += f"idempotency-key: {KEY['idempotency-key']}\r\n"
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await model.arrived()
        answer = await _until_answered(host, body)
        connection.close()
    assert answer.text.count("\\u0001") == len(text)
    assert len(model.received) == 1


async def test_an_answer_too_long_to_store_is_reported_as_such(host: Hosted, model: ModelServer) -> None:
    model.script(Say("\x01" * 900_000, chunks=10))  # six times as long as JSON
    first = await host.http.post(CHAT, json=HI, headers=KEY)
    again = await host.http.post(CHAT, json=HI, headers=KEY)
    assert (first.status_code, again.status_code) == (200, 500)
    assert again.json()["error"] == {
        "message": "The first answer was too long to store.",
        "type": "server_error",
        "param": None,
        "code": "answer_not_kept",
    }
    assert again.headers["x-should-retry"] == "false"
    assert len(model.received) == 1


async def test_answer_is_preserved_after_a_server_kill(tmp_path: Path, model: ModelServer) -> None:
    async with serving(scripted_program(tmp_path, model)) as server:
        async with client(server) as http:
            first = await http.post(CHAT, json=HI, headers=KEY)
        await server.kill()
        await server.start()
        async with client(server) as http:
            again = await http.post(CHAT, json=HI, headers=KEY)
    assert again.content == first.content
    assert len(model.received) == 1


async def test_request_interrupted_by_a_server_kill_can_be_repeated(tmp_path: Path, model: ModelServer) -> None:
    released = await _hold_model(model)
    async with serving(scripted_program(tmp_path, model)) as server:
        async with client(server) as http, asyncio.TaskGroup() as group:

            async def expect_disconnect() -> None:
                with pytest.raises(httpx.HTTPError):
                    await http.post(CHAT, json=HI, headers=KEY)

            group.create_task(expect_disconnect())
            await model.arrived()
            await server.kill()
        released.set()
        await server.start()
        async with client(server) as http:
            answer = await http.post(CHAT, json=HI, headers=KEY)
    assert answer.json()["choices"][0]["message"]["content"] == "At last."
    assert len(model.received) == 2
