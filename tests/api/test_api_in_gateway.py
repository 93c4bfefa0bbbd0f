"""The API served by a gateway: sessions move from it to chats, and runs continue in parallel."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.api.server_process import PATIENCE, Server, client, follow
from tests.app.program import Program
from tests.system.gateway_workers import gateway_program, worker
from tests.system.handoff_fixture import OWNED

from talaria.core.addresses import Address
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.system_servers import free_port
from talaria.testing.wait import until


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as one:
        yield one


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as one:
        yield one


@asynccontextmanager
async def _gateway(program: Program, network: LoopbackNetwork, port: int) -> AsyncIterator[httpx.AsyncClient]:
    """Run a gateway that serves the API too, and yield a client of the API."""
    server = Server(program, port, f"http://127.0.0.1:{port}")
    async with worker(program), client(server, key="") as http:

        async def is_healthy() -> bool:
            try:
                return (await http.get("/health")).status_code == httpx.codes.OK
            except httpx.TransportError:
                return False

        await until(is_healthy)
        http.headers["authorization"] = f"Bearer {server.key}"
        await network.until(lambda: network.receivers == 1)
        yield http


def _program(home: Path, model: ModelServer, network: LoopbackNetwork, port: int) -> Program:
    program = gateway_program(home, model, network, access=OWNED)
    config = home / "profiles" / "default" / "config.toml"
    config.write_text(f"{config.read_text()}[api]\nenabled = true\nport = {port}\n")
    return program


async def test_session_moves_from_the_api_to_a_chat(
    tmp_path: Path, model: ModelServer, network: LoopbackNetwork
) -> None:
    port = free_port()
    async with _gateway(_program(tmp_path, model, network, port), network, port) as http:
        network.say("chat-1", "Hello")
        await network.until(lambda: len(network.shown("chat-1")) >= 1)
        body = {"messages": [{"role": "user", "content": "Remember the number 7."}]}
        session = (await http.post("/v1/chat/completions", json=body)).headers["x-talaria-session-id"]
        moved = await http.post(f"/v1/sessions/{session}/move", json={"to": "loopback:chat-1"})
        assert moved.status_code == 200, moved.text
        assert moved.json()["handoff"] == "completed"
        platform, chat, *thread = moved.json()["address"].split(":")
        assert (platform, chat) == ("loopback", "chat-1")
        before = len(model.received)
        network.say(Address(platform, chat, "private", *thread) if thread else chat, "Which number?")
        async with asyncio.timeout(PATIENCE):
            await model.arrived(before + 1)
        assert "Remember the number 7." in str(model.received[-1].json["messages"])
        unknown = await http.post(f"/v1/sessions/{session}/move", json={"to": "telegram"})
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "to")


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/chat/completions", "/v1/responses"])
async def test_session_moves_to_a_chat_in_the_middle_of_a_turn(
    tmp_path: Path, model: ModelServer, network: LoopbackNetwork, path: str
) -> None:
    port, resumed, asked = free_port(), asyncio.Event(), asyncio.Event()

    async def answer(received: Received) -> Say:
        if received.question == "Go.":
            asked.set()
            await resumed.wait()
        return Say(f"re: {received.question}")

    model.answering(answer)
    async with _gateway(_program(tmp_path, model, network, port), network, port) as http, asyncio.TaskGroup() as group:
        network.say("chat-1", "Hello")
        await network.until(lambda: len(network.shown("chat-1")) >= 1)
        body = {"input": "Go.", "messages": [{"role": "user", "content": "Go."}]}
        asking = group.create_task(http.post(path, json=body))
        await asked.wait()
        (session,) = (await http.get("/v1/sessions", params={"source": "api"})).json()["data"]
        path_of_move = f"/v1/sessions/{session['id']}/move"
        busy = await http.post(path_of_move, json={"to": "loopback:chat-1"})
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "busy")
        moved = (await http.post(path_of_move, json={"to": "loopback:chat-1", "now": True})).json()
        assert (moved["handoff"], moved["running"]) == ("completed", True)
        _, chat, *thread = moved["address"].split(":")
        there = Address("loopback", chat, "private", *thread)
        resumed.set()
        await network.until(lambda: "re: Go." in network.shown(chat, *thread))
        answered = await asking
        assert answered.is_success
        if path == "/v1/runs":
            events = await follow(http, f"/v1/runs/{answered.json()['id']}/events")
            assert events[-1].data == {"type": "run.completed", "text": "re: Go."}
        else:
            assert "re: Go." in answered.text
        network.say(there, "And now?")
        await network.until(lambda: network.shown(chat, *thread)[-1] == "re: And now?")
        assert network.shown(chat, *thread).count("re: Go.") == 1
        named = {"x-talaria-session-id": session["id"]}

        async def continues_here() -> bool:
            again = await http.post("/v1/responses", json={"input": "Here too."}, headers=named)
            return again.is_success  # else the gateway has not released the session yet

        await until(continues_here)
    texts = [one["content"] for one in model.received[-1].json["messages"] if one["role"] == "user"]
    assert texts == ["Go.", "And now?", "Here too."]


async def test_runs_and_chats_are_served_in_parallel(
    tmp_path: Path, model: ModelServer, network: LoopbackNetwork
) -> None:
    later = {"command": "sleep 0.3; echo finished", "background": True, "notify_on_complete": True}
    port = free_port()
    async with _gateway(_program(tmp_path, model, network, port), network, port) as http:
        model.script(Say(calls=[Ask("terminal", later)]), Say("Started."), Say("Finished."))
        run = (await http.post("/v1/runs", json={"input": "Go."})).json()
        events = await follow(http, f"/v1/runs/{run['id']}/events")
        assert [one.data["text"] for one in events if one.name == "message.completed"] == ["Started.", "Finished."]
        network.say("chat-1", "Hello")
        await network.until(lambda: network.shown("chat-1") == ["ok"])
        assert network.posts
