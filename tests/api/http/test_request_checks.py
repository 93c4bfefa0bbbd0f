"""Who may ask, from where, how often and how much; and what those are told who ask for nonsense."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.api.in_process_server import PATIENCE, Hosted, hosted

from talaria.access.api_keys import KeyScope, create_key, new_token, revoke_key
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

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


async def _known(host: Hosted, headers: dict[str, str], status: int) -> None:
    """Wait until a key that was created or revoked elsewhere counts, which takes a moment."""

    async def has_status() -> bool:
        return (await host.http.get("/v1/models", headers=headers)).status_code == status

    await until(has_status)


async def test_every_request_needs_a_key(host: Hosted) -> None:
    key = await _key(host, "mine", "chat")
    await _known(host, key, 200)
    for words in ("", "Bearer", "Bearer tal_wrong", key["authorization"][7:]):
        headers = {"authorization": words}
        answer = await host.http.post(CHAT, json=HI, headers=headers)
        assert (answer.status_code, _error(answer)["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert (await host.http.post(CHAT, json=HI, headers=key)).status_code == 200
    assert (await host.http.get("/health")).status_code == 200


async def test_a_key_that_is_revoked_is_good_for_nothing(host: Hosted) -> None:
    key = await _key(host, "mine", "chat")
    await _key(host, "other", "chat")
    await _known(host, key, 200)
    await host.application.store.write(lambda tx: revoke_key(tx, "mine"))
    await _known(host, key, 401)


async def test_streams_end_when_their_key_is_revoked_and_runs_go_on(tmp_path: Path, model: ModelServer) -> None:
    model.otherwise(Say("and so on " * 1000, pause=0.05))
    async with hosted(tmp_path, model, "[api]\nheartbeat_seconds = 0.05\n") as host:
        key, admin = await _key(host, "mine", "chat"), await _key(host, "other", "admin")
        await _known(host, key, 200)
        run = (await host.http.post("/v1/runs", json={"input": "Go."}, headers=key)).json()

        async def follow() -> None:
            await host.http.get(f"/v1/runs/{run['id']}/events", headers=key)

        async def ask() -> None:
            await host.http.post(CHAT, json={**HI, "stream": True}, headers=key)

        async with asyncio.TaskGroup() as group:
            ended = [group.create_task(_broken(one)) for one in (follow(), ask())]
            await model.arrived(2)
            await host.application.store.write(lambda tx: revoke_key(tx, "mine"))
        assert all(one.result() for one in ended)
        await model.gone()
        assert (await host.http.get(f"/v1/runs/{run['id']}", headers=admin)).json()["status"] == "running"


async def test_an_answer_that_is_awaited_ends_when_its_key_is_revoked(tmp_path: Path, model: ModelServer) -> None:
    model.otherwise(Say("and so on " * 1000, pause=0.05))
    async with hosted(tmp_path, model, "[api]\nheartbeat_seconds = 0.05\n") as host, asyncio.TaskGroup() as group:
        key = await _key(host, "mine", "chat")
        await _key(host, "other", "chat")
        await _known(host, key, 200)
        asking = group.create_task(host.http.post(CHAT, json=HI, headers=key))
        await model.arrived(1)
        await host.application.store.write(lambda tx: revoke_key(tx, "mine"))
        assert _error(await asking)["code"] == "invalid_api_key"
        await model.gone()


async def _broken(asking: Coroutine[Any, Any, None]) -> bool:
    """Tell whether a connection is closed before the answer is whole."""
    try:
        await asking
    except httpx.RemoteProtocolError:
        return True
    return False


async def test_unknown_keys_are_logged_and_slow_only_themselves(
    tmp_path: Path, model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosted(tmp_path, model) as host, asyncio.TaskGroup() as group:
        wrong = {"authorization": "Bearer tal_wrong"}
        tried = [group.create_task(host.http.get("/v1/models", headers=wrong)) for _ in range(60)]
        assert (await host.http.get("/v1/models")).status_code == 200
    statuses = {one.result().status_code for one in tried}
    assert statuses == {401, 429}
    logged = [line.getMessage() for line in caplog.records if "unknown API key" in line.getMessage()]
    assert logged == [f"unknown API key from 127.0.0.1 ({count} in a row)" for count in (1, 10)]


async def test_a_key_is_good_for_its_scopes_alone(host: Hosted) -> None:
    read, admin = await _key(host, "reader", "read"), await _key(host, "admin", "admin")
    await _known(host, admin, 200)
    answer = await host.http.post(CHAT, json=HI, headers=read)
    assert (answer.status_code, _error(answer)["code"]) == (403, "insufficient_scope")
    assert (await host.http.get("/metrics", headers=read)).status_code == 200
    assert (await host.http.post(CHAT, json=HI, headers=admin)).status_code == 200


async def test_the_store_does_not_know_the_words_of_a_key(host: Hosted) -> None:
    key = await _key(host, "mine", "chat")
    kept = await host.application.store.read(lambda tx: tx.api_keys.all())
    assert [entry.name for entry in kept] == ["first", "mine"]
    assert not any(token in repr(entry) for entry in kept for token in (key["authorization"][7:], host.key))


async def test_the_key_of_the_environment_is_good_for_everything(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, secrets="TALARIA_API_KEY=a-long-word-of-mine\n") as host:
        assert host.key == ""
        assert (await host.http.post(CHAT, json=HI)).status_code == 401
        key = {"authorization": "Bearer a-long-word-of-mine"}
        assert (await host.http.post(CHAT, json=HI, headers=key)).status_code == 200
        assert (await host.http.get("/metrics", headers=key)).status_code == 200


async def test_a_conversation_of_another_key_or_place_is_not_there(host: Hosted) -> None:
    one, other, admin = (
        await _key(host, "one", "chat"),
        await _key(host, "other", "chat"),
        await _key(host, "all", "admin"),
    )
    await _known(host, admin, 200)
    answer = await host.http.post(CHAT, json=HI, headers=one)
    named = {"x-talaria-session-id": answer.headers["x-talaria-session-id"]}
    await host.application.store.write(
        lambda tx: tx.sessions.create(NewSession(source="cli", id=SessionId("01234567890athme")))
    )
    at_home = {"x-talaria-session-id": "01234567890athme"}
    tried = [
        await host.http.post(CHAT, json=HI, headers=key | session)
        for key in (one, other, admin)
        for session in (named, at_home)
    ]
    assert [answer.status_code for answer in tried] == [200, 404, 404, 404, 200, 200]


async def test_a_history_that_another_key_tells_is_not_recognised(host: Hosted, model: ModelServer) -> None:
    one, other = await _key(host, "one", "chat"), await _key(host, "other", "chat")
    await _known(host, one, 200)
    first = await host.http.post(CHAT, json=HI, headers=one)
    told = {"messages": [*HI["messages"], {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]}
    strange = await host.http.post(CHAT, json=told, headers=other)
    own = await host.http.post(CHAT, json=told, headers=one)
    sessions = [answer.headers["x-talaria-session-id"] for answer in (first, strange, own)]
    assert sessions[0] == sessions[2] != sessions[1]


async def test_a_page_that_reaches_us_under_another_name_gets_nothing(host: Hosted) -> None:
    odd = ("localhost:80@evil", "[::1]evil", "localhost:1, evil", "localhost:x", "localhost/evil", "[localhost]", "a b")
    for name in ("evil.example.org", f"evil.example.org:{host.port}", "", "127.0.0.1.evil.example.org", *odd):
        answer = await host.http.post(CHAT, json=HI, headers={"host": name})
        assert (answer.status_code, _error(answer)["code"]) == (421, "unknown_host")
    for name in ("localhost", f"LOCALHOST:{host.port}", "[::1]:80"):
        assert (await host.http.get("/health", headers={"host": name})).status_code == 200


async def test_pages_of_other_origins_may_not_ask_unless_they_are_named(
    tmp_path: Path, model: ModelServer, host: Hosted
) -> None:
    page = {"origin": "https://chat.example.org"}
    answer = await host.http.post(CHAT, json=HI, headers=page)
    assert (answer.status_code, _error(answer)["code"]) == (403, "origin_not_allowed")
    assert not any(name.startswith("access-control") for name in answer.headers)
    own = {"origin": host.url}
    assert (await host.http.get("/health", headers=own)).status_code == 200
    settings = '[api]\ncors_origins = ["https://chat.example.org"]\n'
    async with hosted(tmp_path / "other", model, settings) as named:
        wanted = "authorization, content-type, idempotency-key, x-stainless-lang, x-stainless-retry-count"
        asked = page | {"access-control-request-method": "POST", "access-control-request-headers": wanted}
        before = await named.http.options(CHAT, headers=asked)
        assert before.status_code == 204
        assert before.headers["access-control-allow-origin"] == page["origin"]
        assert before.headers["access-control-allow-methods"] == "POST, OPTIONS"
        assert before.headers["access-control-allow-headers"] == wanted
        assert "authorization" in before.headers["access-control-allow-headers"]
        answer = await named.http.post(CHAT, json=HI, headers=page)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == page["origin"]
        assert "x-talaria-session-id" in answer.headers["access-control-expose-headers"]
        wrong = await named.http.post(CHAT, json=HI, headers={"origin": "https://evil.example.org"})
        assert wrong.status_code == 403


async def test_a_key_may_ask_only_so_often(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, "[api]\nrequests_per_minute = 6\n") as host:
        assert (await host.http.get("/v1/models")).status_code == 200
        answer = await host.http.get("/v1/models")
        assert (answer.status_code, _error(answer)["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(answer.headers["retry-after"]) <= 11
        assert (await host.http.get("/health")).status_code == 200


async def test_what_one_key_asks_is_not_counted_against_another(tmp_path: Path, model: ModelServer) -> None:
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


async def test_a_key_may_ask_only_so_much_at_once(tmp_path: Path, model: ModelServer) -> None:
    held = asyncio.Event()

    async def wait(_: object) -> Say:
        await held.wait()
        return Say("done")

    model.answering(wait)
    async with hosted(tmp_path, model, "[api]\nrequests_at_once = 1\n") as host, asyncio.TaskGroup() as group:
        first = group.create_task(host.http.post(CHAT, json=HI))
        await model.arrived()
        answer = await host.http.post(CHAT, json=HI)
        assert (answer.status_code, _error(answer)["code"]) == (429, "concurrency_limit_exceeded")
        held.set()
        assert (await first).status_code == 200
        assert (await host.http.post(CHAT, json=HI)).status_code == 200


async def test_a_body_may_be_only_so_large(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, "[api]\nbody_megabytes = 0.01\n") as host:
        large = {"messages": [{"role": "user", "content": "x" * 10_000}]}
        answer = await host.http.post(CHAT, json=large)
        assert (answer.status_code, _error(answer)["code"]) == (413, "body_too_large")

        async def pieces() -> AsyncIterator[bytes]:
            yield msgspec.json.encode(large)[:6_000]
            yield msgspec.json.encode(large)[6_000:]

        answer = await host.http.post(CHAT, content=pieces())
        assert (answer.status_code, _error(answer)["code"]) == (413, "body_too_large")
        answer = await host.http.post(CHAT, content=b"x" * 30_000_000)  # more than lies between two sockets
        assert (answer.status_code, _error(answer)["code"]) == (413, "body_too_large")
        assert (await host.http.post(CHAT, json=HI)).status_code == 200


async def test_who_asks_before_it_sends_too_much_need_not_send_it(host: Hosted) -> None:
    known = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {host.key}\r\n"
    head = f"{known}expect: 100-continue\r\ncontent-length: 999999999\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(head.encode())
    async with asyncio.timeout(PATIENCE):
        assert (await reader.read()).startswith(b"HTTP/1.1 413")
    writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, "[api]\nstall_seconds = 0.1\n") as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
        known = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {host.key}\r\n"
        writer.write(f"{known}content-length: 99\r\n\r\n{{".encode())
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
async def test_a_body_that_cannot_be_read_is_told_so(host: Hosted, body: bytes, code: str) -> None:
    answer = await host.http.post(CHAT, content=body)
    assert (answer.status_code, _error(answer)["code"]) == (400, code)


@pytest.mark.parametrize("text", ["\\ud800", "a\\u0000b", "\\udc00\\ud800", "🙂\\uffff"])
async def test_strange_characters_do_no_harm(host: Hosted, text: str) -> None:
    body = f'{{"messages": [{{"role": "user", "content": "{text}"}}]}}'
    answer = await host.http.post(CHAT, content=body.encode())
    assert answer.status_code in {200, 400}, answer.text
    assert (await host.http.post(CHAT, json=HI)).status_code == 200


async def test_what_is_not_there_and_what_is_not_understood_is_told_so(host: Hosted) -> None:
    for path in ("/", "/v1", "/v1/chat", "/v1/chat/completions/", "/v1/%00", "/v2/models", "//health"):
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
async def test_every_path_says_what_may_be_done_with_it(host: Hosted, path: str, allowed: str) -> None:
    answer = await host.http.options(path)
    assert (answer.status_code, answer.content, answer.headers["allow"]) == (204, b"", allowed)


async def test_where_there_is_nothing_nothing_may_be_done(host: Hosted) -> None:
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


async def test_what_is_not_http_ends_its_connection_and_nothing_else(host: Hosted) -> None:
    long = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 200_000 + b"\r\n\r\n"
    for sent in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"POST /health HTTP/9.9\r\n\r\n"):
        assert not (await _raw(host.port, sent)).startswith((b"HTTP/1.1 2", b"HTTP/1.1 5"))
    await _raw(host.port, long)
    nameless = await _raw(host.port, b"GET /health HTTP/1.0\r\n\r\n")
    assert nameless.startswith(b"HTTP/1.1 421")
    assert (await host.http.get("/health")).status_code == 200
