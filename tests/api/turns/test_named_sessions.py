"""Sessions that clients name: created once, even by parallel requests to several servers."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.server_process import client, serving
from tests.app.program_with_model import scripted_program

from talaria.testing.model_server import ModelServer, Received, Say
from talaria.testing.wait import until

SESSION = "x-talaria-session-id"


def _echo(received: Received) -> Say:
    return Say(f"You said {received.question}.", chunks=3, pause=0.01)


async def _ask(http: httpx.AsyncClient, text: str, **more: Any) -> httpx.Response:
    return await http.post("/v1/responses", json={"input": text, "conversation": "ours", **more})


async def _messages(http: httpx.AsyncClient, answers: Sequence[httpx.Response]) -> list[str]:
    """Return the messages of the one session that all the answers belong to."""
    (session,) = {answer.headers[SESSION] for answer in answers}
    assert [one["id"] for one in (await http.get("/v1/sessions")).json()["data"]] == [session]
    return [one["text"] for one in (await http.get(f"/v1/sessions/{session}/messages")).json()["data"]]


def _check(messages: list[str], texts: Sequence[str]) -> None:
    """Check that each message was answered separately, once."""
    assert sorted(messages[::2]) == sorted(texts)
    assert messages[1::2] == [f"You said {one}." for one in messages[::2]]


async def test_parallel_requests_with_a_new_name_share_one_session(
    pair: Sequence[httpx.AsyncClient], model: ModelServer
) -> None:
    model.answering(_echo)
    texts = [f"w{number}" for number in range(8)]
    asking = [_ask(pair[number % 2], word, stream=number % 4 > 1) for number, word in enumerate(texts)]
    answers = await asyncio.gather(*asking)
    assert [answer.status_code for answer in answers] == [200] * 8, [answer.text for answer in answers]
    _check(await _messages(pair[0], answers), texts)
    for word, answer in zip(texts, answers, strict=True):
        assert f"You said {word}." in answer.text


@pytest.mark.one_engine
async def test_background_responses_with_a_new_name_share_one_session(
    pair: Sequence[httpx.AsyncClient], model: ModelServer
) -> None:
    model.answering(_echo)
    texts = [f"w{number}" for number in range(8)]
    answers = await asyncio.gather(
        *(_ask(pair[number % 2], word, background=True) for number, word in enumerate(texts))
    )
    assert [answer.status_code for answer in answers] == [200] * 8, [answer.text for answer in answers]

    async def all_are_done() -> list[str]:
        messages = await _messages(pair[0], answers)
        return messages if len(messages) == 2 * len(texts) else []

    _check(await until(all_are_done), texts)


async def test_name_of_a_deleted_session_can_be_used_again(http: httpx.AsyncClient, model: ModelServer) -> None:
    first = await _ask(http, "One")
    assert (await http.delete(f"/v1/sessions/{first.headers[SESSION]}")).status_code == 200
    second = await _ask(http, "Two")
    third = await _ask(http, "Three")
    assert first.headers[SESSION] != second.headers[SESSION] == third.headers[SESSION]
    assert [one["content"] for one in model.received[-1].json["messages"][1:]] == ["Two", "ok", "Three"]


async def test_name_remains_when_its_responses_are_deleted(http: httpx.AsyncClient) -> None:
    first = await _ask(http, "One")
    assert (await http.delete(f"/v1/responses/{first.json()['id']}")).status_code == 200
    assert (await _ask(http, "Two")).headers[SESSION] == first.headers[SESSION]


async def test_a_long_name_is_refused(http: httpx.AsyncClient) -> None:
    refused = await http.post("/v1/responses", json={"input": "One", "conversation": "x" * 600})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "conversation")


@pytest.mark.one_engine
async def test_server_shutdown_does_not_wait_for_a_turn_of_another_server(
    tmp_path: Path, model: ModelServer, store_settings: str
) -> None:
    model.script(Say("and so on " * 1000, pause=0.05))
    program = scripted_program(tmp_path, model, f"{store_settings}[gateway]\ndrain_seconds = 0.0\n")
    async with serving(program) as one, serving(program) as other, client(one) as first, client(other) as second:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(_ask(first, "One"))
            await model.arrived()
            pending = group.create_task(_ask(second, "Two"))
            await until(lambda: _is_asked(second))
            assert await other.end() == 0
            assert (pending.result().status_code, pending.result().json()["error"]["code"]) == (503, "ending")
            assert await one.end() == 0
        assert running.result().json()["error"]["code"] == "ending"
        assert len(model.received) == 1


async def _is_asked(http: httpx.AsyncClient) -> bool:
    """Return whether another client's request is running at the same time."""
    return "talaria_api_requests_running 2" in (await http.get("/metrics")).text.splitlines()
