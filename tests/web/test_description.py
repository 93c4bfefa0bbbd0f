"""The description of the web app's routes; `web_client.py` checks every reply in these folders against it."""

from pathlib import Path

import httpx
import pytest
from jsonschema.exceptions import ValidationError  # type: ignore[import-untyped]
from tests.api.in_process_server import Hosted
from tests.web.test_access import OPEN, ROUTES
from tests.web.web_client import DescribedReplies, described_replies

from talaria.app.web import StoredSessionFiles, WebApp
from talaria.core.aio import SupervisedTaskGroup
from talaria.http.application import RequestMetrics
from talaria.web.assets import Assets


async def test_every_route_is_described(host: Hosted, tmp_path: Path) -> None:
    described = (await described_replies(host)).document["paths"]
    found = {(method.upper(), path) for path, methods in described.items() for method in methods}
    async with SupervisedTaskGroup() as jobs:
        app = host.application
        web = WebApp(app, jobs, tmp_path, RequestMetrics(), StoredSessionFiles(app))
        routes = {(route.method, route.path.replace("*}", "}")) for route in web.router.routes}
        await web.close()
    pages = {(route.method, route.path.replace("*}", "}")) for route in Assets().routes()}
    assert {one for one in found if one[1].startswith("/web/")} == routes - pages


async def test_every_described_route_has_its_access_tests(host: Hosted) -> None:
    replies = await described_replies(host)
    tried = {(method, replies.find(method, path.partition("?")[0])) for method, path, _ in [*ROUTES, *OPEN]}
    paths = replies.document["paths"]
    assert tried == {(method.upper(), path) for path in paths if path.startswith("/web/") for method in paths[path]}


async def test_route_description_has_access_and_parameters(host: Hosted) -> None:
    document = (await described_replies(host)).document
    paths, schemes = document["paths"], document["components"]["securitySchemes"]
    assert schemes["browser"]["in"] == "cookie"
    settings, login = paths["/web/settings"]["patch"], paths["/web/login"]["post"]
    assert settings["security"] == [{"browser": []}]
    assert "owner" in settings["description"]
    assert login["security"] == []
    (header,) = [one for one in settings["parameters"] if one["in"] == "header"]
    assert (header["name"], header["required"]) == ("x-talaria", True)
    assert not paths["/web/settings"]["get"]["parameters"]
    assert "application/octet-stream" in paths["/web/uploads"]["post"]["requestBody"]["content"]
    assert "text/event-stream" in paths["/web/stream"]["get"]["responses"]["200"]["content"]
    assert "/web/settings" in (await host.http.get("/docs")).text


async def test_undescribed_response_fails_the_check(host: Hosted, owner: httpx.AsyncClient) -> None:
    document = (await described_replies(host)).document
    me = await owner.get("/web/me")
    await DescribedReplies(document).check(me)
    schemas = document["components"]["schemas"]
    other = {**schemas, "MeView": {**schemas["MeView"], "required": ["nothing_of_the_kind"]}}
    with pytest.raises(ValidationError):
        await DescribedReplies({**document, "components": {"schemas": other}}).check(me)
    with pytest.raises(AssertionError, match="isn't described"):
        await DescribedReplies({**document, "paths": {}}).check(me)
