"""Requests of API keys and running turns of other people: each text has the rights of its sender."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
from tests.api.server_process import ServerSentEvent, follow
from tests.system.shared_group import GUEST, SECONDS
from tests.system.shared_group_process import GroupProcess, prepare_group_process

from talaria.testing.wait import until

SESSION = "x-talaria-session-id"
WAYS = (("", "message"), ("/steer ", "steered"), ("/queue ", "queued"))
TEXTS = ("RUN foreign", "/steer RUN foreign", "/queue RUN foreign")


def requests_for(session_id: str, text: str) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """Return every way to send a text into a session: path, body and headers."""
    completion = {"messages": [{"role": "user", "content": text}]}
    named = {SESSION: session_id}
    return [
        ("/v1/runs", {"input": text, "session_id": session_id}, {}),
        ("/v1/runs", {"input": text}, named),
        ("/v1/chat/completions", completion, named),
        ("/v1/responses", {"input": text}, named),
        ("/v1/responses", {"input": text, "conversation": session_id}, {}),
        ("/v1/responses", {"input": text, "background": True}, named),
    ]


async def check_refused(http: httpx.AsyncClient, session_id: str, status: int) -> None:
    """Check that every request for a session is refused."""
    for text in TEXTS:
        for path, body, headers in requests_for(session_id, text):
            answer = await http.post(path, json=body, headers=headers)
            assert answer.status_code == status, (path, answer.text)


async def start_run(http: httpx.AsyncClient, text: str, **more: str) -> dict[str, Any]:
    """Start a run and return it."""
    answer = await http.post("/v1/runs", json={"input": text, **more})
    assert answer.status_code == 202, answer.text
    run: dict[str, Any] = answer.json()
    return run


async def wait_until_ended(http: httpx.AsyncClient, run: dict[str, Any]) -> None:
    """Wait until a run has ended."""

    async def is_over() -> bool:
        status: str = (await http.get(f"/v1/runs/{run['id']}")).json()["status"]
        return status in ("completed", "failed", "stopped")

    await until(is_over)


async def wait_until_held(here: GroupProcess) -> None:
    """Wait until a turn calls the model and is held there."""
    async with asyncio.timeout(SECONDS):
        await here.held.wait()


def reached_the_model(here: GroupProcess, text: str) -> bool:
    return any(text in one.body.decode() for one in here.server.received)


async def test_keys_without_admin_scope_cannot_join_a_turn_of_the_owner(tmp_path: Path) -> None:
    async with prepare_group_process(tmp_path, busy="steer") as here, here.running():
        await here.move_session_to_group()
        await here.hold()
        for name, status in (("chat", 404), ("agent", 404), ("read", 403)):
            async with here.caller(name) as http:
                await check_refused(http, here.session_id, status)
        here.say(GUEST, "next")
        await here.pending("next")
        here.released.set()
        await here.answered("HOLD", "next")
        assert not here.ran("foreign")
        assert not reached_the_model(here, "foreign")


async def test_text_of_an_admin_key_waits_for_its_own_turn(tmp_path: Path) -> None:
    async with prepare_group_process(tmp_path, busy="steer") as here, here.running(), here.caller("admin") as http:
        await here.move_session_to_group()
        await here.hold()
        runs = [await start_run(http, f"{command}RUN {word}", session_id=here.session_id) for command, word in WAYS]
        here.say(GUEST, "RUN foreign")
        await here.pending("RUN foreign")
        here.released.set()
        await here.answered("HOLD", "RUN foreign")
        for run in runs:
            await wait_until_ended(http, run)
        assert not here.ran("foreign")
        assert not any(here.share_a_turn("HOLD", f"RUN {word}") for _, word in WAYS)
        assert not any(here.share_a_turn("RUN foreign", f"RUN {word}") for _, word in WAYS)


async def test_text_of_a_guest_after_a_run_has_guest_rights_and_is_answered(tmp_path: Path) -> None:
    async with prepare_group_process(tmp_path, busy="steer") as here, here.running(), here.caller("admin") as http:
        await here.move_session_to_group()
        run = await start_run(http, "HOLD RUN admin", session_id=here.session_id)
        await wait_until_held(here)
        here.say(GUEST, "RUN foreign")
        await here.pending("RUN foreign")
        here.released.set()
        await wait_until_ended(http, run)
        await here.answered("RUN foreign")
        assert here.ran("admin")
        assert not here.ran("foreign")
        assert not here.share_a_turn("RUN admin", "RUN foreign")


async def test_keys_cannot_join_the_run_of_another_key(tmp_path: Path) -> None:
    async with prepare_group_process(tmp_path) as here, here.running(), here.caller("chat") as http:
        here.server.answering(here.obey)
        run = await start_run(http, "HOLD")
        await wait_until_held(here)
        for name, status in (("friend", 404), ("agent", 404), ("read", 403)):
            async with here.caller(name) as other:
                await check_refused(other, run["session_id"], status)
                assert (await other.post(f"/v1/runs/{run['id']}/stop")).status_code == status
        async with here.caller("admin") as admin:
            later = await start_run(admin, "RUN admin", session_id=run["session_id"])
            own = await start_run(http, "RUN own", session_id=run["session_id"])
            here.released.set()
            for one in (run, later, own):
                await wait_until_ended(admin, one)
        assert not reached_the_model(here, "foreign")
        assert not here.ran("own")
        assert not here.share_a_turn("HOLD", "RUN admin")
        assert not here.share_a_turn("RUN admin", "RUN own")


async def test_only_an_admin_key_can_approve_a_tool_call_of_a_run(tmp_path: Path) -> None:
    async with prepare_group_process(tmp_path, mode="allow-list") as here, here.running(), here.caller("agent") as http:
        here.server.answering(here.obey)
        run = await start_run(http, "RUN asked")
        where = f"/v1/runs/{run['id']}"
        asked = (await follow(http, f"{where}/events", until=_is_approval))[-1].data["id"]
        for name, yes, no in (("chat", 403, 404), ("friend", 403, 404), ("read", 403, 403), ("agent", 403, None)):
            async with here.caller(name) as other:
                for decision, status in (("approve", yes), ("approve_always", yes), ("deny", no)):
                    body = {"id": asked, "decision": decision}
                    if status is not None:
                        assert (await other.post(f"{where}/approval", json=body)).status_code == status, name
        async with here.caller("friend") as friend:
            await check_refused(friend, run["session_id"], 404)
        assert not here.ran("asked")
        async with here.caller("admin") as admin:
            allowed = await admin.post(f"{where}/approval", json={"id": asked, "decision": "approve"})
            assert allowed.status_code == 200, allowed.text
            await wait_until_ended(admin, run)
        assert here.ran("asked")


def _is_approval(event: ServerSentEvent) -> bool:
    return event.name == "approval.requested"
