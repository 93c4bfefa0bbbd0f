"""A server killed in the middle of a turn: the session resumes, and no request gets another one's answer."""

import asyncio
from pathlib import Path

import httpx
import pytest
from tests.api.server_process import client, serving
from tests.app.program_with_model import scripted_program

from talaria.testing.model_server import ModelServer, Received, Say

CHAT = "/v1/chat/completions"
SESSION = "x-talaria-session-id"


def _asking(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "stream": True}


async def test_session_continues_after_a_server_kill(tmp_path: Path, model: ModelServer) -> None:
    model.script(Say("words " * 1000, pause=0.05))
    async with serving(scripted_program(tmp_path, model)) as server:
        named = {}

        async def ask_and_kill() -> None:
            async with client(server) as http, http.stream("POST", CHAT, json=_asking("the first")) as answer:
                named[SESSION] = answer.headers[SESSION]
                async for piece in answer.aiter_text():
                    if '"content":"words' in piece:
                        await server.kill()

        with pytest.raises(httpx.HTTPError):
            await ask_and_kill()
        model.answering(lambda received: Say(f"You said {received.question}.", chunks=1))
        await server.start()
        async with client(server) as http:
            again = await http.post(CHAT, json=_asking("the second"), headers=named)
    assert "You said the second." in again.text
    assert "the first" not in again.text
    texts = [one["content"] for one in model.received[-1].json["messages"][1:]]
    assert texts == ["the first", "You said the first.", "the second"]


async def test_parallel_clients_get_their_own_answers_after_a_server_kill(tmp_path: Path, model: ModelServer) -> None:
    def echo(received: Received) -> Say:
        return Say(f"You said {received.question}.", chunks=4, pause=0.01)

    model.answering(echo)

    async def ask(http: httpx.AsyncClient, word: str) -> str:
        try:
            answer = await http.post(CHAT, json={"messages": [{"role": "user", "content": word}]})
            content: str = answer.json()["choices"][0]["message"]["content"]
        except httpx.HTTPError:
            return "cut off"
        return content

    async with serving(scripted_program(tmp_path, model)) as server:
        async with client(server) as http, asyncio.TaskGroup() as group:
            before = [group.create_task(ask(http, f"a{number}")) for number in range(16)]
            await model.arrived(8)
            await server.kill()
        await server.start()
        async with client(server) as http:
            after = await asyncio.gather(*(ask(http, f"b{number}") for number in range(16)))
    assert all(one.result() in {"cut off", f"You said a{number}."} for number, one in enumerate(before))
    assert after == [f"You said b{number}." for number in range(16)]
