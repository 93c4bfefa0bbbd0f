"""Access to every route of the web app: without sign-in, from foreign pages, and as a guest."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest
from tests.api.in_process_server import Hosted, hosted
from tests.http.loopback_client import loopback_client
from tests.web.management_routes import OWNER_ROUTES, SIGNED_IN_ROUTES, RouteCall
from tests.web.web_client import OWN_HEADERS, begin, stream, web_client

from talaria.access.browsers import create_code, read_browsers, revoke_browser
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

SESSION = "{session}"
ROUTES: list[RouteCall] = [
    ("POST", "/web/logout", {}),
    ("GET", "/web/me", None),
    ("GET", "/web/browsers", None),
    ("DELETE", "/web/browsers/none", {}),
    ("GET", "/web/sessions", None),
    ("GET", "/web/search?q=hello", None),
    ("GET", f"/web/sessions/{SESSION}", None),
    ("GET", f"/web/sessions/{SESSION}/messages", None),
    ("PATCH", f"/web/sessions/{SESSION}", {"title": "Mine"}),
    ("DELETE", f"/web/sessions/{SESSION}", {}),
    ("POST", "/web/sessions", {"text": "hi", "id": "a"}),
    ("POST", f"/web/sessions/{SESSION}/messages", {"text": "hi", "id": "b"}),
    ("POST", f"/web/sessions/{SESSION}/stop", {}),
    ("POST", f"/web/sessions/{SESSION}/answers/q", {"text": "once"}),
    ("POST", f"/web/sessions/{SESSION}/commands", {"text": "/help"}),
    ("POST", "/web/commands", {"text": "/help"}),
    ("GET", f"/web/completions?text=/model%20x&session={SESSION}", None),
    ("POST", f"/web/sessions/{SESSION}/take", {}),
    ("POST", f"/web/sessions/{SESSION}/hand-back", {}),
    ("GET", "/web/home", None),
    ("GET", "/web/background", None),
    ("GET", "/web/processes/none/output", None),
    ("POST", "/web/processes/none/stop", {}),
    ("POST", f"/web/sessions/{SESSION}/tasks/bg-none/stop", {}),
    ("GET", f"/web/sessions/{SESSION}/trace", None),
    ("GET", "/web/gateway", None),
    ("POST", "/web/gateway/restart", {}),
    ("POST", "/web/outbox/1/retry", {}),
    ("DELETE", "/web/outbox/1", {}),
    ("GET", "/web/logs", None),
    ("GET", "/web/doctor", None),
    ("GET", "/web/agent-browsers", None),
    ("GET", "/web/agent-browsers/unknown/view", None),
    ("POST", "/web/agent-browsers/unknown/control", {"person": True}),
    ("POST", "/web/agent-browsers/unknown/input", {"inputs": []}),
    ("GET", "/web/usage", None),
    ("GET", "/web/goals", None),
    ("POST", "/web/goals", {"text": "Win"}),
    ("PUT", f"/web/goals/{SESSION}", {"text": "Win"}),
    ("DELETE", f"/web/goals/{SESSION}", {}),
    ("POST", f"/web/goals/{SESSION}/pause", {}),
    ("POST", f"/web/goals/{SESSION}/resume", {}),
    ("GET", f"/web/goals/{SESSION}/verdicts", None),
    ("GET", "/web/schedules", None),
    ("POST", "/web/schedules", {"prompt": "every 2h hello"}),
    ("GET", "/web/schedule-preview?text=every%202h%20hello", None),
    ("PATCH", "/web/schedules/none", {"paused": True}),
    ("DELETE", "/web/schedules/none", {}),
    ("POST", "/web/schedules/none/run", {}),
    ("GET", "/web/schedules/none/runs", None),
    ("GET", f"/web/sessions/{SESSION}/tree", None),
    ("GET", f"/web/sessions/{SESSION}/export", None),
    ("GET", f"/web/sessions/{SESSION}/outputs/x.txt", None),
    ("POST", f"/web/sessions/{SESSION}/branch", {"seq": 1}),
    ("DELETE", f"/web/sessions/{SESSION}/queue/1", {}),
    ("POST", "/web/uploads", {}),
    ("GET", "/web/uploads/none", None),
    ("DELETE", "/web/uploads/none", {}),
    ("GET", "/web/files", None),
    ("GET", "/web/files/none", None),
    ("POST", "/web/transcriptions", {}),
    ("GET", "/web/push", None),
    ("PUT", "/web/push", {"endpoint": "https://push.example/1", "p256dh": "x" * 16, "auth": "x" * 16}),
    ("DELETE", "/web/push", {}),
    ("POST", "/web/push/test", {}),
    ("GET", "/web/stream?id=x", None),
    ("PUT", "/web/stream/x", {"topics": []}),
    *OWNER_ROUTES,
    *SIGNED_IN_ROUTES,
]
OPEN: list[RouteCall] = [
    ("POST", "/web/login", {"code": "x"}),
    ("POST", "/web/pairing", {}),
    ("GET", "/web/pairing", None),
]  # to browsers that aren't signed in
CHANGING = [route for route in ROUTES if route[0] != "GET"]
OF_A_SESSION = [route for route in ROUTES if SESSION in route[1]]


async def _ask(client: httpx.AsyncClient, route: RouteCall, session: str = "0" * 16, **headers: str) -> httpx.Response:
    method, path, body = route
    return await client.request(method, path.replace(SESSION, session), json=body, headers=headers)


async def test_request_without_a_cookie_is_refused(host: Hosted) -> None:
    async with loopback_client(host.url, headers=OWN_HEADERS) as stranger:
        for route in ROUTES:
            assert (await _ask(stranger, route)).status_code == 401, route


async def test_api_key_is_refused_by_the_web_app_and_cookie_by_the_api(host: Hosted, owner: httpx.AsyncClient) -> None:
    for route in ROUTES:
        answer = await host.http.request(route[0], route[1], json=route[2], headers=OWN_HEADERS)
        assert answer.status_code == 401, route
    for path in ("/v1/models", "/v1/sessions", "/metrics"):
        assert (await owner.get(path)).status_code == 401


async def test_signed_out_browser_is_refused(host: Hosted, owner: httpx.AsyncClient) -> None:
    (browser,) = (await host.application.store.read(read_browsers)).values()
    await host.application.store.write(lambda tx: revoke_browser(tx, browser.id))

    async def is_out() -> bool:
        return (await owner.get("/web/me")).status_code == 401

    await until(is_out)
    for route in ROUTES:
        assert (await _ask(owner, route)).status_code == 401, route


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"x-talaria": ""}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"origin": "https://elsewhere.example"}, 403),
        ({"host": "elsewhere.example"}, 421),
    ],
    ids=str,
)
async def test_request_from_a_foreign_page_is_refused(
    owner: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    for route in [*CHANGING, *OPEN[:2]]:
        assert (await _ask(owner, route, **headers)).status_code == status, route


async def test_browser_without_fetch_metadata_must_send_its_origin(host: Hosted, owner: httpx.AsyncClient) -> None:
    route = ("POST", "/web/commands", {"text": "/help"})
    del owner.headers["sec-fetch-site"]
    assert (await _ask(owner, route)).status_code == 403
    assert (await _ask(owner, route, origin=host.url)).status_code == 200


async def test_guest_sees_only_their_own_sessions(
    host: Hosted, model: ModelServer, owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    model.otherwise(Say("A secret answer."))
    private, own = await begin(owner, "My secret question"), await begin(alice, "Hello from Alice")

    async def is_answered() -> bool:
        pages = [await owner.get(f"/web/sessions/{one}/messages") for one in (private, own)]
        return all(len(page.json()["messages"]) == 2 for page in pages)

    await until(is_answered)
    for route in OF_A_SESSION:
        expected = {403, 404} if route[1].endswith(("take", "hand-back", "x.txt")) else {404}
        assert (await _ask(alice, route, private)).status_code in expected, route
    assert [one["id"] for one in (await alice.get("/web/sessions")).json()["sessions"]] == [own]
    assert {one["id"] for one in (await owner.get("/web/sessions")).json()["sessions"]} == {private, own}
    found = (await alice.get("/web/search", params={"q": "secret"})).json()
    assert {one["session_id"] for one in found} <= {own}
    async with stream(alice, f"session:{private}", f"session:{own}") as messages:
        assert (await anext(messages))["topic"] == "hello"
        assert (await anext(messages))["session"] == own
    assert (await owner.get(f"/web/sessions/{private}")).status_code == 200


async def test_a_guest_sees_and_signs_out_only_their_own_browsers(
    owner: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    (own,) = (await alice.get("/web/browsers")).json()
    assert own["person"] == "alice"
    assert own["current"] is True
    everyone = (await owner.get("/web/browsers")).json()
    (other,) = [one["id"] for one in everyone if one["current"]]
    assert (await alice.delete(f"/web/browsers/{other}")).status_code == 404
    assert (await alice.request("DELETE", f"/web/browsers/{other}", json={})).status_code == 404
    assert (await owner.request("DELETE", f"/web/browsers/{own['id']}", json={})).status_code == 200
    assert (await owner.get("/web/me")).json()["owner"] is True


async def test_signing_out_closes_the_stream(host: Hosted, owner: httpx.AsyncClient) -> None:
    async with stream(owner, "sessions") as messages:
        assert (await anext(messages))["topic"] == "hello"
        (browser,) = (await host.application.store.read(read_browsers)).values()
        await host.application.store.write(lambda tx: revoke_browser(tx, browser.id))
        assert [message async for message in messages] == []


async def test_sign_in_code_works_once(host: Hosted) -> None:
    code = await host.application.store.write(create_code)
    async with loopback_client(host.url, headers=OWN_HEADERS) as client:
        first = await client.post("/web/login", json={"code": code.lower().replace("-", " ")})
        second = await client.post("/web/login", json={"code": code})
    assert (first.status_code, second.status_code) == (200, 403)
    cookie = first.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/", f"talaria-{host.port}="))
    assert "Secure" not in cookie


async def test_cookie_of_an_https_page_is_secure(host: Hosted) -> None:
    code = await host.application.store.write(create_code)
    headers = {**OWN_HEADERS, "origin": host.url.replace("http://", "https://")}
    async with loopback_client(host.url, headers=headers) as client:
        cookie = (await client.post("/web/login", json={"code": code})).headers["set-cookie"]
    assert cookie.startswith("__Host-talaria-")
    assert "; Secure" in cookie


async def test_wrong_sign_in_codes_are_rate_limited(host: Hosted) -> None:
    async with loopback_client(host.url, headers=OWN_HEADERS) as client:
        answers = [(await client.post("/web/login", json={"code": f"WRONG{n}"})).status_code for n in range(7)]
        code = await host.application.store.write(create_code)
        late = await client.post("/web/login", json={"code": code})
    assert answers == [403] * 5 + [429] * 2
    assert late.status_code == 429
    assert late.headers["retry-after"]


_PROXY = """[api]
proxy_header = "X-Forwarded-User"
proxy_addresses = ["{address}"]
[people.alice]
ids = ["web:alice@example.org"]
[people.bob]
ids = ["web:bob@example.org"]
[access]
owners = ["alice"]
"""


async def test_trusted_proxy_header_identifies_people(tmp_path: Path, model: ModelServer) -> None:
    async with (
        hosted(tmp_path, model, _PROXY.format(address="127.0.0.1")) as host,
        loopback_client(host.url, headers=OWN_HEADERS) as client,
    ):
        expected = {"alice@example.org": ("", True), "bob@example.org": ("bob", False)}
        for user, (name, is_owner) in expected.items():
            me = (await client.get("/web/me", headers={"x-forwarded-user": user})).json()
            assert (me["name"], me["owner"]) == (name, is_owner)
        for user in ("", "alice", "web:alice@example.org", "eve@example.org", "alice@example.org, x"):
            assert (await client.get("/web/me", headers={"x-forwarded-user": user})).status_code == 401, user
        client.headers["x-forwarded-user"] = "bob@example.org"
        foreign = await client.get("/web/me", headers={"sec-fetch-site": "cross-site"})
        assert foreign.status_code == 401
        for route in OWNER_ROUTES:
            assert (await _ask(client, route)).status_code == 403, route
        async with stream(client, "sessions") as messages:
            assert (await anext(messages))["topic"] == "hello"


async def test_proxy_header_from_another_address_is_ignored(tmp_path: Path, model: ModelServer) -> None:
    async with (
        hosted(tmp_path, model, _PROXY.format(address="192.0.2.1")) as host,
        loopback_client(host.url, headers=OWN_HEADERS) as client,
    ):
        answer = await client.get("/web/me", headers={"x-forwarded-user": "alice@example.org"})
        assert answer.status_code == 401


async def test_every_response_has_security_headers(host: Hosted, owner: httpx.AsyncClient) -> None:
    page = (await owner.get("/")).text
    script = page.partition('type="module" src="')[2].partition('"')[0]
    for path in ("/", "/c/x", "/browsers", script, "/web/me", "/web/none", "/assets/old/js/main.js"):
        headers = (await owner.get(path)).headers
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert abs(datetime.now(UTC) - parsedate_to_datetime(headers["date"])) < timedelta(hours=1)
        assert "immutable" in headers["cache-control"] if path == script else "no-" in headers["cache-control"]
    assert "<script>" not in page


async def test_other_people_may_pair_at_the_same_time(host: Hosted) -> None:
    async with web_client(host, person="alice") as alice, web_client(host, person="bob") as bob:
        assert (await alice.get("/web/me")).json()["name"] == "alice"
        assert (await bob.get("/web/me")).json()["name"] == "bob"
