"""Invalid requests that the vendors' servers refuse are refused by the scripted one too."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from talaria.testing.model_server import ModelServer, Say

KEYS = {"Authorization": "Bearer sk-one", "x-api-key": "sk-one"}
VERSION = {"anthropic-version": "2023-06-01"}
HI = {"role": "user", "content": "hi"}
CHAT: dict[str, object] = {"model": "test-model", "messages": [HI]}
RESPONSES: dict[str, object] = {"model": "test-model", "input": [HI]}
ANTHROPIC: dict[str, object] = {"model": "test-model", "max_tokens": 9, "messages": [HI]}
BODIES = {"chat/completions": CHAT, "responses": RESPONSES, "messages": ANTHROPIC}


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(keys={"sk-one"}) as server:
        yield server


async def send(server: ModelServer, path: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    sent_headers = KEYS | VERSION if headers is None else headers
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/{path}", data=data, headers=sent_headers) as response,
    ):
        return response.status, await response.json()


@pytest.mark.parametrize("path", BODIES)
async def test_valid_request_is_answered(server: ModelServer, path: str) -> None:
    assert (await send(server, path, BODIES[path]))[0] == 200


@pytest.mark.parametrize("path", BODIES)
async def test_request_without_a_key_is_refused(server: ModelServer, path: str) -> None:
    status, body = await send(server, path, BODIES[path], VERSION)
    assert status == 401
    if path == "messages":
        assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")
        assert body["request_id"].startswith("req_")
    else:
        assert body["error"] == {
            "message": "Incorrect API key provided.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }


async def test_anthropic_request_needs_any_key() -> None:
    async with ModelServer() as server:
        assert (await send(server, "chat/completions", CHAT, {}))[0] == 200
        assert (await send(server, "messages", ANTHROPIC, VERSION))[0] == 401
        assert (await send(server, "messages", ANTHROPIC, {"x-api-key": "any", **VERSION}))[0] == 200


async def test_anthropic_request_needs_a_version_header(server: ModelServer) -> None:
    status, body = await send(server, "messages", ANTHROPIC, KEYS)
    assert status == 400
    assert body["error"] == {"type": "invalid_request_error", "message": "anthropic-version: header is required"}


@pytest.mark.parametrize(
    ("path", "field"),
    [(path, field) for path, body in BODIES.items() for field in body],
)
async def test_a_missing_field_is_named(server: ModelServer, path: str, field: str) -> None:
    body = {name: value for name, value in BODIES[path].items() if name != field}
    status, answer = await send(server, path, body)
    assert status == 400
    assert field in answer["error"]["message"]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("body", [b"{not json", b"[]", b'{"model": 7}'])
async def test_malformed_request_is_refused(server: ModelServer, path: str, body: bytes) -> None:
    assert (await send(server, path, body))[0] == 400


CHAT_CALL = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}, {"id": "b", "type": "function"}]}
CHAT_RESULTS = [{"role": "tool", "tool_call_id": one, "content": ""} for one in "ab"]
CALLS = [{"type": "function_call", "call_id": one, "name": "x", "arguments": "{}"} for one in "ab"]
OUTPUTS = [{"type": "function_call_output", "call_id": one, "output": ""} for one in "ab"]
USES = {"role": "assistant", "content": [{"type": "tool_use", "id": one, "name": "x", "input": {}} for one in "ab"]}
RESULTS = [{"type": "tool_result", "tool_use_id": one, "content": ""} for one in "ab"]


@pytest.mark.parametrize(
    ("path", "turns", "status"),
    [
        ("chat/completions", [HI, CHAT_CALL, *CHAT_RESULTS], 200),
        ("chat/completions", [HI, CHAT_CALL, *CHAT_RESULTS, HI, {"role": "assistant", "content": "ok"}, HI], 200),
        ("chat/completions", [HI, CHAT_CALL], 400),
        ("chat/completions", [HI, CHAT_CALL, CHAT_RESULTS[0]], 400),
        ("chat/completions", [HI, CHAT_CALL, CHAT_RESULTS[0], HI], 400),
        ("chat/completions", [HI, CHAT_RESULTS[0]], 400),
        ("responses", [HI, *CALLS, *OUTPUTS], 200),
        ("responses", [HI, *CALLS, OUTPUTS[1]], 400),
        ("responses", [HI, OUTPUTS[0]], 400),
        ("messages", [HI, USES, {"role": "user", "content": RESULTS}], 200),
        ("messages", [HI, USES], 400),
        ("messages", [HI, USES, {"role": "user", "content": RESULTS[:1]}], 400),
        ("messages", [HI, USES, HI], 400),
        ("messages", [HI, {"role": "user", "content": RESULTS[:1]}], 400),
    ],
)
async def test_tool_calls_and_results_must_be_paired(
    server: ModelServer, path: str, turns: list[object], status: int
) -> None:
    body = {**BODIES[path], "input" if path == "responses" else "messages": turns}
    assert (await send(server, path, body))[0] == status


async def test_refused_call_is_recorded_and_uses_no_scripted_answer(server: ModelServer) -> None:
    server.script(Say("first"))
    await send(server, "messages", ANTHROPIC, {})
    _, body = await send(server, "messages", ANTHROPIC)
    assert body["content"] == [{"type": "text", "text": "first"}]
    assert len(server.received) == 2
