"""Servers killed during a run: the run resumes by itself, and every event is reported exactly once."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.server_process import Server, ServerSentEvent, client, follow, serving
from tests.app.program_with_model import scripted_program
from tests.storage.engines import StoreLocation

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until

_REPLY = "one two three four five six seven eight"


@pytest.fixture(params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest, tmp_path: Path, model: ModelServer) -> AsyncIterator[Server]:
    settings = ""
    if request.param == "postgres":
        store_location: StoreLocation = request.getfixturevalue("postgres_location")
        settings = f'[store]\nurl = "{store_location.address}"\nschema = "{store_location.schema}"\n'
    async with serving(scripted_program(tmp_path, model, settings)) as served:
        yield served


async def _start_run(server: Server, text: str = "Go.") -> dict[str, Any]:
    async with client(server) as http:
        run: dict[str, Any] = (await http.post("/v1/runs", json={"input": text})).json()
        return run


async def _events(server: Server, run: dict[str, Any], after: int = 0) -> list[ServerSentEvent]:
    async with client(server) as http:
        return await follow(http, f"/v1/runs/{run['id']}/events?after={after}")


async def _events_until(
    server: Server, run: dict[str, Any], is_last: Callable[[ServerSentEvent], bool]
) -> list[ServerSentEvent]:
    async with client(server) as http:
        return await follow(http, f"/v1/runs/{run['id']}/events", until=is_last)


async def _next_events(server: Server, run: dict[str, Any], after: int) -> list[ServerSentEvent]:
    """Return the next events of a run."""
    async with client(server) as http:
        path = f"/v1/runs/{run['id']}/events?after={after}"
        return await follow(http, path, until=lambda one: one.number == after + 4)


async def _pending_question(http: httpx.AsyncClient, run: dict[str, Any], *, besides: str = "") -> dict[str, Any]:
    """Wait for a question of a run other than ``besides`` and return it."""

    async def look() -> dict[str, Any] | None:
        asked = (await http.get(f"/v1/runs/{run['id']}")).json()["questions"]
        return next((one for one in asked if one["id"] != besides), None)

    found: dict[str, Any] = await until(look)
    return found


def _check(events: list[ServerSentEvent]) -> None:
    """Check the invariants of every run: events are numbered without gaps, and tool calls are reported once."""
    assert [one.number for one in events] == list(range(1, len(events) + 1))
    counted = Counter(
        (one.name, one.data["call_id"]) for one in events if one.name in ("tool.started", "tool.completed")
    )
    assert set(counted.values()) <= {1}
    assert {call for name, call in counted if name == "tool.started"} == {
        call for name, call in counted if name == "tool.completed"
    }
    assert [one.name for one in events if one.name.startswith("run.")] == ["run.queued", events[-1].name]
    assert sum(one.name == "turn.started" for one in events) == 1


def _messages(events: list[ServerSentEvent]) -> list[str]:
    return [one.data["text"] for one in events if one.name == "message.completed"]


@pytest.mark.one_engine
async def test_run_resumes_after_its_server_was_killed_during_a_reply(server: Server, model: ModelServer) -> None:
    model.script(Say(_REPLY, pause=0.2), Say(_REPLY))
    run = await _start_run(server)
    before = await _events_until(server, run, lambda one: one.name == "text.delta")
    await server.kill()
    await server.start()
    events = [*before, *await _events(server, run, len(before))]
    _check(events)
    assert [one.name for one in events].count("turn.resumed") == 1
    assert _messages(events) == [_REPLY]
    resumed = [one.name for one in events].index("turn.resumed")
    assert "".join(one.data["text"] for one in events[resumed:] if one.name == "text.delta") == _REPLY
    assert events[-1].data == {"type": "run.completed", "text": _REPLY}
    assert await _events(server, run) == events


@pytest.mark.one_engine
async def test_tool_call_interrupted_by_a_kill_is_reported_as_failed(server: Server, model: ModelServer) -> None:
    sleeping = Ask("terminal", {"command": "touch begun; sleep 60"}, id="call_1")
    model.script(Say("Wait.", calls=[sleeping]), Say("It was cut off."))
    run = await _start_run(server)
    begun = server.program.home / "workspaces" / "default" / "begun"
    await _events_until(server, run, lambda one: one.name == "tool.started")

    async def is_begun() -> bool:
        return begun.exists()

    await until(is_begun)
    await server.kill()
    await server.start()
    events = await _events(server, run)
    _check(events)
    assert _messages(events) == ["Wait.", "It was cut off."]
    (completed,) = [one.data for one in events if one.name == "tool.completed"]
    assert completed["failed"]


@pytest.mark.one_engine
async def test_run_waiting_for_approval_asks_again_after_a_kill(server: Server, model: ModelServer) -> None:
    precious = server.program.home / "workspaces" / "default" / "kept"
    precious.touch()
    model.script(Say(calls=[Ask("terminal", {"command": "rm -rf *"})]), Say("Gone."))
    run = await _start_run(server)
    async with client(server) as http:
        asked = await _pending_question(http, run)
    await server.kill()
    await server.start()
    async with client(server) as http:
        again = await _pending_question(http, run, besides=asked["id"])
        stale = await http.post(f"/v1/runs/{run['id']}/approval", json={"id": asked["id"], "decision": "approve"})
        assert stale.status_code == 404
        body = {"id": again["id"], "decision": "approve"}
        assert (await http.post(f"/v1/runs/{run['id']}/approval", json=body)).status_code == 200
        events = await follow(http, f"/v1/runs/{run['id']}/events")
    _check(events)
    closed = [one.data["id"] for one in events if one.name == "question.closed"]
    assert closed == [asked["id"], again["id"]]
    assert not precious.exists()


@pytest.mark.one_engine
async def test_stop_request_survives_a_crash(server: Server, model: ModelServer) -> None:
    model.otherwise(Say("and so on " * 300, hold=(20, asyncio.Event())))  # no store write is running when it halts
    run = await _start_run(server)
    await _events_until(server, run, lambda one: one.name == "text.delta")
    assert server.process is not None
    async with serving(server.program) as other, client(other) as http:
        server.process.send_signal(signal.SIGSTOP)  # it owns the run and gets no notification
        asked = await http.post(f"/v1/runs/{run['id']}/stop")
        assert asked.json()["status"] == "running"
        await server.kill()
        events = await follow(http, f"/v1/runs/{run['id']}/events")
    _check(events)
    assert events[-1].name == "run.stopped"
    await server.start()


@pytest.mark.one_engine
async def test_run_completes_after_repeated_kills(server: Server, model: ModelServer) -> None:
    steps = 6
    for number in range(steps):
        call = Ask("terminal", {"command": f"echo {number} >>log; sleep 0.05"}, id=f"call_{number}")
        model.script(Say(f"Step {number}.", calls=[call], pause=0.02))
    model.otherwise(Say("All done."))
    run = await _start_run(server)
    after = 0
    for _ in range(5):
        after += len(await _next_events(server, run, after))
        await server.kill()
        await server.start()
    events = await _events(server, run)
    _check(events)
    assert events[-1].data["text"] == "All done."
    messages = _messages(events)
    assert len(messages) == len(set(messages))


async def test_two_servers_share_the_runs_of_a_store(server: Server, model: ModelServer) -> None:
    model.otherwise(Say(_REPLY, pause=0.02))
    async with serving(server.program) as other:
        runs = [await _start_run(one, f"Go {number}.") for number, one in enumerate((server, other) * 4)]
        event_lists = await asyncio.gather(*(_events(one, run) for run in runs for one in (server, other)))
    for here, there in zip(event_lists[::2], event_lists[1::2], strict=True):
        assert here == there
        _check(here)
        assert _messages(here) == [_REPLY]
    assert len(model.received) == len(runs)


async def test_a_run_can_be_answered_and_stopped_through_another_server(server: Server, model: ModelServer) -> None:
    asking = Say(calls=[Ask("clarify", {"question": "Which?"})])
    model.script(asking, Say("and so on " * 300, pause=0.05))
    run = await _start_run(server)
    async with serving(server.program) as other, client(other) as http:
        asked = await _pending_question(http, run)
        body = {"id": asked["id"], "answer": "the second"}
        assert (await http.post(f"/v1/runs/{run['id']}/approval", json=body)).status_code == 200
        await follow(http, f"/v1/runs/{run['id']}/events", until=lambda one: one.name == "text.delta")
        assert (await http.post(f"/v1/runs/{run['id']}/stop")).json()["status"] == "stopped"
        _check(await follow(http, f"/v1/runs/{run['id']}/events"))
    assert len(model.received) == 2


async def test_runs_of_a_killed_server_are_resumed_by_another(server: Server, model: ModelServer) -> None:
    model.script(Say(_REPLY, pause=0.3), Say(_REPLY))
    run = await _start_run(server)
    await _events_until(server, run, lambda one: one.name == "text.delta")
    async with serving(server.program) as other:
        await server.kill()
        events = await _events(other, run)
    _check(events)
    assert _messages(events) == [_REPLY]
    await server.start()


@pytest.mark.one_engine
async def test_run_that_cannot_be_resumed_fails_with_a_reason(server: Server, model: ModelServer) -> None:
    model.script(Say(_REPLY, pause=0.3))
    run = await _start_run(server)
    await _events_until(server, run, lambda one: one.name == "text.delta")
    await server.kill()
    config = server.program.home / "profiles" / "default" / "config.toml"
    config.write_text(config.read_text().replace("[providers.mine]", "[providers.another]"))
    await server.start()
    events = await _events(server, run)
    assert events[-1].name == "run.failed"
    assert "mine" in events[-1].data["error"]
