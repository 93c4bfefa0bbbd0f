"""The schedules page: jobs are previewed, created, changed, run and deleted from the browser."""

from datetime import datetime
from typing import Any

import httpx
from tests.api.in_process_server import Hosted
from tests.web.web_client import stream

from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

TEXT = "every weekday 9:00 summarise my inbox"


async def _add(client: httpx.AsyncClient, **values: object) -> dict[str, Any]:
    answer = await client.post("/web/schedules", json={"prompt": TEXT, **values})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def test_a_preview_shows_the_next_five_runs(owner: httpx.AsyncClient) -> None:
    query = {"text": TEXT, "zone": "Europe/Berlin"}
    shown = (await owner.get("/web/schedule-preview", params=query)).json()["preview"]
    assert (shown["schedule"], shown["prompt"]) == ("every weekday 9:00", "summarise my inbox")
    times = [datetime.fromisoformat(one) for one in shown["next"]]
    assert len(times) == 5
    assert times == sorted(times)
    assert all(told.endswith("09:00 Europe/Berlin") for told in shown["next_told"])
    once = (await owner.get("/web/schedule-preview", params={"text": "in 30m call mum"})).json()["preview"]
    assert (once["prompt"], len(once["next"])) == ("call mum", 1)
    unclear = (await owner.get("/web/schedule-preview", params={"text": "some day, perhaps"})).json()
    assert unclear["preview"] is None
    assert "every monday 9:00" in unclear["problem"]


async def test_a_job_is_created_once_changed_paused_and_deleted(owner: httpx.AsyncClient) -> None:
    async with stream(owner, "schedules") as messages:
        job = await _add(owner, id="draft-1", name="Inbox")
        assert (await _add(owner, id="draft-1", name="Inbox"))["id"] == job["id"]
        async for message in messages:
            if message == {"topic": "changed", "page": "schedules"}:
                break
    path = f"/web/schedules/{job['id']}"
    changed = (await owner.patch(path, json={"when": "every 2h", "prompt": "Read it"})).json()
    assert (changed["schedule"], changed["prompt"], changed["name"]) == ("every 2h", "Read it", "Inbox")
    assert (await owner.patch(path, json={"paused": True})).json()["state"] == "paused"
    listed = (await owner.get("/web/schedules")).json()
    assert (len(listed["jobs"]), listed["has_gateway"]) == (1, False)
    assert (await owner.delete(path)).status_code == 200
    assert (await owner.get("/web/schedules")).json()["jobs"] == []


async def test_a_job_runs_now_without_a_gateway(owner: httpx.AsyncClient, model: ModelServer) -> None:
    model.otherwise(Say("Nothing new."))
    job = await _add(owner)
    assert (await owner.post(f"/web/schedules/{job['id']}/run", json={})).status_code == 200

    async def ended() -> bool:
        runs = (await owner.get(f"/web/schedules/{job['id']}/runs")).json()["runs"]
        return bool(runs) and runs[0]["state"] != "running"

    await until(ended)
    (run,) = (await owner.get(f"/web/schedules/{job['id']}/runs")).json()["runs"]
    assert (run["state"], run["output"]) == ("done", "Nothing new.")
    assert (await owner.get(f"/web/sessions/{run['session_id']}")).status_code == 200


async def test_guests_have_their_own_jobs_without_scripts(
    host: Hosted, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    job = await _add(owner)
    assert (await alice.get("/web/schedules")).json()["jobs"] == []
    assert (await alice.delete(f"/web/schedules/{job['id']}")).status_code == 404
    refused = await alice.post("/web/schedules", json={"prompt": TEXT, "script": "cat /etc/passwd"})
    assert refused.status_code == 409
    hers = await _add(alice)
    assert hers["owner"] == "alice"
    assert len((await owner.get("/web/schedules")).json()["jobs"]) == 2
