"""Runs: started, followed from any point and by several, answered, stopped."""

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


async def _start(http: httpx.AsyncClient, words: str = "Go.", **more: object) -> dict[str, Any]:
    response = await http.post("/v1/runs", json={"input": words, **more})
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


async def test_a_run_tells_all_that_happens_and_ends(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(_LOOK, Say("Seen."))
    run = await _start(http, metadata={"ticket": "7"})
    assert run["status"] == "queued"
    events = await follow(http, f"/v1/runs/{run['id']}/events")
    assert [one.number for one in events] == list(range(1, len(events) + 1))
    telling = [name for name in _names(events) if name not in ("text.delta", "tool.progress")]
    assert telling == [
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
    over = await _state(http, run)
    assert (over["status"], over["output"], over["metadata"]) == ("completed", "Seen.", {"ticket": "7"})
    assert (await http.get(f"/v1/sessions/{run['session_id']}")).json()["model"] == "scripted"
    assert over["usage"]["calls"] == 2


async def test_several_follow_a_run_each_from_where_they_left_off(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say("one two three four five six seven eight", pause=0.05))
    run = await _start(http)
    path = f"/v1/runs/{run['id']}/events"
    early, other = await asyncio.gather(follow(http, path, until=lambda one: one.number == 4), follow(http, path))
    assert early == other[:4]
    assert await follow(http, path, headers={"last-event-id": "4"}) == other[4:]
    assert await follow(http, f"{path}?after=4") == other[4:]
    assert await follow(http, f"{path}?after={len(other)}") == []
    assert await follow(http, f"{path}?after=1000000") == []


async def test_who_wants_the_head_alone_is_not_made_to_follow(
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


async def test_a_client_that_hangs_up_ends_nothing(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say("one two three four five six seven", pause=0.1))
    run = await _start(http)
    await follow(http, f"/v1/runs/{run['id']}/events", until=lambda one: one.name == "text.delta")
    assert (await _in_state(http, run, "completed"))["output"] == "one two three four five six seven"


async def test_runs_of_one_session_come_one_after_the_other(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say("first", pause=0.1), Say("second"), Say("third"))
    first = await _start(http)
    later = [await _start(http, words, session_id=first["session_id"]) for words in ("And?", "And then?")]
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


async def test_a_run_that_waits_for_its_turn_is_stopped_without_one(
    http: httpx.AsyncClient, model: ModelServer
) -> None:
    model.script(Say("and so on " * 200, pause=0.05))
    first = await _start(http)
    await model.arrived()
    second = await _start(http, "And?", session_id=first["session_id"])
    assert (await http.post(f"/v1/runs/{second['id']}/stop")).json()["status"] == "stopped"
    assert (await http.post(f"/v1/runs/{first['id']}/stop")).json()["status"] == "stopped"
    assert len(model.received) == 1
    assert _names(await follow(http, f"/v1/runs/{second['id']}/events")) == ["run.queued", "run.stopped"]


@pytest.mark.parametrize(("decision", "outcome"), [("approve", "gone"), ("deny", "precious")])
async def test_what_is_dangerous_waits_for_an_approval(
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


async def test_a_reason_against_it_never_becomes_a_yes(
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


async def test_a_question_is_answered(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say(calls=[Ask("clarify", {"question": "Red or blue?", "choices": ["red", "blue"]})]), Say("Blue."))
    run = await _start(http)
    (asked,) = (await _in_state(http, run, "waiting"))["questions"]
    assert (asked["type"], asked["question"], asked["choices"]) == ("question.asked", "Red or blue?", ["red", "blue"])
    path = f"/v1/runs/{run['id']}/approval"
    assert (await http.post(path, json={"id": asked["id"], "decision": "approve"})).status_code == 400
    assert (await http.post(path, json={"id": asked["id"], "answer": "blue"})).status_code == 200
    await _in_state(http, run, "completed")
    assert "blue" in str(model.received[-1].body)


async def test_a_run_that_waits_for_an_answer_can_be_stopped(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say(calls=[Ask("clarify", {"question": "Which?"})]))
    run = await _start(http)
    await _in_state(http, run, "waiting")
    stopped = (await http.post(f"/v1/runs/{run['id']}/stop")).json()
    assert (stopped["status"], stopped["questions"]) == ("stopped", [])
    names = _names(await follow(http, f"/v1/runs/{run['id']}/events"))
    assert names[-3:].count("question.closed") == 1


async def test_a_stopping_server_waits_for_no_answer_and_no_client(tmp_path: Path, model: ModelServer) -> None:
    model.script(Say(calls=[Ask("clarify", {"question": "Which?"}, id="call_1")]), Say("That one."))
    program = scripted_program(tmp_path, model, "[gateway]\ndrain_seconds = 3600.0\n")
    async with serving(program) as server, client(server) as http:
        run = await _start(http)
        await _in_state(http, run, "waiting")
        async with asyncio.TaskGroup() as group:
            asked = asyncio.Event()

            def hear(one: ServerSentEvent) -> bool:
                if one.name == "question.asked":
                    asked.set()
                return False

            following = group.create_task(follow(http, f"/v1/runs/{run['id']}/events", until=hear))
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


async def test_a_session_is_named_by_the_header_as_well(http: httpx.AsyncClient, model: ModelServer) -> None:
    first = await http.post("/v1/runs", json={"input": "One"})
    await _in_state(http, first.json(), "completed")
    headers = {"x-talaria-session-id": first.headers["x-talaria-session-id"]}
    second = await http.post("/v1/runs", json={"input": "Two", "instructions": "Be brief."}, headers=headers)
    await _in_state(http, second.json(), "completed")
    third = await http.post("/v1/responses", json={"input": "Three"}, headers=headers)
    assert third.headers["x-talaria-session-id"] == second.json()["session_id"] == first.json()["session_id"]
    said = [one["content"] for one in model.received[-1].json["messages"][1:]]
    assert said == ["One", "ok", "Be brief.", "Two", "ok", "Three"]
    unknown = await http.post("/v1/responses", json={"input": "x"}, headers={"x-talaria-session-id": "nowhere"})
    assert unknown.status_code == 404


async def test_a_run_whose_model_fails_says_so(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.otherwise(Fail(400, message="nonsense"))
    run = await _start(http)
    over = await _in_state(http, run, "failed")
    assert over["error"]["code"] == "failed"
    assert over["error"]["message"]
    assert _names(await follow(http, f"/v1/runs/{run['id']}/events"))[-1] == "run.failed"


async def test_what_is_not_there_is_said_to_be_missing(http: httpx.AsyncClient) -> None:
    for path in ("/v1/runs/run_x", "/v1/runs/run_x/events"):
        assert (await http.get(path)).json()["error"]["code"] == "run_not_found"
    assert (await http.post("/v1/runs/run_x/stop")).status_code == 404
    unknown = await http.post("/v1/runs", json={"input": "x", "session_id": "nowhere"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "session_not_found")
    assert (await http.post("/v1/runs", json={"input": "x", "model": "mine:nothing"})).status_code == 404
    assert (await http.post("/v1/runs", json={})).status_code == 400
    assert (await http.post("/v1/runs", json={"input": " "})).status_code == 400


async def test_the_same_key_starts_one_run(http: httpx.AsyncClient, model: ModelServer) -> None:
    headers = {"idempotency-key": "once"}
    both = [await http.post("/v1/runs", json={"input": "Go."}, headers=headers) for _ in range(2)]
    assert both[0].json() == both[1].json()
    await _in_state(http, both[0].json(), "completed")
    assert len(model.received) == 1
