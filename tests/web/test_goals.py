"""The goals page: goals of all sessions are set, paused, resumed and cleared from the browser."""

import httpx
from tests.api.in_process_server import Hosted
from tests.web.web_client import stream

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId
from talaria.goals.goal_manager import GoalManager
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

CONTINUE = Say('{"verdict": "continue", "reason": "Two chapters are missing."}')
DONE = Say('{"verdict": "done", "reason": "All chapters are there."}')


async def _goal_of(client: httpx.AsyncClient, session: str) -> dict[str, object]:
    found = [one for one in (await client.get("/web/goals")).json() if one["session_id"] == session]
    return found[0] if found else {}


async def test_a_goal_is_set_judged_and_done(host: Hosted, owner: httpx.AsyncClient, model: ModelServer) -> None:
    model.answer_when(lambda asked: asked.is_title_request, Say("A book"))
    model.script(Say("Chapter one."), CONTINUE, Say("All of them."), DONE)
    async with stream(owner, "goals") as messages:
        answer = await owner.post("/web/goals", json={"text": "Write the book\nbudget: 5 turns"})
        assert answer.status_code == 201, answer.text
        session = answer.json()["session_id"]
        assert answer.json()["state"] == "active"
        async for message in messages:
            if message == {"topic": "changed", "page": "goals"}:
                goal = await _goal_of(owner, session)
                if goal["state"] == "done":
                    break
    assert goal["turns_used"] == 2
    verdicts = (await owner.get(f"/web/goals/{session}/verdicts")).json()
    assert [one["verdict"] for one in verdicts] == ["done", "continue"]
    assert verdicts[1]["reason"] == "Two chapters are missing."


async def test_a_goal_is_paused_resumed_and_cleared(host: Hosted, owner: httpx.AsyncClient, model: ModelServer) -> None:
    model.otherwise(CONTINUE)
    session = (await owner.post("/web/goals", json={"text": "Count to a million"})).json()["session_id"]
    paused = await owner.post(f"/web/goals/{session}/pause", json={})
    assert paused.json()["state"] == "paused"
    assert paused.json()["note"] == "you paused it"

    async def is_idle() -> bool:
        return not (await _goal_of(owner, session))["running"]

    await until(is_idle)
    before = len(model.received)
    resumed = await owner.post(f"/web/goals/{session}/resume", json={})
    assert resumed.json()["state"] == "active", resumed.text
    assert resumed.json()["budgets"][0] == {"unit": "turns", "used": 0, "limit": 20}
    await until(lambda: len(model.received) > before)
    assert (await owner.delete(f"/web/goals/{session}")).status_code == 200
    assert (await owner.get("/web/goals")).json() == []
    assert (await owner.post(f"/web/goals/{session}/resume", json={})).status_code == 409


async def test_refused_goal_creates_no_session(owner: httpx.AsyncClient) -> None:
    answer = await owner.post("/web/goals", json={"text": "   "})
    assert answer.status_code == 409
    assert (await owner.get("/web/sessions")).json()["sessions"] == []


async def test_guests_see_and_change_only_their_own_goals(
    host: Hosted, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    store = host.application.store

    def create(tx: Transaction) -> SessionId:
        return tx.sessions.create(NewSession(source="cli")).id

    session = await store.write(create)
    await GoalManager(session, store=store).set("Win")
    await GoalManager(session, store=store).pause()
    assert (await _goal_of(owner, session))["state"] == "paused"
    assert (await alice.get("/web/goals")).json() == []
    for answer in (
        await alice.post(f"/web/goals/{session}/resume", json={}),
        await alice.put(f"/web/goals/{session}", json={"text": "Lose"}),
        await alice.delete(f"/web/goals/{session}"),
        await alice.get(f"/web/goals/{session}/verdicts"),
    ):
        assert answer.status_code == 404
