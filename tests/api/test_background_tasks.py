"""Background tasks: plain requests wait for them with a note to the model; runs get their reports."""

from pathlib import Path
from typing import Any

import pytest
from tests.api.server_process import Server, client, follow
from tests.app.program_with_model import scripted_program, talk
from tests.runtime.delegation.delegating_model import DelegatingModel, delegate_tasks

from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

_NOTE = "Background tasks can't report here"
_RUNNING = "is running in the background"
_DONE = "This message is automatic, not from the person. Your background work reports:"
_CHAT = {"messages": [{"role": "user", "content": "go"}]}
_RESPONSE = {"input": "go"}


def _delegating_model(model: ModelServer, *, gates: tuple[str, ...] = ()) -> DelegatingModel:
    replies = [delegate_tasks("task", background=True), Say("well")]
    return DelegatingModel(model, {"go": replies, "task": Say("tortoise"), _DONE: Say("told")}, gates=gates)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", _CHAT),
        ("/v1/chat/completions", {**_CHAT, "stream": True}),
        ("/v1/responses", _RESPONSE),
        ("/v1/responses", {**_RESPONSE, "background": True}),
    ],
)
async def test_plain_requests_wait_for_tasks_and_the_model_gets_a_note(
    server: Server, model: ModelServer, path: str, body: dict[str, Any]
) -> None:
    delegating_model = _delegating_model(model)
    async with client(server) as http:
        response = await http.post(path, json=body)
        assert response.status_code == 200, response.text

        async def answered() -> bool:
            return delegating_model.tasks == ["go", "task", "go"]

        await until(answered)
    last = str(model.received[-1].json["messages"][-1])
    assert _NOTE in last
    assert "tortoise" in last


async def test_a_run_receives_task_results_after_a_server_kill(server: Server, model: ModelServer) -> None:
    delegating_model = _delegating_model(model, gates=("task",))
    async with client(server) as http:
        run = (await http.post("/v1/runs", json={"input": "go"})).json()
        await follow(http, f"/v1/runs/{run['id']}/events", until=lambda one: one.name == "run.waiting")
    await server.kill()
    delegating_model.gates["task"].set()
    await server.start()
    async with client(server) as http:
        events = await follow(http, f"/v1/runs/{run['id']}/events")
    assert events[-1].data == {"type": "run.completed", "text": "told"}
    outputs = [one.data["output"] for one in events if one.name == "tool.completed"]
    assert _RUNNING in outputs[0]
    assert "tortoise" in model.received[-1].question


async def test_single_question_from_a_shell_waits_for_tasks(tmp_path: Path, model: ModelServer) -> None:
    delegating_model = _delegating_model(model)
    result = await talk(scripted_program(tmp_path, model), "chat", "-q", "go")
    assert (result.code, result.out.strip()) == (0, "well")
    assert delegating_model.tasks[:3] == ["go", "task", "go"]
    assert _NOTE in str(model.received[2].json["messages"][-1])
