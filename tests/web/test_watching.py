"""A chat of a network, watched from the web app in another process: follow, answer, take over, hand back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.server_process import PATIENCE, serving
from tests.app.program import Program
from tests.http.loopback_client import loopback_client
from tests.system.gateway_workers import gateway_program, worker
from tests.system.handoff_fixture import OWNED
from tests.web.web_client import OWN_HEADERS, events_until, stream, text_of

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.wait import until


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as one:
        yield one


async def _sign_in(program: Program, http: httpx.AsyncClient) -> None:
    link = (await asyncio.to_thread(program.run, "web", "--no-open")).out.strip()
    answer = await http.post("/web/login", json={"code": link.partition("#code=")[2]})
    assert answer.status_code == 200, answer.text


@asynccontextmanager
async def _gateway_and_web(program: Program) -> AsyncIterator[httpx.AsyncClient]:
    """Run a gateway and a web server, each in its own process, and sign in."""
    (program.home / "work").mkdir(exist_ok=True)
    async with (
        worker(program),
        serving(program) as server,
        loopback_client(server.url, timeout=PATIENCE, headers=OWN_HEADERS) as http,
    ):
        await _sign_in(program, http)
        yield http


async def _settled(http: httpx.AsyncClient, session: str, count: int) -> Any:
    async def is_settled() -> Any:
        detail = (await http.get(f"/web/sessions/{session}")).json()
        return detail if detail["message_count"] >= count and not detail["running"] else None

    return await until(is_settled)


async def _until_reply(messages: AsyncIterator[Any], text: str) -> None:
    """Wait for a reply; the previous one may be repeated if its process still had it when the stream was opened."""
    while text_of(await events_until(messages, "answered")) != text:
        pass


async def test_a_chat_is_followed_answered_taken_over_and_handed_back(
    tmp_path: Path, model: ModelServer, network: LoopbackNetwork
) -> None:
    resumed, asked = asyncio.Event(), asyncio.Event()

    async def answer(received: Received) -> Say:
        if received.question == "Wait.":
            asked.set()
            await resumed.wait()
        if received.question == "Clean up." and "rm -rf" not in str(received.json["messages"]):
            return Say(calls=[Ask("terminal", {"command": "rm -rf *"})])
        return Say(f"re: {received.question}")

    model.answering(answer)
    async with _gateway_and_web(gateway_program(tmp_path, model, network, access=OWNED)) as http:
        await network.until(lambda: network.receivers == 1)
        network.say("chat-1", "Hello")
        await network.until(lambda: "re: Hello" in network.shown("chat-1"))
        (row,) = (await http.get("/web/sessions")).json()["sessions"]
        session = row["id"]
        assert row["network"] == "loopback"
        detail = await _settled(http, session, 2)
        assert detail["elsewhere"] is True
        path = f"/web/sessions/{session}"
        async with stream(http, f"session:{session}") as messages:
            assert (await anext(messages))["topic"] == "hello"
            assert (await anext(messages))["events"] == []

            await http.post(f"{path}/messages", json={"text": "From here", "id": "m1"})
            await _until_reply(messages, "re: From here")
            await network.until(lambda: "re: From here" in network.shown("chat-1"))
            assert any("From the web app" in text for text in network.shown("chat-1"))

            network.say("chat-1", "Clean up.")
            events = await events_until(messages, "approval_asked")
            (question,) = [event for event in events if event["type"] == "approval_asked"]
            await http.post(f"{path}/answers/{question['id']}", json={"text": "no"})
            await events_until(messages, "answered")

            network.say("chat-1", "Wait.")
            await asked.wait()
            taken = (await http.post(f"{path}/take", json={})).json()
            assert (taken["network"], taken["taken_from"]) == ("", "Loopback")
            resumed.set()
            events = await events_until(messages, "answered")
            assert text_of(events) == "re: Wait."
            await network.until(lambda: any("moved to the web app" in text for text in network.shown("chat-1")))

            async def is_here() -> bool:
                return (await http.get(path)).json()["elsewhere"] is False

            await until(is_here)
            await http.post(f"{path}/messages", json={"text": "Here now", "id": "m2"})
            assert text_of(await events_until(messages, "answered")) == "re: Here now"
        await _settled(http, session, 10)
        assert not any("Here now" in text for text in network.shown("chat-1"))
        assert "re: Wait." not in network.shown("chat-1")
        back = await http.post(f"{path}/hand-back", json={})
        assert back.status_code == 200, back.text
        assert back.json()["network"] == "loopback"
        assert back.json()["taken_from"] == ""
