"""Late completions: plain requests can't deliver them and tell the model so; runs can."""

from typing import Any

import httpx
import pytest
from tests.api.server_process import Server, client, follow
from tests.app.program_with_model import talk

from talaria.contracts.background_processes import BackgroundProcess, list_processes
from talaria.storage.sqlite.open import open_sqlite
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.wait import until

_CANNOT = "this conversation can't be woken here"
_SHORT = {"command": "sleep 0.5; echo finished", "background": True, "notify_on_complete": True}
_LONG = {**_SHORT, "command": "sleep 300", "watch_patterns": ["ready"]}
_CHAT = {"messages": [{"role": "user", "content": "Start it."}]}
_RESPONSE = {"input": "Start it."}


def _starting(arguments: dict[str, object]) -> Say:
    return Say(calls=[Ask("terminal", arguments)])


def _processes(server: Server) -> list[BackgroundProcess]:
    database = open_sqlite(server.program.home / "profiles" / "default" / "talaria.db")
    try:
        return database.read(list_processes)
    finally:
        database.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", _CHAT),
        ("/v1/chat/completions", {**_CHAT, "stream": True}),
        ("/v1/responses", _RESPONSE),
        ("/v1/responses", {**_RESPONSE, "stream": True}),
        ("/v1/responses", {**_RESPONSE, "background": True}),
        ("/v1/responses", {**_RESPONSE, "background": True, "stream": True}),
    ],
)
async def test_plain_requests_register_no_watcher_and_tell_the_model_so(
    server: Server, model: ModelServer, path: str, body: dict[str, Any]
) -> None:
    model.script(_starting(_LONG), Say("Started."))
    async with client(server) as http:
        response = await http.post(path, json=body)
        assert response.status_code == 200, response.text

        async def answered() -> bool:
            return len(model.received) == 2

        await until(answered)
    assert _CANNOT in str(model.received[1].json["messages"])
    (process,) = _processes(server)
    assert (process.notify, process.patterns) == (False, ())
    assert (await talk(server.program, "ps", "kill", process.id)).code == 0


async def test_process_started_by_a_run_reports_in_its_events(server: Server, model: ModelServer) -> None:
    model.script(_starting(_SHORT), Say("Started."), Say("It has finished."))
    async with client(server) as http:
        run = (await http.post("/v1/runs", json={"input": "Start it."})).json()
        events = await follow(http, f"/v1/runs/{run['id']}/events")
        ended = (await http.get(f"/v1/runs/{run['id']}")).json()
    names = [one.name for one in events]
    assert names.count("turn.started") == 2
    assert names.index("run.waiting") < len(names) - 1 - names[::-1].index("turn.started")
    assert (names[-1], ended["output"]) == ("run.completed", "It has finished.")
    assert _CANNOT not in str(model.received[1].json)
    assert "finished" in model.received[2].question
    assert ended["usage"]["calls"] == 3


async def test_process_report_arrives_after_a_server_kill(server: Server, model: ModelServer) -> None:
    model.script(_starting({**_SHORT, "command": "sleep 1; echo finished"}), Say("Started."), Say("It has finished."))
    async with client(server) as http:
        run = (await http.post("/v1/runs", json={"input": "Start it."})).json()
        await follow(http, f"/v1/runs/{run['id']}/events", until=lambda one: one.name == "run.waiting")
    await server.kill()
    await server.start()
    async with client(server) as http:
        events = await follow(http, f"/v1/runs/{run['id']}/events")
    assert [one.number for one in events] == list(range(1, len(events) + 1))
    assert events[-1].data == {"type": "run.completed", "text": "It has finished."}
    assert len(model.received) == 3


async def test_run_waiting_for_a_background_process_can_be_stopped(server: Server, model: ModelServer) -> None:
    model.script(_starting(_LONG), Say("Started."))
    async with client(server) as http:
        run = (await http.post("/v1/runs", json={"input": "Start it."})).json()
        await follow(http, f"/v1/runs/{run['id']}/events", until=lambda one: one.name == "run.waiting")
        stopped = (await http.post(f"/v1/runs/{run['id']}/stop")).json()
        assert stopped["status"] == "stopped"
    (process,) = _processes(server)
    assert process.notify
    assert (await talk(server.program, "ps", "kill", process.id)).code == 0


async def test_late_delivery_depends_on_the_route_not_on_the_session(server: Server, model: ModelServer) -> None:
    def answer(received: Received) -> Say:
        last = received.json["messages"][-1]
        return _starting(_SHORT) if last["role"] == "user" and "Start" in str(last["content"]) else Say("Well.")

    model.answering(answer)
    async with client(server) as http:
        first = await http.post("/v1/chat/completions", json=_CHAT)
        assert _CANNOT in str(model.received[-1].json)
        session = first.headers["x-talaria-session-id"]
        run = await http.post("/v1/runs", json={"input": "Start another.", "session_id": session})
        events = await follow(http, f"/v1/runs/{run.json()['id']}/events")
    outputs = [one.data["output"] for one in events if one.name == "tool.completed"]
    assert outputs
    assert _CANNOT not in outputs[0]


async def test_a_run_processed_by_another_worker_still_ends(server: Server, model: ModelServer) -> None:
    model.script(Say("one two three four five", pause=0.3), Say("In the terminal."), Say("And that."))
    async with client(server) as http:
        run = (await http.post("/v1/runs", json={"input": "Go."})).json()
        await follow(http, f"/v1/runs/{run['id']}/events", until=lambda one: one.name == "text.delta")
    await server.kill()
    result = await talk(server.program, "chat", "-r", run["session_id"], "-q", "And?")
    assert result.out.strip().endswith("And that."), result
    await server.start()
    async with client(server) as http:
        events = await follow(http, f"/v1/runs/{run['id']}/events")
        ended = (await http.get(f"/v1/runs/{run['id']}")).json()
    assert events[-1].data == {"type": "run.completed", "text": "In the terminal."}
    assert (ended["status"], ended["output"]) == ("completed", "In the terminal.")


async def test_a_run_whose_session_is_deleted_is_gone(server: Server) -> None:
    async with client(server) as http:
        run = (await http.post("/v1/runs", json={"input": "Go."})).json()
        await follow(http, f"/v1/runs/{run['id']}/events")

        async def deleted() -> bool:
            return (await http.delete(f"/v1/sessions/{run['session_id']}")).status_code == httpx.codes.OK

        await until(deleted)
        assert (await http.get(f"/v1/runs/{run['id']}")).status_code == 404
