"""A session over the web app's routes: messages, stream, steering, stop, answers, commands."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.in_process_server import Hosted, hosted
from tests.web.web_client import begin, events_until, settled, stream, text_of, web_client

from talaria.app.api import open_api
from talaria.core.aio import SupervisedTaskGroup
from talaria.testing.model_server import Ask, ModelServer, Say, refused
from talaria.testing.wait import until


async def _messages(client: httpx.AsyncClient, session: str, query: str = "") -> Any:
    return (await client.get(f"/web/sessions/{session}/messages{query}")).json()


async def test_a_reply_is_streamed_and_equals_the_transcript(model: ModelServer, owner: httpx.AsyncClient) -> None:
    reply = "One, two, three. " * 20
    model.answering(lambda asked: Say(reply, chunks=50, pause=0.002) if asked.question == "Count" else Say("Hello."))
    session = await begin(owner, "Hi")
    await settled(owner, session, 2)
    async with stream(owner, f"session:{session}") as messages:
        await owner.post(f"/web/sessions/{session}/messages", json={"text": "Count", "id": "m2"})
        events = await events_until(messages, "answered")
    assert text_of(events).strip() == reply.strip()
    stored = (await _messages(owner, session))["messages"]
    assert [one["role"] for one in stored] == ["user", "assistant", "user", "assistant"]
    assert stored[-1]["parts"][0]["text"].strip() == reply.strip()


async def test_late_stream_gets_a_snapshot_of_the_running_turn(model: ModelServer, owner: httpx.AsyncClient) -> None:
    model.script(Say("word " * 200, pause=0.01))
    session = await begin(owner, "Go")
    async with stream(owner, f"session:{session}", stream_id="first") as early:
        await events_until(early, "text")
        async with stream(owner, f"session:{session}", stream_id="second") as late:
            await anext(late)
            snapshot = await anext(late)
            assert snapshot["snapshot"] is True
            assert snapshot["events"][0]["text"] == "Go"
            assert text_of(snapshot["events"]).startswith("word")
            first, second = await asyncio.gather(events_until(early, "answered"), events_until(late, "answered"))
            assert first[-1]["text"] == second[-1]["text"] == "word " * 200


async def test_message_sent_twice_is_stored_once(model: ModelServer, owner: httpx.AsyncClient) -> None:
    model.otherwise(Say("Yes."))
    session = await begin(owner, "Hi")
    await settled(owner, session, 2)
    for _ in range(3):
        sent = await owner.post(f"/web/sessions/{session}/messages", json={"text": "Again", "id": "same"})
        assert sent.status_code == 200
    await settled(owner, session, 4)
    assert (await _messages(owner, session))["messages"][-1]["seq"] == 4


async def test_a_running_turn_is_stopped(model: ModelServer, owner: httpx.AsyncClient) -> None:
    model.script(Say("and so on " * 2000, pause=0.05))
    session = await begin(owner, "Go")
    async with stream(owner, f"session:{session}") as messages:
        await events_until(messages, "text")
        assert (await owner.get(f"/web/sessions/{session}")).json()["running"] is True
        assert (await owner.post(f"/web/sessions/{session}/stop", json={})).status_code == 200
        await events_until(messages, "stopped")
    await settled(owner, session, 1)
    assert (await owner.post(f"/web/sessions/{session}/stop", json={})).status_code == 409


async def test_answered_approval_closes_its_question(model: ModelServer, owner: httpx.AsyncClient) -> None:
    model.script(Say(calls=[Ask("terminal", {"command": "rm -rf *"})]), Say("Not done."))
    session = await begin(owner, "Clean up")
    async with stream(owner, f"session:{session}") as messages:
        events = await events_until(messages, "approval_asked")
        (asked,) = [event for event in events if event["type"] == "approval_asked"]
        assert "rm -rf *" in asked["summary"]
        path = f"/web/sessions/{session}/answers/{asked['id']}"
        assert (await owner.post(path, json={"text": "no"})).status_code == 200
        rest = await events_until(messages, "answered")
    kinds = [event["type"] for event in rest]
    assert "question_closed" in kinds
    assert "tool_refused" in kinds
    assert (await owner.post(path, json={"text": "once"})).status_code == 409


@pytest.mark.parametrize(("reason", "read"), [("Use the trash.", "Use the trash."), ("always", "“always”")])
async def test_reason_of_a_refusal_is_sent_to_the_model(
    model: ModelServer, owner: httpx.AsyncClient, reason: str, read: str
) -> None:
    model.script(Say(calls=[Ask("terminal", {"command": "rm -rf *"})]), Say("Not done."))
    session = await begin(owner, "Clean up")
    async with stream(owner, f"session:{session}") as messages:
        events = await events_until(messages, "approval_asked")
        (asked,) = [event for event in events if event["type"] == "approval_asked"]
        path = f"/web/sessions/{session}/answers/{asked['id']}"
        assert (await owner.post(path, json={"text": "no", "reason": reason})).status_code == 200
        rest = await events_until(messages, "answered")
    assert "tool_refused" in [event["type"] for event in rest]
    assert any(f"the user refused: {read}" in str(received.json) for received in model.received)


async def test_answer_to_a_question_reaches_the_tool_call(model: ModelServer, owner: httpx.AsyncClient) -> None:
    ask = Ask("clarify", {"question": "Which one?", "choices": ["red", "blue"]})
    model.script(Say(calls=[ask]), Say("Blue it is."))
    session = await begin(owner, "Paint it")
    async with stream(owner, f"session:{session}") as messages:
        events = await events_until(messages, "question_asked")
        (asked,) = [event for event in events if event["type"] == "question_asked"]
        await owner.post(f"/web/sessions/{session}/answers/{asked['id']}", json={"text": "blue"})
        await events_until(messages, "answered")
    stored = (await _messages(owner, session))["messages"]
    assert any("blue" in part.get("text", "") for one in stored if one["role"] == "tool" for part in one["parts"])


async def test_a_message_steers_the_running_turn(model: ModelServer, owner: httpx.AsyncClient) -> None:
    ask = Ask("clarify", {"question": "Ready?", "choices": ["yes", "no"]})
    model.script(Say(calls=[ask]), Say("As you wish."))
    session = await begin(owner, "Go")
    async with stream(owner, f"session:{session}") as messages:
        events = await events_until(messages, "question_asked")
        (asked,) = [event for event in events if event["type"] == "question_asked"]
        steering = {"text": "But faster", "id": "m2", "steer": True}
        await owner.post(f"/web/sessions/{session}/messages", json=steering)
        await owner.post(f"/web/sessions/{session}/answers/{asked['id']}", json={"text": "yes"})
        joined = await events_until(messages, "answered")
    assert [event["text"] for event in joined if event["type"] == "person_joined"] == ["But faster"]


async def test_commands_run_through_the_registry(model: ModelServer, owner: httpx.AsyncClient) -> None:
    model.otherwise(Say("Yes."))
    commands = {one["name"] for one in (await owner.get("/web/me")).json()["commands"]}
    assert {"help", "model", "new", "branch"} <= commands
    session = await begin(owner, "Hi")
    await settled(owner, session, 2)
    shown = (await owner.post(f"/web/sessions/{session}/commands", json={"text": "/title Holidays"})).json()
    assert shown["shown"]
    assert (await owner.get(f"/web/sessions/{session}")).json()["title"] == "Holidays"
    branch = (await owner.post(f"/web/sessions/{session}/commands", json={"text": "/branch"})).json()
    assert branch["session_id"] not in ("", session)
    copied = (await _messages(owner, branch["session_id"]))["messages"]
    assert [one["role"] for one in copied] == ["user", "assistant"]
    unknown = (await owner.post("/web/commands", json={"text": "/nonsense"})).json()
    assert "no command" in unknown["shown"][0]
    assert unknown["session_id"] == ""


async def test_voice_command_is_refused_in_the_web_app(owner: httpx.AsyncClient, alice: httpx.AsyncClient) -> None:
    for person in (owner, alice):
        refused = (await person.post("/web/commands", json={"text": "/voice on"})).json()
        assert "for chat networks" in refused["shown"][0]


@pytest.mark.parametrize(
    ("command", "field", "value"),
    [("/plan", "planning", True), ("/reasoning high", "effort", "high"), ("/title Holidays", "title", "Holidays")],
)
async def test_command_without_a_session_starts_one_with_its_option(
    owner: httpx.AsyncClient, command: str, field: str, value: object
) -> None:
    started = (await owner.post("/web/commands", json={"text": command})).json()
    assert (await owner.get(f"/web/sessions/{started['session_id']}")).json()[field] == value


async def test_a_command_offers_completions(model: ModelServer, owner: httpx.AsyncClient) -> None:
    model.otherwise(Say("Yes."))
    session = await begin(owner, "Hi")
    await settled(owner, session, 2)
    query = {"text": "/reasoning ", "session": session}
    offered = (await owner.get("/web/completions", params=query)).json()
    assert all(one["value"] for one in offered)
    assert offered


async def test_sessions_are_listed_searched_renamed_archived_and_deleted(
    model: ModelServer, owner: httpx.AsyncClient
) -> None:
    model.otherwise(Say("The answer mentions platypus."))
    session = await begin(owner, "Tell me")
    await settled(owner, session, 2)

    async def is_found() -> bool:
        hits = (await owner.get("/web/search", params={"q": "platypus"})).json()
        return [one["session_id"] for one in hits] == [session]

    await until(is_found)
    async with stream(owner, "sessions") as messages:
        assert (await anext(messages))["topic"] == "hello"
        await asyncio.sleep(0)
        edited = await owner.patch(f"/web/sessions/{session}", json={"title": "Animals", "archived": True})
        assert edited.json()["title"] == "Animals"
    assert (await owner.get("/web/sessions")).json()["sessions"] == []
    (archived,) = (await owner.get("/web/sessions", params={"archived": "true"})).json()["sessions"]
    assert archived["id"] == session
    await owner.patch(f"/web/sessions/{session}", json={"archived": False})
    assert (await owner.request("DELETE", f"/web/sessions/{session}", json={})).status_code == 200
    assert (await owner.get(f"/web/sessions/{session}")).status_code == 404


async def test_session_list_stream_reports_new_sessions(model: ModelServer, owner: httpx.AsyncClient) -> None:
    model.otherwise(Say("Yes."))
    async with stream(owner, "sessions") as messages:
        assert (await anext(messages))["topic"] == "hello"

        async def rows() -> list[Any]:
            async for message in messages:
                if message["topic"] == "sessions":
                    return list(message["rows"])
            return []

        async with asyncio.TaskGroup() as group:
            listing = group.create_task(rows())
            first = await begin(owner, "One", "m1")
            await settled(owner, first, 2)
            second = await begin(owner, "Two", "m2")
            await settled(owner, second, 2)
    assert {row["id"] for row in listing.result()} & {first, second}


async def test_messages_are_read_backwards_in_pages(model: ModelServer, owner: httpx.AsyncClient) -> None:
    model.otherwise(Say("Yes."))
    session = await begin(owner, "1")
    await settled(owner, session, 2)
    await owner.post(f"/web/sessions/{session}/messages", json={"text": "2", "id": "m2"})
    await settled(owner, session, 4)
    last = await _messages(owner, session, "?limit=3")
    assert ([one["seq"] for one in last["messages"]], last["more"]) == ([2, 3, 4], True)
    before = await _messages(owner, session, "?limit=3&before=2")
    assert ([one["seq"] for one in before["messages"]], before["more"]) == ([1], False)
    after = await _messages(owner, session, "?after=3")
    assert [one["seq"] for one in after["messages"]] == [4]


async def test_a_failure_shows_its_details_to_the_owner_only(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, '[people.alice]\nids = ["telegram:7"]\n') as host:
        endings = {}
        for person in ("", "alice"):
            async with web_client(host, person=person) as client:
                model.otherwise(Say("Yes."))
                session = await begin(client, "Hi", f"a{person}")
                await settled(client, session, 2)
                model.otherwise(refused())
                async with stream(client, f"session:{session}") as messages:
                    await client.post(f"/web/sessions/{session}/messages", json={"text": "Fail", "id": f"b{person}"})
                    endings[person] = (await events_until(messages, "failed"))[-1]
    assert endings[""]["details"]
    assert endings["alice"]["details"] == ""


async def test_session_run_by_another_server_is_shown_and_stopped(model: ModelServer, host: Hosted) -> None:
    model.script(Say("word " * 500, pause=0.02))
    async with SupervisedTaskGroup() as jobs, open_api(host.application, jobs, port=0) as url:
        other = Hosted(host.application, url, host.http)
        async with web_client(host) as runs, web_client(other) as watches:
            session = await begin(runs, "Go")
            async with stream(watches, f"session:{session}") as messages:
                events = await events_until(messages, "text")
                detail = (await watches.get(f"/web/sessions/{session}")).json()
                assert detail["running"] is True
                assert detail["elsewhere"] is True
                refused_command = {"text": "/model x"}
                answer = await watches.post(f"/web/sessions/{session}/commands", json=refused_command)
                assert answer.status_code == 409
                stopped = await watches.post(f"/web/sessions/{session}/commands", json={"text": "/stop"})
                assert stopped.status_code == 200
                await events_until(messages, "stopped")
    assert events[0]["text"] == "Go"
