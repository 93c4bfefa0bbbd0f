"""The API that a gateway serves: conversations move from it to chats, and runs go on beside them."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.api.program import PATIENCE, Server, client, eventually, follow
from tests.app.program import Program
from tests.gateway.handing_over import OWNED
from tests.gateway.workers import worker, workplace

from talaria.core.addresses import Address
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


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
    """Run a gateway that serves the API as well, and give a client of that."""
    async with worker(program), client(Server(program, port, f"http://127.0.0.1:{port}")) as http:

        async def lives() -> bool:
            try:
                return (await http.get("/health")).status_code == httpx.codes.OK
            except httpx.TransportError:
                return False

        await eventually(lives)
        await network.until(lambda: network.receivers == 1, seconds=PATIENCE)
        yield http


def _program(home: Path, model: ModelServer, network: LoopbackNetwork, port: int) -> Program:
    program = workplace(home, model, network, access=OWNED)
    config = home / "profiles" / "default" / "config.toml"
    config.write_text(f"{config.read_text()}[api]\nenabled = true\nport = {port}\n")
    return program


async def test_a_conversation_moves_from_the_api_to_a_chat(
    tmp_path: Path, model: ModelServer, network: LoopbackNetwork
) -> None:
    port = _free_port()
    async with _gateway(_program(tmp_path, model, network, port), network, port) as http:
        network.say("chat-1", "Hello")
        await network.until(lambda: len(network.shown("chat-1")) >= 1, seconds=PATIENCE)
        body = {"messages": [{"role": "user", "content": "Remember the number 7."}]}
        session = (await http.post("/v1/chat/completions", json=body)).headers["x-talaria-session-id"]
        moved = await http.post(f"/v1/sessions/{session}/move", json={"to": "loopback:chat-1"})
        assert moved.status_code == 200, moved.text
        assert moved.json()["handoff"] == "completed"
        platform, chat, *thread = moved.json()["place"].split(":")
        assert (platform, chat) == ("loopback", "chat-1")
        before = len(model.received)
        network.say(Address(platform, chat, "private", *thread) if thread else chat, "Which number?")
        async with asyncio.timeout(PATIENCE):
            await model.arrived(before + 1)
        assert "Remember the number 7." in str(model.received[-1].json["messages"])
        unknown = await http.post(f"/v1/sessions/{session}/move", json={"to": "telegram"})
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "to")


async def test_runs_and_chats_go_on_beside_each_other(
    tmp_path: Path, model: ModelServer, network: LoopbackNetwork
) -> None:
    later = {"command": "sleep 0.3; echo finished", "background": True, "notify_on_complete": True}
    port = _free_port()
    async with _gateway(_program(tmp_path, model, network, port), network, port) as http:
        model.script(Say(calls=[Ask("terminal", later)]), Say("Started."), Say("Finished."))
        run = (await http.post("/v1/runs", json={"input": "Go."})).json()
        heard = await follow(http, f"/v1/runs/{run['id']}/events")
        assert [one.data["text"] for one in heard if one.name == "message.completed"] == ["Started.", "Finished."]
        network.say("chat-1", "Hello")
        await network.until(lambda: network.shown("chat-1") == ["ok"], seconds=PATIENCE)
        assert network.posts
