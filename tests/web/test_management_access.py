"""Who may manage the agent: every route of the management pages, with every way of not being allowed to use it."""

import httpx
import pytest
from tests.api.in_process_server import Hosted
from tests.web.web_client import OWN_HEADERS

from talaria.access.browsers import read_browsers, revoke_browser
from talaria.testing.wait import until

Asked = tuple[str, str, object]
ANSWER = {"platform": "telegram", "user_id": "9"}
OWNERS: list[Asked] = [
    ("GET", "/web/people", None),
    ("POST", "/web/people/approve", ANSWER),
    ("POST", "/web/people/refuse", ANSWER),
    ("POST", "/web/people/revoke", ANSWER),
    ("POST", "/web/browsers/approve", {"code": "ABCDEFGH"}),
    ("POST", "/web/browsers/code", {}),
    ("POST", "/web/api-keys", {"name": "x", "scopes": ["chat"]}),
    ("DELETE", "/web/api-keys/first", {}),
    ("GET", "/web/settings", None),
    ("PATCH", "/web/settings", {"values": {"log.level": "debug"}, "version": ""}),
    ("GET", "/web/settings/file", None),
    ("POST", "/web/settings/file/check", {"text": ""}),
    ("PUT", "/web/settings/file", {"text": "", "version": ""}),
    ("GET", "/web/models", None),
    ("GET", "/web/models/usable", None),
    ("POST", "/web/models/default", {"model": "x"}),
    ("POST", "/web/models/test", {"model": "x"}),
    ("POST", "/web/models/providers", {"provider": "openai", "key": "x"}),
    ("DELETE", "/web/models/keys/OPENAI_API_KEY", {}),
    ("POST", "/web/models/embedded", {}),
    ("GET", "/web/tools", None),
    ("POST", "/web/tools/switch", {"names": ["web"], "on": False}),
    ("GET", "/web/skills/x", None),
    ("POST", "/web/mcp/x/test", {}),
]
EVERYBODYS: list[Asked] = [
    ("GET", "/web/memory", None),
    ("POST", "/web/memory", {"kind": "memory", "new": "x"}),
]
ROUTES = [*OWNERS, *EVERYBODYS]
CHANGING = [route for route in ROUTES if route[0] != "GET"]


async def _ask(client: httpx.AsyncClient, route: Asked, **headers: str) -> httpx.Response:
    method, path, body = route
    return await client.request(method, path, json=body, headers=headers)


async def test_nobody_manages_anything_without_a_cookie(host: Hosted) -> None:
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, headers=OWN_HEADERS) as stranger:
        for route in ROUTES:
            assert (await _ask(stranger, route)).status_code == 401, route
            answer = await host.http.request(route[0], route[1], json=route[2], headers=OWN_HEADERS)
            assert answer.status_code == 401, route  # an API key is no cookie


async def test_a_guest_manages_nothing_but_their_memory(host: Hosted, alice: httpx.AsyncClient) -> None:
    before = host.application.profile.config_file.read_text()
    for route in OWNERS:
        answer = await _ask(alice, route)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_allowed"), route
    for route in EVERYBODYS:
        assert (await _ask(alice, route)).status_code == 200, route
    assert host.application.profile.config_file.read_text() == before


async def test_a_browser_that_is_signed_out_manages_nothing(host: Hosted, owner: httpx.AsyncClient) -> None:
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
        ({"x-talaria": ""}, 403),
        ({"origin": "https://elsewhere.example"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
    ids=str,
)
async def test_a_foreign_page_manages_nothing(
    host: Hosted, owner: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    before = host.application.profile.config_file.read_text()
    for route in [*CHANGING, ("POST", "/web/pairing", {})]:
        assert (await _ask(owner, route, **headers)).status_code == status, route
    assert host.application.profile.config_file.read_text() == before
