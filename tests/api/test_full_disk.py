"""A full disk: clients get an error in the format of their protocol, and work resumes when there is space."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec
import pytest
from tests.api.server_process import Server

from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SESSION = "x-talaria-session-id"
HI = {"messages": [{"role": "user", "content": "hi"}], "input": "hi"}
_FREE = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
_FULL = (1024, resource.RLIM_INFINITY)


@asynccontextmanager
async def _full(server: Server) -> AsyncIterator[None]:
    """Prevent files of the server from growing within the block."""
    assert server.process is not None
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, _FULL)
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, _FREE)


async def _is_answered(http: httpx.AsyncClient, session: str = "") -> bool:
    """Return whether a session is answered again; a lost lease expires only after some seconds."""
    answer = await http.post(CHAT, json=HI, headers={SESSION: session} if session else {})
    return answer.status_code == httpx.codes.OK


async def test_request_is_refused_while_the_disk_is_full(server: Server, http: httpx.AsyncClient) -> None:
    session = (await http.post(CHAT, json=HI)).headers[SESSION]
    async with _full(server):
        for path in (CHAT, RESPONSES, "/v1/runs"):
            for stream in (False, True):
                answer = await http.post(path, json={**HI, "stream": stream})
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store")
                assert int(answer.headers["retry-after"]) > 0
        assert (await http.get(f"/v1/sessions/{session}")).json()["message_count"] == 2
        assert (await http.get("/health")).status_code == 200
    await until(lambda: _is_answered(http, session))


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize("stream", [False, True])
async def test_turn_that_cannot_be_stored_is_reported_as_an_error(
    server: Server, http: httpx.AsyncClient, model: ModelServer, path: str, *, stream: bool
) -> None:
    released = asyncio.Event()

    async def wait(_: object) -> Say:
        await released.wait()
        return Say("Not to be kept.", chunks=1)

    model.answering(wait)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(http.post(path, json={**HI, "stream": stream}))
        await model.arrived()
        async with _full(server):
            released.set()
            answer = await asked
    if not stream:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store")
    else:
        events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        if path == CHAT:
            assert msgspec.json.decode(events[-2])["error"]["code"] == "store"
            assert events[-1] == "[DONE]"
        else:
            assert msgspec.json.decode(events[-1])["type"] == "response.failed"
    model.answering(lambda received: Say(f"You said {received.question}.", chunks=1))
    await until(lambda: _is_answered(http))
    log = (server.program.home / "profiles" / "default" / "logs" / "talaria.log").read_text()
    assert "Traceback" not in log, log
