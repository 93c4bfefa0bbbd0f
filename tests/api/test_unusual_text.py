"""Text that a store cannot save, or that is not valid, is accepted or refused on both engines."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.server_process import client, serving
from tests.app.program_with_model import scripted_program
from tests.storage.engines import StoreLocation

from talaria.testing.model_server import ModelServer

_STRANGE = ["a\\u0000b", "\\ud800", "\\ud83d\\ude00", "\\u202e\\u0007", "x" * 5000, ""]
_BODIES = [
    ("/v1/runs", '{"input": "%s"}'),
    ("/v1/runs", '{"input": "x", "metadata": {"%s": "%s"}}'),
    ("/v1/runs", '{"input": "x", "instructions": "%s"}'),
    ("/v1/runs", '{"input": "x", "session_id": "%s"}'),
    ("/v1/runs", '{"input": "x", "model": "%s"}'),
    ("/v1/runs/run_x/approval", '{"id": "%s", "decision": "deny", "reason": "%s"}'),
    ("/v1/responses", '{"input": "%s"}'),
    ("/v1/responses", '{"input": [{"role": "user", "content": "%s"}]}'),
    ("/v1/responses", '{"input": "x", "conversation": "%s"}'),
    ("/v1/responses", '{"input": "x", "previous_response_id": "%s"}'),
    ("/v1/responses", '{"input": "x", "instructions": "%s", "background": true}'),
    ("/v1/responses", '{"input": "x", "metadata": {"%s": "%s"}, "user": "%s"}'),
    ("/v1/responses", '{"input": [{"type": "item_reference", "id": "msg_%s_0"}, {"role": "user", "content": "x"}]}'),
    ("/v1/sessions/nowhere/fork", '{"title": "%s"}'),
    ("/v1/sessions/nowhere/move", '{"to": "%s"}'),
]
_PATHS = [
    "/v1/runs/{}",
    "/v1/runs/{}/events",
    "/v1/responses/{}",
    "/v1/responses/{}/input_items?after={}",
    "/v1/sessions/{}",
    "/v1/sessions/{}/messages",
    "/v1/sessions?q={}&source={}",
    "/v1/sessions/search?q={}&session_id={}",
]


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as one:
        yield one


@pytest.fixture(params=["sqlite", "postgres"])
async def http(request: pytest.FixtureRequest, tmp_path: Path, model: ModelServer) -> AsyncIterator[httpx.AsyncClient]:
    settings = ""
    if request.param == "postgres":
        store_location: StoreLocation = request.getfixturevalue("postgres_location")
        settings = f'[store]\nurl = "{store_location.address}"\nschema = "{store_location.schema}"\n'
    async with serving(scripted_program(tmp_path, model, settings)) as api, client(api) as one:
        yield one


def _check_accepted_or_refused(response: httpx.Response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        error: dict[str, Any] = response.json()["error"]
        assert error["message"]


@pytest.mark.one_engine
async def test_unusual_text_in_bodies_causes_no_server_error(http: httpx.AsyncClient) -> None:
    run = (await http.post("/v1/runs", json={"input": "Go."})).json()
    there = [(path.replace("nowhere", run["session_id"]), body) for path, body in _BODIES if "nowhere" in path]
    for path, body in (*_BODIES, *there):
        for strange in _STRANGE:
            _check_accepted_or_refused(await http.post(path, content=body.replace("%s", strange)))


@pytest.mark.one_engine
async def test_unusual_text_in_paths_and_queries_causes_no_server_error(http: httpx.AsyncClient) -> None:
    for path in _PATHS:
        for strange in ("%00", "a%00b", "%ff%fe", "%F0%9F%98%80", "%27%22%3B", "x" * 5000):
            _check_accepted_or_refused(await http.get(path.replace("{}", strange)))


@pytest.mark.one_engine
async def test_unusual_text_in_headers_causes_no_server_error(http: httpx.AsyncClient) -> None:
    for path in ("/v1/runs", "/v1/responses"):
        for name in ("x-talaria-session-id", "idempotency-key", "last-event-id"):
            for strange in (b"\xff\xfe", b"x" * 5000, b"a b"):
                headers = {name.encode(): strange}
                _check_accepted_or_refused(await http.post(path, json={"input": "x"}, headers=headers))
    _check_accepted_or_refused(await http.get("/v1/runs/run_x/events", headers={b"last-event-id": b"\xb2"}))
