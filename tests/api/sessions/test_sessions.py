"""`/v1/sessions`: sessions of all surfaces are listed, read, searched, forked and deleted."""

from typing import Any

import httpx
from tests.api.server_process import Server, client
from tests.app.program_with_model import talk

from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until


async def _say(http: httpx.AsyncClient, text: str, session: str = "") -> str:
    """Send a message, and return the id of its session."""
    headers = {"x-talaria-session-id": session} if session else {}
    body = {"messages": [{"role": "user", "content": text}]}
    response = await http.post("/v1/chat/completions", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.headers["x-talaria-session-id"]


async def _get(http: httpx.AsyncClient, path: str, **query: object) -> Any:
    response = await http.get(path, params={name: str(value) for name, value in query.items()})
    assert response.status_code == 200, response.text
    return response.json()


async def test_pages_of_the_session_list_are_complete(http: httpx.AsyncClient) -> None:
    made = [await _say(http, f"Number {number}") for number in range(7)]
    found, after = [], ""
    while True:
        page = await _get(http, "/v1/sessions", limit=3, after=after)
        found += [one["id"] for one in page["data"]]
        if not page["has_more"]:
            break
        after = page["next"]
    assert found == made[::-1]
    assert page["next"] is None


async def test_sessions_of_the_terminal_are_listed(http: httpx.AsyncClient, server: Server) -> None:
    await _say(http, "Over HTTP")
    assert (await talk(server.program, "chat", "-q", "In the terminal")).code == 0
    assert {one["source"] for one in (await _get(http, "/v1/sessions"))["data"]} == {"api", "cli"}
    (own,) = (await _get(http, "/v1/sessions", source="cli"))["data"]
    shown = await _get(http, f"/v1/sessions/{own['id']}")
    assert (shown["message_count"], shown["running"], shown["address"]) == (2, False, None)
    assert (await _get(http, "/v1/sessions", q=own["id"]))["data"][0]["id"] == own["id"]


async def test_messages_can_be_read_from_any_number(http: httpx.AsyncClient) -> None:
    session = await _say(http, "One")
    await _say(http, "Two", session)
    first = await _get(http, f"/v1/sessions/{session}/messages", limit=3)
    rest = await _get(http, f"/v1/sessions/{session}/messages", after=first["data"][-1]["seq"])
    assert [(one["role"], one["text"]) for one in first["data"] + rest["data"]] == [
        ("user", "One"),
        ("assistant", "ok"),
        ("user", "Two"),
        ("assistant", "ok"),
    ]
    assert (first["has_more"], rest["has_more"]) == (True, False)


async def test_sessions_are_found_by_the_text_of_messages(http: httpx.AsyncClient) -> None:
    session = await _say(http, "Where is the marmalade?")
    await _say(http, "Where is the butter?")
    found = await _get(http, "/v1/sessions/search", q="marmalade")
    assert [one["session_id"] for one in found["data"]] == [session]
    assert "[marmalade]" in found["data"][0]["snippet"]
    assert (await http.get("/v1/sessions/search")).status_code == 400


async def test_fork_continues_separately_from_the_original(http: httpx.AsyncClient, model: ModelServer) -> None:
    session = await _say(http, "One")
    await _say(http, "Two", session)
    made = await http.post(f"/v1/sessions/{session}/fork", json={"upto": 2, "title": "Another way"})
    fork = made.json()
    assert (made.status_code, fork["parent_id"], fork["parent_seq"]) == (201, session, 2)
    await _say(http, "Three", fork["id"])
    texts = [one["content"] for one in model.received[-1].json["messages"][1:]]
    assert texts == ["One", "ok", "Three"]
    assert len((await _get(http, f"/v1/sessions/{session}/messages"))["data"]) == 4
    assert (await http.post(f"/v1/sessions/{session}/fork", json={"upto": 99})).status_code == 400


async def test_a_deleted_session_is_gone(http: httpx.AsyncClient) -> None:
    session = await _say(http, "One")
    assert (await http.delete(f"/v1/sessions/{session}")).json() == {
        "id": session,
        "object": "session.deleted",
        "deleted": True,
    }
    for path in (f"/v1/sessions/{session}", f"/v1/sessions/{session}/messages"):
        assert (await http.get(path)).json()["error"]["code"] == "session_not_found"


async def test_session_with_a_running_turn_cannot_be_deleted(http: httpx.AsyncClient, model: ModelServer) -> None:
    model.script(Say("and so on " * 300, pause=0.05))
    run = (await http.post("/v1/runs", json={"input": "Go."})).json()
    await model.arrived()
    assert (await http.delete(f"/v1/sessions/{run['session_id']}")).status_code == 409
    assert (await http.post(f"/v1/runs/{run['id']}/stop")).json()["status"] == "stopped"


async def test_move_is_refused_without_a_chat_network(http: httpx.AsyncClient) -> None:
    session = await _say(http, "One")
    refused = await http.post(f"/v1/sessions/{session}/move", json={"to": "telegram"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_network")


async def test_key_cannot_access_runs_and_responses_of_another_key(server: Server, http: httpx.AsyncClient) -> None:
    tokens = []
    for name in ("ann", "bob"):
        made = await talk(server.program, "api-keys", "create", name, "--scope", "chat", "--json")
        tokens.append(str(httpx.Response(200, text=made.out).json()["key"]))

    async def are_known() -> bool:
        headers = {"authorization": f"Bearer {tokens[-1]}"}
        return (await http.get("/v1/capabilities", headers=headers)).status_code == httpx.codes.OK

    await until(are_known)
    async with client(server, tokens[0]) as ann, client(server, tokens[1]) as bob:
        run = (await ann.post("/v1/runs", json={"input": "Go."})).json()
        response = (await ann.post("/v1/responses", json={"input": "Go.", "conversation": "ours"})).json()
        for path in (f"/v1/runs/{run['id']}", f"/v1/runs/{run['id']}/events", f"/v1/responses/{response['id']}"):
            assert (await bob.get(path)).status_code == 404
        for path in (f"/v1/runs/{run['id']}/stop", f"/v1/responses/{response['id']}/cancel"):
            assert (await bob.post(path)).status_code == 404
        on = {"input": "On.", "previous_response_id": response["id"]}
        assert (await bob.post("/v1/responses", json=on)).status_code == 404
        body = {"input": "On.", "session_id": run["session_id"]}
        assert (await bob.post("/v1/runs", json=body)).status_code == 404
        item = [{"type": "item_reference", "id": response["output"][0]["id"]}, {"role": "user", "content": "x"}]
        assert (await bob.post("/v1/responses", json={"input": item})).status_code == 400
        same = (await bob.post("/v1/responses", json={"input": "Mine.", "conversation": "ours"})).headers
        assert same["x-talaria-session-id"] != run["session_id"]
        assert (await ann.get(f"/v1/responses/{response['id']}")).status_code == 200


async def test_key_can_do_only_what_its_scopes_allow(server: Server, http: httpx.AsyncClient) -> None:
    session = await _say(http, "One")
    keys = {}
    for scope in ("chat", "read", "admin"):
        made = await talk(server.program, "api-keys", "create", scope, "--scope", scope, "--json")
        assert made.code == 0, made.err
        keys[scope] = made.out

    def token(scope: str) -> str:
        created: dict[str, Any] = httpx.Response(200, text=keys[scope]).json()
        return str(created["key"])

    async def status(scope: str, method: str, path: str) -> int:
        async with client(server, token(scope)) as one:
            return (await one.request(method, path, json={} if method == "POST" else None)).status_code

    async def is_enforced() -> bool:
        return await status("chat", "GET", "/v1/sessions") == httpx.codes.FORBIDDEN

    await until(is_enforced)  # the first key takes effect up to a second later
    async with client(server, token("chat")) as one:
        for decision in ("approve", "approve_session", "approve_always"):
            refused = await one.post("/v1/runs/run_x/approval", json={"id": "any", "decision": decision})
            assert (refused.status_code, refused.json()["error"]["param"]) == (403, "decision")
        denied = await one.post("/v1/runs/run_x/approval", json={"id": "any", "decision": "deny"})
        assert denied.status_code == 404
    assert await status("read", "GET", "/v1/sessions") == 200
    assert await status("read", "POST", f"/v1/sessions/{session}/fork") == 403
    assert await status("admin", "POST", f"/v1/sessions/{session}/fork") == 201
    assert await status("read", "DELETE", f"/v1/sessions/{session}") == 403
    assert await status("admin", "DELETE", f"/v1/sessions/{session}") == 200
