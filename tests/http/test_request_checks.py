"""Checks of every request (host, origin, rate, size, body, path) and the errors of refused requests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.api.in_process_server import PATIENCE, Hosted, hosted

from talaria.access.api_keys import KeyScope, create_key, new_token
from talaria.testing.model_server import ModelServer, Say

HI = {"messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"


async def _key(host: Hosted, name: str, *scopes: KeyScope) -> dict[str, str]:
    """Create a key and return the header that shows it."""
    token = new_token()
    await host.application.store.write(lambda tx: create_key(tx, name, scopes, token))
    return {"authorization": f"Bearer {token}"}


def _error(answer: httpx.Response) -> Any:
    """Return the error of an answer, which has OpenAI's shape."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]


async def test_unknown_host_header_is_refused_with_421(host: Hosted) -> None:
    odd = ("localhost:80@evil", "[::1]evil", "localhost:1, evil", "localhost:x", "localhost/evil", "[localhost]", "a b")
    for name in ("evil.example.org", f"evil.example.org:{host.port}", "", "127.0.0.1.evil.example.org", *odd):
        answer = await host.http.post(CHAT, json=HI, headers={"host": name})
        assert (answer.status_code, _error(answer)["code"]) == (421, "unknown_host")
    for name in ("localhost", f"LOCALHOST:{host.port}", "[::1]:80"):
        assert (await host.http.get("/health", headers={"host": name})).status_code == 200


async def test_other_origins_are_refused_unless_configured(tmp_path: Path, model: ModelServer, host: Hosted) -> None:
    page = {"origin": "https://chat.example.org"}
    answer = await host.http.post(CHAT, json=HI, headers=page)
    assert (answer.status_code, _error(answer)["code"]) == (403, "origin_not_allowed")
    assert not any(name.startswith("access-control") for name in answer.headers)
    own = {"origin": host.url}
    assert (await host.http.get("/health", headers=own)).status_code == 200
    settings = '[api]\ncors_origins = ["https://chat.example.org"]\n'
    async with hosted(tmp_path / "other", model, settings) as named:
        requested = "authorization, content-type, idempotency-key, x-stainless-lang, x-stainless-retry-count"
        headers = page | {"access-control-request-method": "POST", "access-control-request-headers": requested}
        before = await named.http.options(CHAT, headers=headers)
        assert before.status_code == 204
        assert before.headers["access-control-allow-origin"] == page["origin"]
        assert before.headers["access-control-allow-methods"] == "POST, OPTIONS"
        assert before.headers["access-control-allow-headers"] == requested
        assert "authorization" in before.headers["access-control-allow-headers"]
        answer = await named.http.post(CHAT, json=HI, headers=page)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == page["origin"]
        assert "x-talaria-session-id" in answer.headers["access-control-expose-headers"]
        wrong = await named.http.post(CHAT, json=HI, headers={"origin": "https://evil.example.org"})
        assert wrong.status_code == 403


async def test_requests_per_minute_are_limited_per_key(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, "[api]\nrequests_per_minute = 6\n") as host:
        assert (await host.http.get("/v1/models")).status_code == 200
        answer = await host.http.get("/v1/models")
        assert (answer.status_code, _error(answer)["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(answer.headers["retry-after"]) <= 11
        assert (await host.http.get("/health")).status_code == 200


async def test_requests_of_one_key_do_not_count_for_another(tmp_path: Path, model: ModelServer) -> None:
    settings = "[api]\nrequests_per_minute = 6\nrequests_at_once = 1\n"
    async with hosted(tmp_path, model, settings) as host:
        keys = [await _key(host, name, "chat") for name in ("one", "other")]
        model.otherwise(Say("and so on " * 1000, pause=0.05))
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(host.http.post(CHAT, json=HI, headers=key)) for key in keys]
            await model.arrived(2)
            again = [await host.http.post(CHAT, json=HI, headers=key) for key in keys]
            for one in asking:
                one.cancel()
        assert {_error(answer)["code"] for answer in again} == {"rate_limit_exceeded"}


async def test_concurrent_requests_are_limited_per_key(tmp_path: Path, model: ModelServer) -> None:
    may_answer = asyncio.Event()

    async def wait(_: object) -> Say:
        await may_answer.wait()
        return Say("done")

    model.answering(wait)
    async with hosted(tmp_path, model, "[api]\nrequests_at_once = 1\n") as host, asyncio.TaskGroup() as group:
        first = group.create_task(host.http.post(CHAT, json=HI))
        await model.arrived()
        answer = await host.http.post(CHAT, json=HI)
        assert (answer.status_code, _error(answer)["code"]) == (429, "concurrency_limit_exceeded")
        may_answer.set()
        assert (await first).status_code == 200
        assert (await host.http.post(CHAT, json=HI)).status_code == 200


async def test_body_beyond_the_limit_is_refused_with_413(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, "[api]\nbody_megabytes = 0.01\n") as host:
        large = {"messages": [{"role": "user", "content": "x" * 10_000}]}
        answer = await host.http.post(CHAT, json=large)
        assert (answer.status_code, _error(answer)["code"]) == (413, "body_too_large")

        async def pieces() -> AsyncIterator[bytes]:
            yield msgspec.json.encode(large)[:6_000]
            yield msgspec.json.encode(large)[6_000:]

        answer = await host.http.post(CHAT, content=pieces())
        assert (answer.status_code, _error(answer)["code"]) == (413, "body_too_large")
        answer = await host.http.post(CHAT, content=b"x" * 30_000_000)  # more than the socket buffers hold
        assert (answer.status_code, _error(answer)["code"]) == (413, "body_too_large")
        assert (await host.http.post(CHAT, json=HI)).status_code == 200


async def test_expect_100_continue_with_a_large_length_is_refused_with_413(host: Hosted) -> None:
    start = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {host.key}\r\n"
    head = f"{start}expect: 100-continue\r\ncontent-length: 999999999\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(head.encode())
    async with asyncio.timeout(PATIENCE):
        assert (await reader.read()).startswith(b"HTTP/1.1 413")
    writer.close()


async def test_stalled_body_times_out_with_408(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, "[api]\nstall_seconds = 0.1\n") as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
        start = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {host.key}\r\n"
        writer.write(f"{start}content-length: 99\r\n\r\n{{".encode())
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).startswith(b"HTTP/1.1 408")
        writer.close()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_value"),
        (b"{", "invalid_json"),
        (b"nonsense", "invalid_json"),
        (b"input=x", "invalid_json"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "invalid_json"),
        (b'{"audio": ' + b"[" * 100_000, "invalid_json"),
        (b"[]", "invalid_value"),
        (b'{"messages": "hi"}', "invalid_value"),
        (b'{"messages": [{"role": "user", "content": 7}]}', "invalid_value"),
        (b'{"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}', "invalid_value"),
    ],
)
async def test_an_unreadable_body_is_rejected_with_a_reason(host: Hosted, body: bytes, code: str) -> None:
    answer = await host.http.post(CHAT, content=body)
    assert (answer.status_code, _error(answer)["code"]) == (400, code)


@pytest.mark.parametrize("text", ["\\ud800", "a\\u0000b", "\\udc00\\ud800", "🙂\\uffff"])
async def test_unusual_characters_do_not_break_the_server(host: Hosted, text: str) -> None:
    body = f'{{"messages": [{{"role": "user", "content": "{text}"}}]}}'
    answer = await host.http.post(CHAT, content=body.encode())
    assert answer.status_code in {200, 400}, answer.text
    assert (await host.http.post(CHAT, json=HI)).status_code == 200


async def test_unknown_paths_and_methods_are_rejected_with_a_reason(host: Hosted) -> None:
    for path in ("/none", "/v1", "/v1/chat", "/v1/chat/completions/", "/v1/%00", "/v2/models"):
        answer = await host.http.get(path)
        assert (answer.status_code, _error(answer)["code"]) == (404, "unknown_url"), path
    for method, path in (("GET", CHAT), ("DELETE", CHAT), ("POST", "/v1/models"), ("PATCH", "/health")):
        answer = await host.http.request(method, path)
        assert (answer.status_code, _error(answer)["code"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == (await host.http.options(path)).headers["allow"]
    head = await host.http.head("/health")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (CHAT, "POST, OPTIONS"),
        ("/health", "GET, HEAD, OPTIONS"),
        ("/v1/models/mine:family/other", "GET, HEAD, OPTIONS"),
        ("/v1/sessions/any", "DELETE, GET, HEAD, OPTIONS"),
        ("/v1/runs/any/stop", "POST, OPTIONS"),
    ],
)
async def test_options_request_returns_the_allowed_methods(host: Hosted, path: str, allowed: str) -> None:
    answer = await host.http.options(path)
    assert (answer.status_code, answer.content, answer.headers["allow"]) == (204, b"", allowed)


async def test_options_request_for_an_unknown_path_returns_404(host: Hosted) -> None:
    answer = await host.http.options("/v1/nowhere")
    assert (answer.status_code, _error(answer)["code"]) == (404, "unknown_url")
    everything = await _raw(host.port, b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert b"allow: DELETE, GET, HEAD, POST, OPTIONS\r\n" in everything


async def _raw(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()


async def test_malformed_http_is_refused_without_affecting_other_connections(host: Hosted) -> None:
    long = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 200_000 + b"\r\n\r\n"
    for sent in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"POST /health HTTP/9.9\r\n\r\n"):
        assert not (await _raw(host.port, sent)).startswith((b"HTTP/1.1 2", b"HTTP/1.1 5"))
    await _raw(host.port, long)
    nameless = await _raw(host.port, b"GET /health HTTP/1.0\r\n\r\n")
    assert nameless.startswith(b"HTTP/1.1 421")
    assert (await host.http.get("/health")).status_code == 200
