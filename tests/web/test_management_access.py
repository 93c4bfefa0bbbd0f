"""Management routes for guests; `test_access.py` has the other access tests of these routes."""

import httpx
from tests.api.in_process_server import Hosted
from tests.web.management_routes import OWNER_ROUTES, SIGNED_IN_ROUTES, RouteCall


async def _ask(client: httpx.AsyncClient, route: RouteCall) -> httpx.Response:
    method, path, body = route
    return await client.request(method, path, json=body)


async def test_guest_can_manage_only_their_memory(host: Hosted, alice: httpx.AsyncClient) -> None:
    before = host.application.profile.config_file.read_text()
    for route in OWNER_ROUTES:
        answer = await _ask(alice, route)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_allowed"), route
    for route in SIGNED_IN_ROUTES:
        assert (await _ask(alice, route)).status_code == 200, route
    assert host.application.profile.config_file.read_text() == before
