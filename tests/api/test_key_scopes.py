"""Rights of callers: without a key, as a guest, with the scope agent, and as an admin."""

from pathlib import Path

import httpx
import pytest
from tests.api.in_process_server import Hosted, hosted
from tests.api.server_process import ServerSentEvent, follow

from talaria.access.api_keys import KeyScope, create_key, new_token, revoke_key
from talaria.settings.profiles import FolderTrust, Profiles
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until

HI = {"messages": [{"role": "user", "content": "hi"}]}
CHAT, SESSION = "/v1/chat/completions", "x-talaria-session-id"
KEYLESS = "[api]\nkeyless = true\n"
WIDE = '[access]\nguest_tools = ["terminal", "code", "files", "memory", "mcp", "cron", "delegation"]\n'


async def create(host: Hosted, name: str, *scopes: KeyScope) -> dict[str, str]:
    """Create a key and return its authorization header, as soon as the server knows it."""
    token = new_token()
    await host.application.store.write(lambda tx: create_key(tx, name, scopes, token))
    headers = {"authorization": f"Bearer {token}"}

    async def is_known() -> bool:
        refusal = await host.http.delete("/v1/sessions/0123456789abcdef", headers=headers)
        return refusal.status_code == httpx.codes.NOT_FOUND or "you have no key" not in refusal.text

    async def is_accepted() -> bool:
        return (await host.http.get("/v1/models", headers=headers)).status_code == httpx.codes.OK

    await until(is_accepted)
    await until(is_known)
    return headers


def _is_approval(event: ServerSentEvent) -> bool:
    return event.name == "approval.requested"


def tools(model: ModelServer) -> set[str]:
    """Return the names of the tools that the model was offered last."""
    return {one["function"]["name"] for one in model.received[-1].json.get("tools", ())}


async def test_server_without_keys_refuses_every_request(host: Hosted) -> None:
    await host.application.store.write(lambda tx: revoke_key(tx, "first"))

    async def refused() -> bool:
        return (await host.http.get("/v1/models")).status_code == httpx.codes.UNAUTHORIZED

    await until(refused)
    for headers in ({}, {"authorization": ""}, {"authorization": "Bearer"}):
        for method, path in (("GET", "/v1/sessions"), ("POST", "/v1/runs"), ("POST", CHAT), ("GET", "/metrics")):
            answer = await host.http.request(method, path, json=HI, headers=headers)
            assert answer.status_code == 401, (method, path)


async def test_keyless_caller_may_only_chat(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, KEYLESS + WIDE) as host:
        assert host.key == ""
        admin = await create(host, "admin", "admin")
        answer = await host.http.post(CHAT, json=HI)
        assert answer.status_code == 200
        assert tools(model) == {"memory", "session_search", "read_file", "list_files", "search_files"}
        named = {SESSION: answer.headers[SESSION]}
        assert (await host.http.post(CHAT, json=HI, headers=named)).status_code == 200
        owners = {SESSION: (await host.http.post(CHAT, json=HI, headers=admin)).headers[SESSION]}
        assert "terminal" in tools(model)
        assert (await host.http.post(CHAT, json=HI, headers=owners)).status_code == 404
        refused = {
            path: (await host.http.request(method, path, json={})).status_code
            for method, path in (
                ("GET", "/v1/sessions"),
                ("GET", "/metrics"),
                ("DELETE", f"/v1/sessions/{named[SESSION]}"),
                ("POST", f"/v1/sessions/{named[SESSION]}/fork"),
            )
        }
        assert set(refused.values()) == {403}, refused


async def test_approval_needs_an_admin_key(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, KEYLESS) as host:
        admin, agent = await create(host, "admin", "admin"), await create(host, "mine", "agent")
        model.script(Say(calls=[Ask("terminal", {"command": "cat /etc/shadow"})]))
        run = (await host.http.post("/v1/runs", json={"input": "Go."}, headers=agent)).json()
        path = f"/v1/runs/{run['id']}"
        events = await follow(host.http, f"{path}/events", until=_is_approval, headers=agent)
        asked = events[-1].data
        body = {"id": asked["id"], "decision": "approve"}
        tried = [
            (await host.http.post(f"{path}/approval", json=body, headers=headers)).status_code
            for headers in ({}, {"authorization": "Bearer wrong"}, agent, await create(host, "guest", "chat"))
        ]
        assert tried == [403, 403, 403, 403]
        denied = {"id": asked["id"], "decision": "deny"}
        assert (await host.http.post(f"{path}/approval", json=denied, headers=admin)).status_code == 200


async def test_keys_with_the_scope_chat_are_separate_guests(host: Hosted, model: ModelServer) -> None:
    one, other = await create(host, "one", "chat"), await create(host, "other", "chat")
    canary = {"messages": [{"role": "user", "content": "my canary is CANARYONE"}]}
    await host.http.post(CHAT, json=canary)
    await host.http.post(CHAT, json=canary, headers=one)
    assert not {"terminal", "execute_code", "process", "write_file"} & tools(model)
    found = {}
    for name, headers in (("one", one), ("other", other), ("first", {})):
        model.script(Say(calls=[Ask("session_search", {"query": "CANARYONE"})]), Say("done"))
        await host.http.post(CHAT, json=HI, headers=headers)
        found[name] = str(model.received[-1].json["messages"][-1]).count("my canary is")
    assert found == {"one": 1, "other": 0, "first": 1}


async def test_a_key_with_the_scope_agent_has_all_tools_and_no_other_rights(host: Hosted, model: ModelServer) -> None:
    agent = await create(host, "mine", "agent")
    assert (await host.http.post(CHAT, json=HI, headers=agent)).status_code == 200
    assert {"terminal", "execute_code", "write_file"} <= tools(model)
    assert (await host.http.get("/v1/sessions", headers=agent)).status_code == 403


async def test_session_of_a_guest_has_guest_tools_for_every_caller(host: Hosted, model: ModelServer) -> None:
    guest = await create(host, "guest", "chat")
    named = {SESSION: (await host.http.post(CHAT, json=HI, headers=guest)).headers[SESSION]}
    assert (await host.http.post(CHAT, json=HI, headers=named)).status_code == 200  # by the admin
    assert "terminal" not in tools(model)
    run = (await host.http.post("/v1/runs", json={"input": "Go."}, headers=guest)).json()
    await follow(host.http, f"/v1/runs/{run['id']}/events", headers=guest)
    assert "terminal" not in tools(model)


@pytest.mark.parametrize("path", ["api-key", ".api-key.1", ".env"])
async def test_reading_the_key_file_needs_approval(host: Hosted, model: ModelServer, path: str) -> None:
    file = host.application.profile.folder / path
    for call in (Ask("read_file", {"path": str(file)}), Ask("terminal", {"command": f"cat {file}"})):
        model.script(Say(calls=[call]), Say("done"))
        await host.http.post(CHAT, json=HI)
        answer = str(model.received[-1].json["messages"][-1])
        assert host.key not in answer
        assert "refused" in answer.lower() or "not allowed" in answer.lower() or "approv" in answer.lower(), answer


async def test_first_key_is_masked_in_tool_output(host: Hosted, model: ModelServer) -> None:
    model.script(Say(calls=[Ask("terminal", {"command": f"echo {host.key}"})]), Say("done"))
    await host.http.post(CHAT, json=HI)
    assert host.key not in str(model.received[-1].json["messages"][-1])


async def test_notice_about_an_untrusted_folder_is_for_the_owner_only(
    tmp_path: Path, model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "served"
    (folder / ".talaria" / "skills" / "deploy").mkdir(parents=True)
    (folder / ".talaria" / "skills" / "deploy" / "SKILL.md").write_text("---\nname: deploy\ndescription: It.\n---\n")
    async with hosted(tmp_path, model, f'[gateway]\nfolder = "{folder}"\n') as host:
        notice = f"Commands and skills in {folder} are ignored until you trust them: `talaria trust {folder}`."
        assert notice in caplog.messages
        agent, guest = await create(host, "mine", "agent"), await create(host, "guest", "chat")
        for headers, expected in ((agent, [notice]), (guest, []), ({}, [notice])):
            assert (await host.http.get("/v1/capabilities", headers=headers)).json()["notices"] == expected
        FolderTrust(Profiles(tmp_path).active().folder).trust(folder)
        assert (await host.http.get("/v1/capabilities")).json()["notices"] == []
