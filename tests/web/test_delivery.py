"""The web app as an address: handoffs both ways, job results and messages of scripts, and a server that is killed."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.server_process import PATIENCE, Server, serving
from tests.app.program import Program
from tests.app.program_with_model import scripted_program, talk
from tests.system.gateway_workers import gateway_program, worker
from tests.system.handoff_fixture import GREETING, OWNED, answer
from tests.web.web_client import OWN_HEADERS, stream

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Received, Say
from talaria.testing.wait import until


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as one:
        yield one


@asynccontextmanager
async def _browser(program: Program, server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, trust_env=False, headers=OWN_HEADERS) as http:
        link = (await asyncio.to_thread(program.run, "web", "--no-open")).out.strip()
        signed_in = await http.post("/web/login", json={"code": link.partition("#code=")[2]})
        assert signed_in.status_code == 200, signed_in.text
        yield http


async def _rows(http: httpx.AsyncClient) -> list[Any]:
    return list((await http.get("/web/sessions")).json()["sessions"])


async def _texts(http: httpx.AsyncClient, session: str) -> list[str]:
    page = (await http.get(f"/web/sessions/{session}/messages")).json()
    return [part["text"] for one in page["messages"] for part in one["parts"] if part["type"] == "text"]


def _has(http: httpx.AsyncClient, session: str, text: str) -> Callable[[], Awaitable[bool]]:
    async def has_text() -> bool:
        return text in await _texts(http, session)

    return has_text


@asynccontextmanager
async def _served(
    tmp_path: Path, model: ModelServer, network: LoopbackNetwork
) -> AsyncIterator[tuple[Program, Server, httpx.AsyncClient]]:
    """Run a gateway that is connected, and a server with a signed-in browser."""
    program = gateway_program(tmp_path, model, network, access=OWNED)
    (program.home / "work").mkdir(exist_ok=True)
    async with worker(program), serving(program) as server, _browser(program, server) as http:
        await network.until(lambda: network.receivers == 1)
        yield program, server, http


async def _say_hello(network: LoopbackNetwork, http: httpx.AsyncClient) -> str:
    """Start a session in a chat, and return its id."""
    network.say("chat-1", "Hello")
    await network.until(lambda: "re: Hello" in network.shown("chat-1"))
    (session,) = await _rows(http)
    return str(session["id"])


async def test_a_chat_moves_to_the_web_app_and_back(
    tmp_path: Path, model: ModelServer, network: LoopbackNetwork
) -> None:
    model.answering(answer)
    async with _served(tmp_path, model, network) as (_, _, http):
        session = await _say_hello(network, http)
        network.say("chat-1", "/move web")
        await network.until(lambda: any("moved to the web app" in text for text in network.shown("chat-1")))
        await until(_has(http, session, GREETING))
        detail = (await http.get(f"/web/sessions/{session}")).json()
        assert (detail["network"], detail["elsewhere"]) == ("", False)
        assert GREETING not in network.shown("chat-1")

        async def is_unread() -> bool:
            return [one["unread"] for one in await _rows(http) if one["id"] == session] == [1]

        await until(is_unread)
        await http.post(f"/web/sessions/{session}/messages", json={"text": "From here", "id": "m1"})
        await until(_has(http, session, "re: From here"))

        async def moves_back() -> bool:
            moved = await http.post(f"/web/sessions/{session}/commands", json={"text": "/move loopback:chat-1"})
            return moved.status_code == 200

        await until(moves_back)  # refused while the turn has not quite ended
        await network.until(lambda: any(one.text == GREETING for one in network.records))
        assert (await http.get(f"/web/sessions/{session}")).json()["network"] == "loopback"


async def test_a_job_delivers_to_the_web_app(tmp_path: Path, model: ModelServer, network: LoopbackNetwork) -> None:
    model.otherwise(Say("It rains."))
    async with (
        _served(tmp_path, model, network) as (program, _, http),
        stream(http, "sessions", "seen:app") as messages,
    ):
        added = await talk(program, "cron", "add", "in 1s", "Weather?", "--name", "Weather", "--deliver", "web")
        assert added.code == 0, added.err
        async for message in messages:
            if message["topic"] == "notice":
                break
        assert (message["kind"], message["text"]) == ("delivered", "It rains.")
        session = message["session"]
        assert await _texts(http, session) == ["It rains."]
        page = (await http.get(f"/web/sessions/{session}/messages")).json()
        assert page["messages"][0]["author"] == "Agent, from the job “Weather”"
        assert page["notices"] == []
        assert [one["unread"] for one in await _rows(http) if one["id"] == session] == [1]
        await http.put("/web/stream/s1", json={"topics": ["sessions", f"session:{session}", f"seen:{session}"]})
        assert (await http.get(f"/web/sessions/{session}")).json()["unread"] == 0


async def test_killed_web_server_loses_and_repeats_no_message(
    tmp_path: Path, model: ModelServer, network: LoopbackNetwork
) -> None:
    asked, killed = asyncio.Event(), asyncio.Event()

    async def hold(received: Received) -> Say:
        reply = answer(received)
        if reply.text == GREETING and not killed.is_set():
            asked.set()
            await killed.wait()
        return reply

    model.answering(hold)
    async with _served(tmp_path, model, network) as (program, server, http):
        session = await _say_hello(network, http)
        network.say("chat-1", "/move web")
        await asked.wait()
        await server.kill()
        killed.set()
        sent = await talk(program, "send", "web", "While you were away")
        assert "The web app isn't running" in sent.err
        await server.start()
        await until(_has(http, session, GREETING))

        async def find_delivered() -> Any:
            return next((one for one in await _rows(http) if one["unread"] and one["id"] != session), None)

        delivered = await until(find_delivered)
        assert await _texts(http, delivered["id"]) == ["While you were away"]
        assert delivered["unread"] == 1
        assert (await _texts(http, session)).count(GREETING) == 1


async def test_terminal_session_moves_to_the_web_app_without_a_gateway(tmp_path: Path, model: ModelServer) -> None:
    model.answering(answer)
    program = scripted_program(tmp_path, model)
    assert (await talk(program, "chat", "-q", "Hello")).code == 0
    (listed,) = json.loads((await talk(program, "sessions", "list", "--json")).out)
    session = listed["id"]
    refused = await talk(program, "sessions", "move", session, "web")
    assert "The web app isn't running. Start it with `talaria web`." in refused.err
    async with serving(program) as server, _browser(program, server) as http:
        moved = await talk(program, "sessions", "move", session, "web")
        assert moved.code == 0, moved.err
        assert "has moved to the web app." in moved.out
        await until(_has(http, session, GREETING))
