"""The API on both engines: an answer, a continued session, a repeated request, unusual text."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.api.in_process_server import Hosted, hosted

from talaria.testing.model_server import ModelServer

CHAT = "/v1/chat/completions"


def _asking(text: str, *, stream: bool = False) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "stream": stream}


@pytest.fixture
async def host(tmp_path: Path, model: ModelServer, store_settings: str) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path, model, store_settings) as served:
        yield served


async def test_named_session_continues(host: Hosted, model: ModelServer) -> None:
    first = await host.http.post(CHAT, json=_asking("one"))
    named = {"x-talaria-session-id": first.headers["x-talaria-session-id"]}
    await host.http.post(CHAT, json=_asking("two", stream=True), headers=named)
    texts = [one["content"] for one in model.received[-1].json["messages"][1:]]
    assert texts == ["one", "ok", "two"]


async def test_repeated_request_is_answered_once(host: Hosted, model: ModelServer) -> None:
    key = {"idempotency-key": "once"}
    answers = [await host.http.post(CHAT, json=_asking("one"), headers=key) for _ in range(3)]
    assert len({answer.content for answer in answers}) == 1
    assert len(model.received) == 1


@pytest.mark.parametrize("text", ["a\0b", "\0", "🙂\uffff", "ab" * 100_000])
async def test_unusual_text_is_accepted_or_refused(host: Hosted, text: str) -> None:
    answer = await host.http.post(CHAT, json=_asking(text))
    assert answer.status_code in {200, 400}, answer.text
