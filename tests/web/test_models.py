"""Models and providers over HTTP: which one answers, live tests, write-only keys, and the first set-up."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.in_process_server import Hosted, hosted
from tests.web.web_client import begin, web_client

from talaria.app.settings_reload import reload_settings
from talaria.testing.model_server import ModelServer, Say, bad_key
from talaria.testing.wait import until

KEY = "sk-test-key-number-0001-abcd"


@pytest.fixture
async def fresh(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    """A server without a usable model."""
    async with hosted(tmp_path, model) as server:
        profile = server.application.profile
        profile.config_file.write_text("[embedded]\nenabled = false\n")
        profile.secrets_file.unlink(missing_ok=True)
        reload_settings(server.application)
        yield server


async def _models(client: httpx.AsyncClient) -> Any:
    return (await client.get("/web/models")).json()


async def test_chosen_model_is_shown_with_the_reason(owner: httpx.AsyncClient) -> None:
    shown = await _models(owner)
    assert shown["chosen"]["model"]["provider"] == shown["provider_setting"] != ""
    assert "model.provider" in shown["chosen"]["why"]
    assert shown["chosen"]["model"]["context"] > 0
    assert {"openai", "anthropic", "ollama"} <= {one["name"] for one in shown["providers"]}
    usable = (await owner.get("/web/models/usable")).json()["models"]
    assert shown["provider_setting"] in {one["provider"] for one in usable}


async def test_a_model_is_tested_with_a_real_request(model: ModelServer, owner: httpx.AsyncClient) -> None:
    chosen = (await _models(owner))["chosen"]["model"]
    name = f"{chosen['provider']}:{chosen['model']}"
    model.script(Say("Hello"))
    answer = (await owner.post("/web/models/test", json={"model": name})).json()
    assert (answer["answers"], answer["sentence"]) == (True, f"{name} answers.")
    assert "hello" in model.received[-1].json["messages"][-1]["content"]
    model.script(bad_key())
    answer = (await owner.post("/web/models/test", json={"model": name})).json()
    assert answer["answers"] is False
    assert answer["sentence"]


async def test_another_model_becomes_the_default(host: Hosted, owner: httpx.AsyncClient) -> None:
    usable = (await owner.get("/web/models/usable")).json()["models"]
    chosen = (await _models(owner))["chosen"]["model"]
    other = next(one for one in usable if one["model"] != chosen["model"] and not one["local"])
    name = f"{other['provider']}:{other['model']}"
    assert (await owner.post("/web/models/default", json={"model": name})).status_code == 200
    assert (await _models(owner))["chosen"]["model"]["model"] == other["model"]
    assert host.application.settings.model.name == other["model"]
    assert (await owner.post("/web/models/default", json={"model": "mine:none"})).status_code == 404


async def test_first_model_can_be_set_up_in_the_browser(model: ModelServer, fresh: Hosted) -> None:
    async with web_client(fresh) as owner:
        shown = await _models(owner)
        assert shown["chosen"] is None
        assert "No model can be used" in shown["problem"]
        assert (await owner.get("/web/me")).json()["model"] == ""
        server = {"provider": "mine", "base_url": f"{model.url}/v1", "key": KEY, "use": True}
        result = (await owner.post("/web/models/providers", json=server)).json()
        assert (result["saved"], result["outcome"]) == (True, "right"), result
        shown = await _models(owner)
        assert shown["chosen"]["model"]["provider"] == "mine"
        (mine,) = [one for one in shown["providers"] if one["name"] == "mine"]
        assert (mine["key"], mine["key_source"]) == ("****abcd", "file")
        model.otherwise(Say("Ready."))
        session = await begin(owner, "Are you there?")

        async def is_answered() -> bool:
            page = (await owner.get(f"/web/sessions/{session}/messages")).json()
            return len(page["messages"]) == 2

        await until(is_answered)
    assert model.received[-1].headers["authorization"] == f"Bearer {KEY}"


async def test_unchecked_provider_is_saved_only_on_request(model: ModelServer, fresh: Hosted) -> None:
    async with web_client(fresh) as owner:
        wrong = {"provider": "mine", "base_url": "http://127.0.0.1:9/v1", "key": KEY, "use": True}
        result = (await owner.post("/web/models/providers", json=wrong)).json()
        assert (result["saved"], result["outcome"]) == (False, "unreachable")
        assert fresh.application.secrets.get("MINE_API_KEY") is None
        saved = (await owner.post("/web/models/providers", json={**wrong, "check": False})).json()
        assert saved["saved"] is True
        assert fresh.application.secrets.get("MINE_API_KEY") == KEY
        bad = {"provider": "Not a name", "base_url": "http://127.0.0.1:9/v1"}
        assert (await owner.post("/web/models/providers", json=bad)).status_code == 409
        assert (await owner.post("/web/models/providers", json={"provider": "other"})).status_code == 409


async def test_a_key_is_write_only_and_removable(fresh: Hosted) -> None:
    async with web_client(fresh) as owner:
        known = {"provider": "openai", "key": KEY, "check": False}
        assert (await owner.post("/web/models/providers", json=known)).status_code == 200
        for path in ("/web/models", "/web/settings", "/web/settings/file"):
            assert KEY not in (await owner.get(path)).text, path
        assert fresh.application.mask(f"It is {KEY}.").count(KEY) == 0
        shown = (await owner.request("DELETE", "/web/models/keys/OPENAI_API_KEY", json={})).json()
        assert [one["key"] for one in shown["providers"] if one["name"] == "openai"] == [""]
        assert fresh.application.secrets.get("OPENAI_API_KEY") is None
        assert (await owner.request("DELETE", "/web/models/keys/TELEGRAM_BOT_TOKEN", json={})).status_code == 404


async def test_built_in_model_can_be_chosen(fresh: Hosted) -> None:
    async with web_client(fresh) as owner:
        if (await _models(owner))["embedded"] == "missing":
            pytest.skip("The built-in model is not installed; scripts/embedded-model.sh installs it.")
        assert (await owner.post("/web/models/embedded", json={})).status_code == 200
        chosen = (await _models(owner))["chosen"]
        assert chosen["model"]["provider"] == "embedded"
        assert chosen["limits"]
