"""API keys: allowed requests, revocation, and separation between keys."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.in_process_server import Hosted, hosted

from talaria.access.api_keys import KeyScope, create_key, new_token, revoke_key
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

HI = {"messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"


async def _key(host: Hosted, name: str, *scopes: KeyScope) -> dict[str, str]:
    """Create a key and return its authorization header."""
    token = new_token()
    await host.application.store.write(lambda tx: create_key(tx, name, scopes, token))
    return {"authorization": f"Bearer {token}"}


def _error(answer: httpx.Response) -> Any:
    """Return the error of an answer, which has OpenAI's shape."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]


async def _until_status(host: Hosted, headers: dict[str, str], status: int) -> None:
    """Wait until a key that was created or revoked takes effect, which takes a moment."""

    async def has_status() -> bool:
        return (await host.http.get("/v1/models", headers=headers)).status_code == status

    await until(has_status)


async def test_every_request_needs_a_key(host: Hosted) -> None:
    key = await _key(host, "mine", "chat")
    await _until_status(host, key, 200)
    for value in ("", "Bearer", "Bearer tal_wrong", key["authorization"][7:]):
        headers = {"authorization": value}
        answer = await host.http.post(CHAT, json=HI, headers=headers)
        assert (answer.status_code, _error(answer)["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert (await host.http.post(CHAT, json=HI, headers=key)).status_code == 200
    assert (await host.http.get("/health")).status_code == 200


async def test_revoked_key_is_refused(host: Hosted) -> None:
    key = await _key(host, "mine", "chat")
    await _key(host, "other", "chat")
    await _until_status(host, key, 200)
    await host.application.store.write(lambda tx: revoke_key(tx, "mine"))
    await _until_status(host, key, 401)


async def test_streams_end_when_their_key_is_revoked_and_runs_continue(tmp_path: Path, model: ModelServer) -> None:
    model.otherwise(Say("and so on " * 1000, pause=0.05))
    settings = "[api]\nheartbeat_seconds = 0.05\n[gateway]\ndrain_seconds = 0.1\n"  # the run continues at the end
    async with hosted(tmp_path, model, settings) as host:
        key, admin = await _key(host, "mine", "chat"), await _key(host, "other", "admin")
        await _until_status(host, key, 200)
        run = (await host.http.post("/v1/runs", json={"input": "Go."}, headers=key)).json()

        async def follow() -> None:
            await host.http.get(f"/v1/runs/{run['id']}/events", headers=key)

        async def ask() -> None:
            await host.http.post(CHAT, json={**HI, "stream": True}, headers=key)

        async with asyncio.TaskGroup() as group:
            ended = [group.create_task(_is_broken_off(one)) for one in (follow(), ask())]
            await model.arrived(2)
            await host.application.store.write(lambda tx: revoke_key(tx, "mine"))
        assert all(one.result() for one in ended)
        await model.gone()
        assert (await host.http.get(f"/v1/runs/{run['id']}", headers=admin)).json()["status"] == "running"


async def test_pending_answer_is_refused_when_its_key_is_revoked(tmp_path: Path, model: ModelServer) -> None:
    model.otherwise(Say("and so on " * 1000, pause=0.05))
    async with hosted(tmp_path, model, "[api]\nheartbeat_seconds = 0.05\n") as host, asyncio.TaskGroup() as group:
        key = await _key(host, "mine", "chat")
        await _key(host, "other", "chat")
        await _until_status(host, key, 200)
        asking = group.create_task(host.http.post(CHAT, json=HI, headers=key))
        await model.arrived(1)
        await host.application.store.write(lambda tx: revoke_key(tx, "mine"))
        assert _error(await asking)["code"] == "invalid_api_key"
        await model.gone()


async def _is_broken_off(asking: Coroutine[Any, Any, None]) -> bool:
    """Return whether a connection is closed before the answer is complete."""
    try:
        await asking
    except httpx.RemoteProtocolError:
        return True
    return False


async def test_unknown_keys_are_logged_and_rate_limited(
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


async def test_key_allows_only_its_scopes(host: Hosted) -> None:
    read, admin = await _key(host, "reader", "read"), await _key(host, "admin", "admin")
    await _until_status(host, admin, 200)
    answer = await host.http.post(CHAT, json=HI, headers=read)
    assert (answer.status_code, _error(answer)["code"]) == (403, "insufficient_scope")
    assert (await host.http.get("/metrics", headers=read)).status_code == 200
    assert (await host.http.post(CHAT, json=HI, headers=admin)).status_code == 200


async def test_tokens_of_keys_are_not_stored(host: Hosted) -> None:
    key = await _key(host, "mine", "chat")
    stored = await host.application.store.read(lambda tx: tx.api_keys.all())
    assert [entry.name for entry in stored] == ["first", "mine"]
    assert not any(token in repr(entry) for entry in stored for token in (key["authorization"][7:], host.key))


async def test_key_from_the_environment_has_all_scopes(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, secrets="TALARIA_API_KEY=a-long-word-of-mine\n") as host:
        assert host.key == ""
        assert (await host.http.post(CHAT, json=HI)).status_code == 401
        key = {"authorization": "Bearer a-long-word-of-mine"}
        assert (await host.http.post(CHAT, json=HI, headers=key)).status_code == 200
        assert (await host.http.get("/metrics", headers=key)).status_code == 200


async def test_session_of_another_key_or_surface_is_not_found(host: Hosted) -> None:
    one, other, admin = (
        await _key(host, "one", "chat"),
        await _key(host, "other", "chat"),
        await _key(host, "all", "admin"),
    )
    await _until_status(host, admin, 200)
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


async def test_history_of_another_key_is_not_continued(host: Hosted, model: ModelServer) -> None:
    one, other = await _key(host, "one", "chat"), await _key(host, "other", "chat")
    await _until_status(host, one, 200)
    first = await host.http.post(CHAT, json=HI, headers=one)
    history = {
        "messages": [*HI["messages"], {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
    }
    strange = await host.http.post(CHAT, json=history, headers=other)
    own = await host.http.post(CHAT, json=history, headers=one)
    sessions = [answer.headers["x-talaria-session-id"] for answer in (first, strange, own)]
    assert sessions[0] == sessions[2] != sessions[1]
