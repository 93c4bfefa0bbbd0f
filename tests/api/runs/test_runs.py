"""Runs of the API: start, follow from any event, answer questions, stop."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.server_process import PATIENCE, Server, ServerSentEvent, client, follow, serving
from tests.app.program_with_model import scripted_program

from talaria.testing.model_server import Ask, Fail, ModelServer, Say
from talaria.testing.wait import until

_LOOK = Say("Let me look.", calls=[Ask("terminal", {"command": "echo seen"}, id="call_1")])
_DANGER = Say(calls=[Ask("terminal", {"command": "rm -rf *"})])


async def _start(http: httpx.AsyncClient, text: str = "Go.", **more: object) -> dict[str, Any]:
    response = await http.post("/v1/runs", json={"input": text, **more})
    assert response.status_code == 202, response.text
    run: dict[str, Any] = response.json()
    return run


async def _state(http: httpx.AsyncClient, run: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (await http.get(f"/v1/runs/{run['id']}")).json()
    return found


async def _in_state(http: httpx.AsyncClient, run: dict[str, Any], *states: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        found = await _state(http, run)
        return found if found["status"] in states else None

    found: dict[str, Any] = await until(look)
    return found


def _names(events: list[ServerSentEvent]) -> list[str]:
    return [one.name for one in events]


async def test_events_of_a_run_are_streamed_until_it_completes(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(_LOOK, Say("Seen."))
    run = await _start(http, metadata={"ticket": "7"})
    assert run["status"] == "queued"
    events = await follow(http, f"/v1/runs/{run['id']}/events")
    assert [one.number for one in events] == list(range(1, len(events) + 1))
    reported = [name for name in _names(events) if name not in ("text.delta", "tool.progress")]
    assert reported == [
        "run.queued",
        "turn.started",
        "model.used",
        "message.completed",
        "tool.started",
        "tool.completed",
        "model.used",
        "message.completed",
        "run.completed",
    ]
    assert "".join(one.data["text"] for one in events if one.name == "text.delta") == "Let me look.Seen."
    ended = await _state(http, run)
    assert (ended["status"], ended["output"], ended["metadata"]) == ("completed", "Seen.", {"ticket": "7"})
    assert (await http.get(f"/v1/sessions/{run['session_id']}")).json()["model"] == "scripted"
    assert ended["usage"]["calls"] == 2


async def test_several_clients_follow_a_run_from_different_events(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say("one two three four five six seven eight", pause=0.05))
    run = await _start(http)
    path = f"/v1/runs/{run['id']}/events"
    early, other = await asyncio.gather(follow(http, path, until=lambda one: one.number == 4), follow(http, path))
    assert early == other[:4]
    assert await follow(http, path, headers={"last-event-id": "4"}) == other[4:]
    assert await follow(http, f"{path}?after=4") == other[4:]
    assert await follow(http, f"{path}?after={len(other)}") == []
    assert await follow(http, f"{path}?after=1000000") == []


async def test_head_request_of_an_event_stream_returns_at_once(
    server: Server, http: httpx.AsyncClient, model: ModelServer
) -> None:
    model.script(Say("and so on " * 200, pause=0.05))
    run = await _start(http)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for method, path in (("HEAD", f"/v1/runs/{run['id']}/events"), ("GET", "/nowhere")):  # over one connection
        key = f"authorization: Bearer {server.key}"
        writer.write(f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{key}\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE):
        heads = [await reader.readuntil(b"\r\n\r\n") for _ in range(2)]
    assert [head.split()[1] for head in heads] == [b"200", b"404"]
    assert b"text/event-stream" in heads[0]
    writer.close()
    assert (await http.post(f"/v1/runs/{run['id']}/stop")).json()["status"] == "stopped"


async def test_run_continues_after_its_client_disconnected(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say("one two three four five six seven", pause=0.1))
    run = await _start(http)
    await follow(http, f"/v1/runs/{run['id']}/events", until=lambda one: one.name == "text.delta")
    assert (await _in_state(http, run, "completed"))["output"] == "one two three four five six seven"


async def test_runs_of_one_session_are_executed_in_order(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say("first", pause=0.1), Say("second"), Say("third"))
    first = await _start(http)
    later = [await _start(http, text, session_id=first["session_id"]) for text in ("And?", "And then?")]
    outputs = [(await _in_state(http, run, "completed"))["output"] for run in (first, *later)]
    assert outputs == ["first", "second", "third"]
    messages = (await http.get(f"/v1/sessions/{first['session_id']}/messages")).json()["data"]
    assert [one["text"] for one in messages] == ["Go.", "first", "And?", "second", "And then?", "third"]
    for run, output in zip(later, outputs[1:], strict=True):
        events = await follow(http, f"/v1/runs/{run['id']}/events")
        assert (events[1].name, events[-1].data["text"]) == ("turn.started", output)


async def test_a_running_run_is_stopped(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say("and so on " * 200, pause=0.05))
    run = await _start(http)
    await follow(http, f"/v1/runs/{run['id']}/events", until=lambda one: one.name == "text.delta")
    stopped = await http.post(f"/v1/runs/{run['id']}/stop")
    assert stopped.json()["status"] == "stopped"
    events = await follow(http, f"/v1/runs/{run['id']}/events")
    assert _names(events)[-2:] == ["message.completed", "run.stopped"]
    again = await http.post(f"/v1/runs/{run['id']}/stop")
    assert (again.status_code, again.json()["status"]) == (200, "stopped")


async def test_queued_run_is_stopped_without_a_turn(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say("and so on " * 200, pause=0.05))
    first = await _start(http)
    await model.arrived()
    second = await _start(http, "And?", session_id=first["session_id"])
    assert (await http.post(f"/v1/runs/{second['id']}/stop")).json()["status"] == "stopped"
    assert (await http.post(f"/v1/runs/{first['id']}/stop")).json()["status"] == "stopped"
    assert len(model.received) == 1
    assert _names(await follow(http, f"/v1/runs/{second['id']}/events")) == ["run.queued", "run.stopped"]


@pytest.mark.parametrize(("decision", "outcome"), [("approve", "gone"), ("deny", "precious")])
async def test_dangerous_command_waits_for_approval(
    http: httpx.AsyncClient, model: ModelServer, server: Server, decision: str, outcome: str
) -> None:
    precious = server.program.home / "workspaces" / "default" / "precious"
    precious.touch()
    model.script(_DANGER, Say("Done."))
    run = await _start(http)
    waiting = await _in_state(http, run, "waiting")
    (asked,) = waiting["questions"]
    assert asked["type"] == "approval.requested"
    assert precious.exists()
    body = {"id": asked["id"], "decision": decision}
    answered = await http.post(f"/v1/runs/{run['id']}/approval", json=body)
    assert answered.status_code == 200
    assert (await _in_state(http, run, "completed"))["questions"] == []
    assert precious.exists() == (outcome == "precious")
    names = _names(await follow(http, f"/v1/runs/{run['id']}/events"))
    assert names.index("approval.requested") < names.index("question.closed")
    assert (await http.post(f"/v1/runs/{run['id']}/approval", json=body)).status_code == 404


async def test_reason_of_a_denial_is_not_read_as_approval(
    http: httpx.AsyncClient, model: ModelServer, server: Server
) -> None:
    precious = server.program.home / "workspaces" / "default" / "precious"
    precious.touch()
    model.script(_DANGER, Say("I see."))
    run = await _start(http)
    (asked,) = (await _in_state(http, run, "waiting"))["questions"]
    body = {"id": asked["id"], "decision": "deny", "reason": "always"}
    assert (await http.post(f"/v1/runs/{run['id']}/approval", json=body)).status_code == 200
    await _in_state(http, run, "completed")
    assert precious.exists()


async def test_answer_to_a_question_reaches_the_model(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say(calls=[Ask("clarify", {"question": "Red or blue?", "choices": ["red", "blue"]})]), Say("Blue."))
    run = await _start(http)
    (asked,) = (await _in_state(http, run, "waiting"))["questions"]
    assert (asked["type"], asked["question"], asked["choices"]) == ("question.asked", "Red or blue?", ["red", "blue"])
    path = f"/v1/runs/{run['id']}/approval"
    assert (await http.post(path, json={"id": asked["id"], "decision": "approve"})).status_code == 400
    assert (await http.post(path, json={"id": asked["id"], "answer": "blue"})).status_code == 200
    await _in_state(http, run, "completed")
    assert "blue" in str(model.received[-1].body)


async def test_run_waiting_for_an_answer_can_be_stopped(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say(calls=[Ask("clarify", {"question": "Which?"})]))
    run = await _start(http)
    await _in_state(http, run, "waiting")
    stopped = (await http.post(f"/v1/runs/{run['id']}/stop")).json()
    assert (stopped["status"], stopped["questions"]) == ("stopped", [])
    names = _names(await follow(http, f"/v1/runs/{run['id']}/events"))
    assert names[-3:].count("question.closed") == 1


async def test_stopping_server_does_not_wait_for_answers_and_clients(tmp_path: Path, model: ModelServer) -> None:
    model.script(Say(calls=[Ask("clarify", {"question": "Which?"}, id="call_1")]), Say("That one."))
    program = scripted_program(tmp_path, model, "[gateway]\ndrain_seconds = 3600.0\n")
    async with serving(program) as server, client(server) as http:
        run = await _start(http)
        await _in_state(http, run, "waiting")
        async with asyncio.TaskGroup() as group:
            asked = asyncio.Event()

            def note_question(one: ServerSentEvent) -> bool:
                if one.name == "question.asked":
                    asked.set()
                return False

            following = group.create_task(follow(http, f"/v1/runs/{run['id']}/events", until=note_question))
            await asked.wait()
            assert await server.end() == 0
        events = following.result()
        assert events[-1].name == "question.asked"
        await server.start()
        http.base_url = server.url  # the port may be another one
        after = await follow(
            http,
            f"/v1/runs/{run['id']}/events?after={events[-1].number}",
            until=lambda one: one.name == "question.asked",
        )
        assert _names(after) == ["question.closed", "turn.resumed", "question.asked"]
        await http.post(f"/v1/runs/{run['id']}/approval", json={"id": after[-1].data["id"], "answer": "this"})
        assert (await _in_state(http, run, "completed"))["output"] == "That one."


async def test_session_can_be_chosen_with_a_header(http: httpx.AsyncClient, model: ModelServer) -> None:
    first = await http.post("/v1/runs", json={"input": "One"})
    await _in_state(http, first.json(), "completed")
    headers = {"x-talaria-session-id": first.headers["x-talaria-session-id"]}
    second = await http.post("/v1/runs", json={"input": "Two", "instructions": "Be brief."}, headers=headers)
    await _in_state(http, second.json(), "completed")
    third = await http.post("/v1/responses", json={"input": "Three"}, headers=headers)
    assert third.headers["x-talaria-session-id"] == second.json()["session_id"] == first.json()["session_id"]
    contents = [one["content"] for one in model.received[-1].json["messages"][1:]]
    assert contents == ["One", "ok", "Be brief.", "Two", "ok", "Three"]
    unknown = await http.post("/v1/responses", json={"input": "x"}, headers={"x-talaria-session-id": "nowhere"})
    assert unknown.status_code == 404


async def test_run_fails_if_its_model_fails(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.otherwise(Fail(400, message="nonsense"))
    run = await _start(http)
    ended = await _in_state(http, run, "failed")
    assert ended["error"]["code"] == "failed"
    assert ended["error"]["message"]
    assert _names(await follow(http, f"/v1/runs/{run['id']}/events"))[-1] == "run.failed"


async def test_unknown_runs_sessions_and_models_and_missing_input_are_refused(http: httpx.AsyncClient) -> None:
    for path in ("/v1/runs/run_x", "/v1/runs/run_x/events"):
        assert (await http.get(path)).json()["error"]["code"] == "run_not_found"
    assert (await http.post("/v1/runs/run_x/stop")).status_code == 404
    unknown = await http.post("/v1/runs", json={"input": "x", "session_id": "nowhere"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "session_not_found")
    assert (await http.post("/v1/runs", json={"input": "x", "model": "mine:nothing"})).status_code == 404
    assert (await http.post("/v1/runs", json={})).status_code == 400
    assert (await http.post("/v1/runs", json={"input": " "})).status_code == 400


async def test_same_idempotency_key_starts_one_run(http: httpx.AsyncClient, model: ModelServer) -> None:
    headers = {"idempotency-key": "once"}
    both = [await http.post("/v1/runs", json={"input": "Go."}, headers=headers) for _ in range(2)]
    assert both[0].json() == both[1].json()
    await _in_state(http, both[0].json(), "completed")
    assert len(model.received) == 1
