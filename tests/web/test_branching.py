"""Edit, retry, branch, queue, export and files of a session over the web app's routes."""

import json
from typing import Any

import httpx
from tests.api.in_process_server import Hosted
from tests.web.web_client import begin, events_until, settled, stream, web_client

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until


async def _texts(client: httpx.AsyncClient, session: str) -> list[str]:
    stored = (await client.get(f"/web/sessions/{session}/messages")).json()["messages"]
    return [part["text"] for one in stored for part in one["parts"] if part["type"] == "text"]


async def _say(client: httpx.AsyncClient, session: str, text: str, count: int) -> None:
    await client.post(f"/web/sessions/{session}/messages", json={"text": text, "id": f"{session}-{count}"})
    await settled(client, session, count)


async def _two_exchanges(model: ModelServer, client: httpx.AsyncClient) -> str:
    model.answering(lambda asked: Say(f"re: {asked.question}"))
    session = await begin(client, "one")
    await settled(client, session, 2)
    await _say(client, session, "two", 4)
    return session


async def test_edited_message_starts_a_branch(model: ModelServer, owner: httpx.AsyncClient) -> None:
    session = await _two_exchanges(model, owner)
    answer = await owner.post(f"/web/sessions/{session}/branch", json={"seq": 3, "text": "three"})
    assert answer.status_code == 200, answer.text
    branch = answer.json()["session_id"]
    await settled(owner, branch, 4)
    assert await _texts(owner, branch) == ["one", "re: one", "three", "re: three"]
    assert await _texts(owner, session) == ["one", "re: one", "two", "re: two"]
    again = (await owner.post(f"/web/sessions/{branch}/branch", json={"seq": 1, "text": "zero"})).json()["session_id"]
    await settled(owner, again, 2)
    assert await _texts(owner, again) == ["zero", "re: zero"]


async def test_only_messages_of_people_can_be_edited(model: ModelServer, owner: httpx.AsyncClient) -> None:
    session = await _two_exchanges(model, owner)
    answer = await owner.post(f"/web/sessions/{session}/branch", json={"seq": 2, "text": "x"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "There is no such message to edit.")


async def test_a_branch_after_a_message_ends_with_its_exchange(model: ModelServer, owner: httpx.AsyncClient) -> None:
    session = await _two_exchanges(model, owner)
    branch = (await owner.post(f"/web/sessions/{session}/branch", json={"seq": 1})).json()["session_id"]
    assert await _texts(owner, branch) == ["one", "re: one"]
    await _say(owner, branch, "other", 4)
    tree = (await owner.get(f"/web/sessions/{branch}/tree")).json()
    assert [(one["id"], one["parent_id"], one["parent_seq"]) for one in tree] == [
        (session, "", 0),
        (branch, session, 2),
    ]
    assert (await owner.get(f"/web/sessions/{session}")).json()["branches"] == 2


async def test_retry_and_undo_continue_in_the_branch(model: ModelServer, owner: httpx.AsyncClient) -> None:
    session = await _two_exchanges(model, owner)
    model.answering(lambda asked: Say(f"once more: {asked.question}"))
    retried = (await owner.post(f"/web/sessions/{session}/commands", json={"text": "/retry"})).json()["session_id"]
    await settled(owner, retried, 4)
    assert await _texts(owner, retried) == ["one", "re: one", "two", "once more: two"]
    assert await _texts(owner, session) == ["one", "re: one", "two", "re: two"]
    undone = (await owner.post(f"/web/sessions/{retried}/commands", json={"text": "/undo"})).json()["session_id"]
    assert await _texts(owner, undone) == ["one", "re: one"]


async def test_editing_during_a_turn_is_refused(model: ModelServer, owner: httpx.AsyncClient) -> None:
    session = await _two_exchanges(model, owner)
    model.answering(lambda _: Say("word " * 500, pause=0.05))
    async with stream(owner, f"session:{session}") as messages:
        await owner.post(f"/web/sessions/{session}/messages", json={"text": "go", "id": "go"})
        await events_until(messages, "text")
        answer = await owner.post(f"/web/sessions/{session}/branch", json={"seq": 1, "text": "x"})
        assert answer.status_code == 409
        assert "Stop it first" in answer.json()["error"]["message"]
        await owner.post(f"/web/sessions/{session}/stop", json={})
        await events_until(messages, "stopped")


async def test_queued_message_can_be_withdrawn_by_its_sender_only(
    host: Hosted, model: ModelServer, owner: httpx.AsyncClient
) -> None:
    model.answering(lambda _: Say("word " * 500, pause=0.05))
    session = await begin(owner, "go")
    async with stream(owner, f"session:{session}") as messages:
        await events_until(messages, "text")
        for name in ("later", "never"):
            await owner.post(f"/web/sessions/{session}/messages", json={"text": name, "id": name})
        queued = (await owner.get(f"/web/sessions/{session}")).json()["queued"]
        assert [(one["text"], one["own"]) for one in queued] == [("later", True), ("never", True)]
        path = f"/web/sessions/{session}/queue/{queued[1]['id']}"
        async with web_client(host, person="alice") as alice:
            assert (await alice.request("DELETE", path, json={})).status_code == 404
        assert (await owner.request("DELETE", path, json={})).status_code == 200
        assert (await owner.request("DELETE", path, json={})).status_code == 409
        left = (await owner.get(f"/web/sessions/{session}")).json()["queued"]
        assert [one["text"] for one in left] == ["later"]
        model.answering(lambda _: Say("Done."))
        await owner.post(f"/web/sessions/{session}/stop", json={})
        await settled(owner, session, 3)
    assert "never" not in await _texts(owner, session)


async def test_session_is_exported_as_markdown_and_json(
    model: ModelServer, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    session = await _two_exchanges(model, owner)
    await owner.patch(f"/web/sessions/{session}", json={"title": 'Tïtle "quoted"\n'})
    as_markdown = await owner.get(f"/web/sessions/{session}/export")
    assert as_markdown.headers["content-disposition"] == f'attachment; filename="{session}-ttle-quoted.md"'
    assert "re: two" in as_markdown.text
    as_json = (await owner.get(f"/web/sessions/{session}/export", params={"format": "json"})).json()
    assert [one["seq"] for one in as_json["messages"]] == [1, 2, 3, 4]
    assert (await owner.get(f"/web/sessions/{session}/export", params={"format": "exe"})).status_code == 400
    assert (await alice.get(f"/web/sessions/{session}/export")).status_code == 404


async def test_options_are_chosen_before_the_first_message(model: ModelServer, owner: httpx.AsyncClient) -> None:
    model.otherwise(Say("Yes."))
    offered = (await owner.get("/web/completions", params={"text": "/reasoning "})).json()
    assert "high" in [one["value"] for one in offered]
    listed = (await owner.get("/web/sessions")).json()["sessions"]
    assert listed == []
    body = {"text": "Hi", "id": "m1", "commands": ["/reasoning high"]}
    session = (await owner.post("/web/sessions", json=body)).json()["session_id"]
    await settled(owner, session, 2)
    detail = (await owner.get(f"/web/sessions/{session}")).json()
    assert (detail["effort"], detail["context_limit"] > 0) == ("high", True)


async def test_only_the_owner_can_mention_files(
    host: Hosted, model: ModelServer, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    model.script(Say(calls=[Ask("write_file", {"path": "notes.md", "content": "The tide is high."})]))
    model.otherwise(Say("Done."))
    session = await begin(owner, "Write notes")
    await settled(owner, session, 4)
    found = (await owner.get("/web/completions", params={"text": "@no", "session": session})).json()
    assert [one["value"] for one in found] == ["notes.md"]
    await _say(owner, session, "Read @notes.md", 6)
    stored = (await owner.get(f"/web/sessions/{session}/messages")).json()["messages"][4]["parts"]
    assert stored[0]["text"] == "Read @notes.md"
    assert "The tide is high." in stored[1]["text"]
    guest = await begin(alice, "Read @notes.md and @/etc/hostname")
    await settled(alice, guest, 2)
    assert (await _texts(alice, guest))[0] == "Read @notes.md and @/etc/hostname"
    assert len((await alice.get(f"/web/sessions/{guest}/messages")).json()["messages"][0]["parts"]) == 1
    assert (await alice.get("/web/completions", params={"text": "@", "session": guest})).json() == []


async def test_full_output_of_a_tool_can_be_fetched(
    model: ModelServer, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    model.script(Say(calls=[Ask("terminal", {"command": "seq 1 20000"})]), Say("Done."))
    session = await begin(owner, "Count")
    await settled(owner, session, 4)
    messages = (await owner.get(f"/web/sessions/{session}/messages")).json()["messages"]
    (shown,) = [part["text"] for one in messages for part in one["parts"] if part["type"] == "tool_result"]
    assert "\n10000\n" not in shown
    name = shown.partition("; use read_file")[0].rpartition("/")[2]
    path = f"/web/sessions/{session}/outputs/{name}"
    assert "\n10000\n" in (await owner.get(path)).json()["text"]
    assert (await owner.get(f"/web/sessions/{session}/outputs/..%2F..%2Fconfig.toml")).status_code == 404
    assert (await alice.get(path)).status_code in (403, 404)
    branch = (await owner.post(f"/web/sessions/{session}/branch", json={"seq": 1})).json()["session_id"]
    assert (await owner.get(f"/web/sessions/{branch}/outputs/{name}")).status_code == 200


async def test_search_and_list_are_filtered(
    model: ModelServer, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    model.otherwise(Say("A platypus."))
    mine, hers = await begin(owner, "Animal?"), await begin(alice, "Animal?")
    await settled(owner, mine, 2)
    await settled(alice, hers, 2)

    async def found(**query: str) -> set[str]:
        hits: Any = (await owner.get("/web/search", params={"q": "platypus", **query})).json()
        return {one["session_id"] for one in hits}

    async def finds_both() -> bool:
        return await found() == {mine, hers}

    await until(finds_both)
    assert await found(owner="alice") == {hers}
    assert await found(owner="") == {mine}
    assert await found(source="telegram") == set()
    await owner.patch(f"/web/sessions/{mine}", json={"archived": True})
    assert (await found(archived="true"), await found(archived="false")) == ({mine}, {hers})
    rows = (await owner.get("/web/sessions", params={"owner": "alice"})).json()["sessions"]
    assert [one["id"] for one in rows] == [hers]
    assert (await owner.get("/web/sessions", params={"source": "cli"})).json()["sessions"] == []
    assert json.loads((await alice.get("/web/search", params={"q": "platypus", "owner": ""})).text) == []
