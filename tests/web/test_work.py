"""Home, background work and traces: people see and control only their own work."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from msgspec import structs
from tests.api.in_process_server import Hosted
from tests.web.web_client import begin, stream

from talaria.contracts.delegation import ChildTask, DelegatedTask
from talaria.contracts.store import Transaction
from talaria.contracts.stores.access import PairedPerson, PairingRules
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.runtime.delegation.task_store import Delegation, queue_in_background, save_delegation
from talaria.runtime.questions import list_open_questions
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until


@pytest.fixture(autouse=True)
def _titles(model: ModelServer) -> None:
    model.answer_when(lambda asked: asked.is_title_request, Say("A title"))


async def _home_with_question(client: httpx.AsyncClient, messages: AsyncIterator[Any]) -> dict[str, Any]:
    async for message in messages:
        if message == {"topic": "changed", "page": "home"}:
            shown = dict((await client.get("/web/home")).json())
            if shown["questions"]:
                return shown
    raise AssertionError("the stream ended")


async def test_pending_approval_is_shown_to_its_person_and_can_be_answered(
    host: Hosted, owner: httpx.AsyncClient, alice: httpx.AsyncClient, model: ModelServer
) -> None:
    model.script(Say("", calls=[Ask("terminal", {"command": "rm -rf *"})]), Say("I left it alone."))
    async with stream(owner, "home") as messages:
        session = await begin(owner, "Clean up")
        shown = await _home_with_question(owner, messages)
    (question,) = shown["questions"]
    assert (question["session_id"], question["tool"], question["text"]) == (session, "terminal", "rm -rf *")
    assert [one["session_id"] for one in shown["running"]] == [session]
    hers = (await alice.get("/web/home")).json()
    assert (hers["questions"], hers["running"]) == ([], [])
    answered = await owner.post(f"/web/sessions/{session}/answers/{question['id']}", json={"text": "no"})
    assert answered.status_code == 200

    async def is_quiet() -> bool:
        shown = (await owner.get("/web/home")).json()
        return not shown["questions"] and not shown["running"]

    await until(is_quiet)
    assert await host.application.store.read(list_open_questions) == []


async def test_owner_sees_pairing_requests_and_failed_jobs(
    host: Hosted, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    store = host.application.store

    def fail(tx: Transaction) -> None:
        tx.pairing.offer(PairedPerson("telegram", "9", "Mara"), "hash", PairingRules())
        (job,) = tx.jobs.find()
        run = tx.jobs.begin_run(job, next_at=job.next_at)
        assert run is not None
        tx.jobs.end_run(structs.replace(run, state="failed", output="The model is overloaded."))

    await owner.post("/web/schedules", json={"prompt": "every 2h read the mail"})
    await store.write(fail)
    shown = (await owner.get("/web/home")).json()
    assert [one["name"] for one in shown["pairing"]] == ["Mara"]
    assert [one["output"] for one in shown["failed_jobs"]] == ["The model is overloaded."]
    assert [one["name"] for one in shown["next_jobs"]] == ["read the mail"]
    hers = (await alice.get("/web/home")).json()
    assert (hers["pairing"], hers["failed_jobs"], hers["next_jobs"], hers["networks"]) == ([], [], [], [])


async def test_background_process_can_be_followed_and_stopped(
    host: Hosted, owner: httpx.AsyncClient, alice: httpx.AsyncClient, model: ModelServer
) -> None:
    command = "echo ready; cat"
    model.script(Say("", calls=[Ask("terminal", {"command": command, "background": True})]), Say("Started."))
    await begin(owner, "Start it")

    async def list_processes() -> list[dict[str, Any]]:
        return list((await owner.get("/web/background")).json()["processes"])

    async def is_ready() -> bool:
        return [one["last_line"] for one in await list_processes()] == ["ready"]

    await until(is_ready)
    (process,) = await list_processes()
    output = f"/web/processes/{process['id']}/output"
    page = (await owner.get(output)).json()
    assert page["text"] == "ready\n"
    assert (await owner.get(output, params={"after": page["end"]})).json()["text"] == ""
    assert (await alice.get("/web/background")).json()["processes"] == []
    for answer in (await alice.get(output), await alice.post(f"/web/processes/{process['id']}/stop", json={})):
        assert answer.status_code == 404
    assert (await owner.post(f"/web/processes/{process['id']}/stop", json={})).status_code == 200

    async def has_ended() -> bool:
        return (await list_processes())[0]["ended_at"] is not None

    await until(has_ended)
    assert (await owner.post(f"/web/processes/{process['id']}/stop", json={})).status_code == 409


async def test_a_trace_shows_the_calls_of_a_turn(
    host: Hosted, owner: httpx.AsyncClient, alice: httpx.AsyncClient, model: ModelServer
) -> None:
    model.script(Say("", calls=[Ask("list_files", {})]), Say("Empty."))
    session = await begin(owner, "What is here?")
    path = f"/web/sessions/{session}/trace"

    async def has_ended() -> bool:
        turn = (await owner.get(path)).json().get("turn")
        return bool(turn) and turn["state"] == "answered"

    await until(has_ended)
    shown = (await owner.get(path)).json()
    assert [one["type"] for one in shown["turn"]["spans"]] == ["model", "tool", "model"]
    assert shown["turns"][0]["number"] == shown["turn"]["number"] == 1
    assert (await owner.get(path, params={"turn": "1"})).json()["turn"] == shown["turn"]
    assert (await owner.get(path, params={"turn": "7"})).status_code == 404
    assert (await alice.get(path)).status_code == 404


async def test_delegated_tasks_are_shown_as_a_tree(
    host: Hosted, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    store = host.application.store

    def create(tx: Transaction) -> SessionId:
        session = tx.sessions.create(NewSession(source="cli", title="Research"))
        child = tx.sessions.create(NewSession(source="delegate", parent_id=session.id))
        tx.turns.begin(child.id, TurnId(new_id()))
        task = ChildTask(DelegatedTask("Read the first half"), child.id)
        queue_in_background(tx, _delegation(session.id, "k1", task))
        save_delegation(tx, _delegation(child.id, "k2", ChildTask(DelegatedTask("Read a page"))))
        return session.id

    session = await store.write(create)
    (shown,) = (await owner.get("/web/background")).json()["delegations"]
    (child,) = shown["children"]
    assert (shown["session_id"], child["goal"], child["state"]) == (session, "Read the first half", "open")
    assert child["delegations"][0]["children"][0]["goal"] == "Read a page"
    stop = f"/web/sessions/{session}/tasks/{shown['handle']}/stop"
    assert (await alice.get("/web/background")).json()["delegations"] == []
    assert (await alice.post(stop, json={})).status_code == 404
    assert (await owner.post(stop, json={})).status_code == 200
    assert (await owner.post(stop.replace(shown["handle"], "bg-none"), json={})).status_code == 404


def _delegation(session_id: SessionId, key: str, child: ChildTask) -> Delegation:
    return Delegation(
        key=key, session_id=session_id, children=(child,), surface="cli", folder="/", began=datetime.now(UTC)
    )
