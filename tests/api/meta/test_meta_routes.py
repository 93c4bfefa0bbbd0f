"""Routes about the API itself: OpenAPI description, documentation page, metrics, models."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from tests.api.in_process_server import PATIENCE, Hosted, hosted

from talaria.testing.model_server import ModelServer

HI = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer(models=("test-model", "family/other")) as one:
        yield one


async def test_openapi_describes_the_events_of_streams(host: Hosted) -> None:
    found = (await host.http.get("/openapi.json")).json()
    for path, method in (
        ("/v1/chat/completions", "post"),
        ("/v1/responses", "post"),
        ("/v1/runs/{run_id}/events", "get"),
    ):
        content = found["paths"][path][method]["responses"]["200"]["content"]
        assert content["text/event-stream"]["schema"].get("type") != "string", path
    assert found["paths"]["/v1/runs"]["post"]["security"] == [{"key": []}]


async def test_openapi_names_every_route_once_and_defines_all_references(host: Hosted) -> None:
    found = (await host.http.get("/openapi.json")).json()
    assert found["openapi"].startswith("3.1")
    paths = found["paths"]
    assert set(paths["/v1/chat/completions"]) == {"post"}
    assert {"/health", "/metrics", "/v1/models", "/v1/models/{model}", "/v1/capabilities", "/docs"} <= set(paths)
    names = [one["operationId"] for path in paths.values() for one in path.values()]
    assert len(names) == len(set(names))
    schemas = found["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', (await host.http.get("/openapi.json")).text))
    assert references <= set(schemas)
    for path, methods in paths.items():
        for one in methods.values():
            declared = {each["name"] for each in one["parameters"] if each["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path))
    headers = {each["name"] for each in paths["/v1/chat/completions"]["post"]["parameters"] if each["in"] == "header"}
    assert headers == {"idempotency-key", "x-talaria-events", "x-talaria-session-id"}
    (last,) = (one for one in paths["/v1/runs/{run_id}/events"]["get"]["parameters"] if one["in"] == "header")
    assert (last["name"], last["required"]) == ("last-event-id", False)


async def test_responses_match_the_openapi_description(host: Hosted) -> None:
    found = (await host.http.get("/openapi.json")).json()
    for method, path, body in (
        ("post", "/v1/chat/completions", HI),
        ("get", "/v1/models", None),
        ("get", "/v1/capabilities", None),
        ("get", "/health", None),
    ):
        described = found["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
        schema = {**described, "components": found["components"]}
        answer = await host.http.request(method, path, json=body)
        assert answer.status_code == 200
        Draft202012Validator(schema).validate(answer.json())
    wrong = await host.http.get("/nowhere")
    error = found["paths"]["/health"]["get"]["responses"]["default"]["content"]["application/json"]["schema"]
    Draft202012Validator({**error, "components": found["components"]}).validate(wrong.json())


async def test_documentation_page_loads_nothing_from_other_servers(host: Hosted) -> None:
    page = await host.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/v1/chat/completions" in page.text
    assert not re.search(r"(src|href)=\"https?:", page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_metrics_count_requests_by_route_and_status(host: Hosted) -> None:
    await host.http.post("/v1/chat/completions", json=HI)
    await host.http.post("/v1/chat/completions", json={})
    await host.http.get("/nowhere")
    text = (await host.http.get("/metrics")).text
    assert 'talaria_api_requests_total{route="/v1/chat/completions",status="200"} 1' in text
    assert 'talaria_api_requests_total{route="/v1/chat/completions",status="400"} 1' in text
    assert 'talaria_api_requests_total{route="none",status="404"} 1' in text
    assert "talaria_api_request_seconds_count 3" in text
    assert "talaria_turns_running 0" in text
    assert "talaria_sessions_open 1" in text


async def test_models_are_listed_by_the_names_that_requests_accept(host: Hosted) -> None:
    async with openai.AsyncOpenAI(base_url=f"{host.url}/v1", api_key=host.key, timeout=PATIENCE) as client:
        names = [one.id async for one in client.models.list()]
        assert names[0] == "talaria"
        assert {"mine:test-model", "mine:family/other"} <= set(names)
        assert (await client.models.retrieve("mine:family/other")).owned_by == "mine"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("mine:nobody")


async def test_health_needs_no_parameters_and_capabilities_list_the_routes(host: Hosted) -> None:
    health = (await host.http.get("/health")).json()
    assert health["status"] == "ok"
    able = (await host.http.get("/v1/capabilities")).json()
    assert "POST /v1/chat/completions" in able["endpoints"]
    assert (able["streaming"], able["client_tools"]) == (True, False)
    assert "/v1/chat/completions" not in able["async_delivery"]


@pytest.mark.parametrize("name", ["gpt-4o", "agent", "llama3:8b", "x" * 5000, "no name"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", HI),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/runs", {"input": "hi"}),
    ],
)
async def test_unknown_model_name_uses_the_configured_model(
    host: Hosted, model: ModelServer, name: str, path: str, body: dict[str, Any]
) -> None:
    answer = await host.http.post(path, json={**body, "model": name})
    assert answer.is_success, answer.text
    async with asyncio.timeout(PATIENCE):
        await model.arrived(1)
    assert model.received[-1].json["model"] == "scripted"
    assert (await host.http.get(f"/v1/models/{name[:20].strip()}")).status_code == 404


async def test_strict_models_setting_refuses_an_unknown_model(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path / "strict", model, "[api]\nstrict_models = true\n") as host:
        answers = [
            await host.http.post("/v1/chat/completions", json={**HI, "model": name})
            for name in ("gpt-4o", "talaria", "test-model")
        ]
    assert [answer.status_code for answer in answers] == [404, 200, 200]
    assert answers[0].json()["error"]["code"] == "model_not_found"
    assert [call.json["model"] for call in model.received] == ["scripted", "test-model"]


async def test_unreachable_provider_is_not_reported_as_a_missing_model(tmp_path: Path, host: Hosted) -> None:
    chat = "/v1/chat/completions"
    unknown = await host.http.post(chat, json={**HI, "model": "mine:nobody"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert "`/v1/models` lists" in unknown.json()["error"]["message"]
    async with ModelServer() as model:
        pass  # the server is closed now
    async with hosted(tmp_path / "gone", model) as other:
        named = await other.http.post(chat, json={**HI, "model": "mine:test-model"})
        usual = await other.http.post(chat, json=HI)
    assert [(one.status_code, one.json()["error"]["code"]) for one in (named, usual)] == [
        (502, "model"),
        (502, "turn_failed"),
    ]
    for answer in (named, usual):
        assert answer.json()["error"]["type"] == "server_error"
        assert answer.headers["x-should-retry"] == "false"
        assert "127.0.0.1" not in answer.text
