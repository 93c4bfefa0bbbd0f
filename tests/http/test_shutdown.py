"""Shutdown of a server: running requests may finish, and interrupted clients get an error."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.api.server_process import PATIENCE, Server, client, follow, serving
from tests.app.program_with_model import scripted_program

from talaria.testing.model_server import ModelServer, Received, Say
from talaria.testing.wait import until

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SESSION = "x-talaria-session-id"
_SLOW = Say("and so on " * 1000, pause=0.05)
_NO_DRAIN = "[gateway]\ndrain_seconds = 0.0\n"
_LONG_DRAIN = "[gateway]\ndrain_seconds = 3600.0\n"


def _request_body(path: str, text: str = "Go.", *, stream: bool) -> dict[str, object]:
    body: dict[str, object] = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"input": text}
    return {**body, "stream": stream}


def _read_events(answer: httpx.Response) -> list[Any]:
    """Return the events of a stream."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else msgspec.json.decode(line) for line in lines]


async def _interrupt(server: Server) -> list[str]:
    """Interrupt the server and return its error output."""
    assert server.process is not None
    assert server.process.stderr is not None
    os.kill(server.process.pid, signal.SIGINT)
    async with asyncio.timeout(PATIENCE):
        logged = await server.process.stderr.read()
        assert await server.process.wait() == 0
    return logged.decode().splitlines()


async def _are_running(http: httpx.AsyncClient, number: int) -> bool:
    """Return whether this number of other requests is running."""
    metrics = (await http.get("/metrics")).text.splitlines()
    return f"talaria_api_requests_running {number + 1}" in metrics


async def test_aborted_request_gets_an_error_in_its_own_format(tmp_path: Path, model: ModelServer) -> None:
    model.otherwise(_SLOW)
    requests = [(path, stream) for path in (CHAT, RESPONSES) for stream in (False, True)] * 2
    async with serving(scripted_program(tmp_path, model, _NO_DRAIN)) as server, client(server) as http:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(http.post(path, json=_request_body(path, stream=stream))) for path, stream in requests
            ]
            await model.arrived(len(requests))
            logged = await _interrupt(server)
        assert [line for line in logged if "Ctrl-C again" not in line] == []
        for (path, stream), task in zip(requests, tasks, strict=True):
            answer = task.result()
            if not stream:
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "ending")
            elif path == CHAT:
                *_, error, done = _read_events(answer)
                assert (error["error"]["code"], done) == ("ending", "[DONE]")
            else:
                last = _read_events(answer)[-1]
                assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
        model.answering(lambda received: Say(f"You said {received.question}.", chunks=1))
        await server.start()
        http.base_url = server.url  # the port may have changed
        named = {SESSION: tasks[1].result().headers[SESSION]}
        again = await http.post(CHAT, json=_request_body(CHAT, "And now?", stream=False), headers=named)
        assert again.json()["choices"][0]["message"]["content"] == "You said And now?."
    sent_texts = [one["content"] for one in model.received[-1].json["messages"][1:]]
    assert sent_texts == ["Go.", "You said Go..", "And now?"]


async def test_second_interrupt_ends_the_server_without_draining(tmp_path: Path, model: ModelServer) -> None:
    model.otherwise(_SLOW)
    async with serving(scripted_program(tmp_path, model, _LONG_DRAIN)) as server, client(server) as http:
        assert server.process is not None
        assert server.process.stderr is not None
        async with asyncio.TaskGroup() as group:
            first = group.create_task(http.post(CHAT, json=_request_body(CHAT, stream=False)))
            run = (await http.post("/v1/runs", json={"input": "Go."})).json()
            following = group.create_task(follow(http, f"/v1/runs/{run['id']}/events"))
            await model.arrived(2)
            os.kill(server.process.pid, signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                assert b"3600 s" in await server.process.stderr.readline()
            late = await http.post(CHAT, json=_request_body(CHAT, stream=False))
            assert (late.status_code, late.json()["error"]["code"]) == (503, "ending")
            assert int(late.headers["retry-after"]) > 0
            assert await _interrupt(server) == []
        assert first.result().json()["error"]["code"] == "ending"
        assert "run.completed" not in [one.name for one in following.result()]


async def test_queued_requests_get_503_when_the_running_turn_is_aborted(tmp_path: Path, model: ModelServer) -> None:
    async with serving(scripted_program(tmp_path, model, _NO_DRAIN)) as server, client(server) as http:
        first = await http.post(CHAT, json=_request_body(CHAT, stream=False))
        named = {SESSION: first.headers[SESSION]}
        model.otherwise(_SLOW)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(http.post(CHAT, json=_request_body(CHAT, stream=True), headers=named))]
            await model.arrived(2)
            tasks += [
                group.create_task(http.post(CHAT, json=_request_body(CHAT, stream=stream), headers=named))
                for stream in (True, False)
            ]
            await until(lambda: _are_running(http, len(tasks)))
            await _interrupt(server)
        assert [task.result().status_code for task in tasks] == [200, 503, 503]
        assert {task.result().json()["error"]["code"] for task in tasks[1:]} == {"ending"}
        assert len(model.received) == 2


async def test_aborted_stream_is_not_stored_as_an_idempotent_reply(tmp_path: Path, model: ModelServer) -> None:
    model.script(_SLOW, _SLOW)
    bodies = {
        CHAT: _request_body(CHAT, stream=True),
        RESPONSES: {**_request_body(RESPONSES, stream=True), "background": True},
    }
    async with serving(scripted_program(tmp_path, model, _NO_DRAIN)) as server, client(server) as http:
        async with asyncio.TaskGroup() as group:
            for path, body in bodies.items():
                group.create_task(http.post(path, json=body, headers={"idempotency-key": path}))
            await model.arrived(2)
            await _interrupt(server)
        model.answering(_echo)
        await server.start()
        http.base_url = server.url
        for path, body in bodies.items():
            again = await http.post(path, json=body, headers={"idempotency-key": path})
            assert "You said Go." in again.text
            assert "idempotent-replayed" not in again.headers


def _echo(received: Received) -> Say:
    return Say(f"You said {received.question}", chunks=1)
