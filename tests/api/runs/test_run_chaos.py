"""Many runs on servers that are killed repeatedly: events are complete, appear once and match the transcript."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.server_process import Server, ServerSentEvent, client, follow
from tests.app.program_with_model import scripted_program
from tests.storage.engines import StoreLocation

from talaria.testing.model_server import Ask, ModelServer, Received, Say


def _answer(received: Received) -> Say:
    """Call a tool twice, start a background process, reply, and reply again when that process has ended."""
    messages = received.json["messages"]
    name = next(str(one["content"]) for one in messages if one["role"] == "user")
    done = sum(one["role"] == "tool" for one in messages)
    if messages[-1]["role"] == "user" and done:
        return Say(f"{name} has ended in the background.", pause=0.02)
    if done < 2:
        call = Ask("terminal", {"command": f"echo {name}-{done} >>log; sleep 0.05"}, id=f"{name}_{done}")
        return Say(f"{name} takes step {done} now.", calls=[call], pause=0.02)
    if done == 2:
        later = {"command": "sleep 0.5", "background": True, "notify_on_complete": True}
        return Say(calls=[Ask("terminal", later, id=f"{name}_later")])
    return Say(f"{name} is done so far.", pause=0.02)


async def _read_events_and_messages(
    http: httpx.AsyncClient, run: dict[str, Any]
) -> tuple[list[ServerSentEvent], list[dict[str, Any]]]:
    events = await follow(http, f"/v1/runs/{run['id']}/events")
    messages = (await http.get(f"/v1/sessions/{run['session_id']}/messages?limit=1000")).json()["data"]
    return events, messages


def _check(events: list[ServerSentEvent], messages: list[dict[str, Any]]) -> None:
    assert [one.number for one in events] == list(range(1, len(events) + 1))
    ends = [one.name for one in events if one.name in ("run.completed", "run.failed", "run.stopped")]
    assert ends == ["run.completed"] == [events[-1].name]
    calls = Counter((one.name, one.data["call_id"]) for one in events if one.name in ("tool.started", "tool.completed"))
    assert set(calls.values()) == {1}
    assert len(calls) == 2 * len({call for _, call in calls})
    texts = [
        "".join(part["text"] for part in one["parts"] if part["type"] == "text")
        for one in messages
        if one["role"] == "assistant"
    ]
    assert [one.data["text"] for one in events if one.name == "message.completed"] == [text for text in texts if text]


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as one:
        yield one


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_events_of_every_run_are_complete_after_repeated_kills(
    tmp_path: Path, model: ModelServer, engine: str, request: pytest.FixtureRequest
) -> None:
    count, kills = (60, 15) if request.config.getoption("--long") else (10, 4)
    chance = random.Random(7)
    model.answering(_answer)
    settings = ""
    if engine == "postgres":
        store_location: StoreLocation = request.getfixturevalue("postgres_location")
        settings = f'[store]\nurl = "{store_location.address}"\nschema = "{store_location.schema}"\n'
    program = scripted_program(tmp_path, model, settings)
    servers = [await Server(program).start() for _ in range(2)]
    try:
        async with client(servers[0]) as http:
            runs = [(await http.post("/v1/runs", json={"input": f"run{number}"})).json() for number in range(count)]
        for number in range(kills):
            async with client(servers[1]) as http:  # until the run has made progress
                await follow(http, f"/v1/runs/{runs[number]['id']}/events", until=lambda one: (one.number or 0) > 6)
            killed = chance.choice(servers)
            await killed.kill()
            await killed.start()
        async with client(servers[1]) as http:
            results = await asyncio.gather(*(_read_events_and_messages(http, run) for run in runs))
    finally:
        for one in servers:
            await one.end()
    for events, messages in results:
        _check(events, messages)
    done = Counter((tmp_path / "workspaces" / "default" / "log").read_text().split())
    assert set(done.values()) == {1}
