"""What guests may manage; `test_access.py` has all other ways of not being allowed to use these routes."""

import httpx
from tests.api.in_process_server import Hosted
from tests.web.management_routes import EVERYBODYS, OWNERS, Asked


async def _ask(client: httpx.AsyncClient, route: Asked) -> httpx.Response:
    method, path, body = route
    return await client.request(method, path, json=body)


async def test_a_guest_manages_nothing_but_their_memory(host: Hosted, alice: httpx.AsyncClient) -> None:
    before = host.application.profile.config_file.read_text()
    for route in OWNERS:
        answer = await _ask(alice, route)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_allowed"), route
    for route in EVERYBODYS:
        assert (await _ask(alice, route)).status_code == 200, route
    assert host.application.profile.config_file.read_text() == before
