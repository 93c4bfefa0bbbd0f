"""Sizes and prices of models outside the catalogue come from the provider's own list, and are cached for a day."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from talaria.app.configured_providers import ListedModels
from talaria.app.models import Models
from talaria.contracts.provider import ListedModel
from talaria.settings.model import Settings
from talaria.settings.secrets import Secrets
from talaria.settings.sections.providers import ModelFacts, ModelSettings, ProviderAccount

NOW = datetime(2026, 11, 1, tzinfo=UTC)
LIST = {
    "data": [
        {"id": "own/new", "context_length": 99_000, "pricing": {"prompt": "0.000002", "completion": "0.000004"}},
        {"id": "own/gift:free", "context_length": 8_000, "pricing": {"prompt": "0", "completion": "0"}},
        {"id": "openai/gpt-6.1-terra", "pricing": {"prompt": "1", "completion": "1"}},
    ]
}


@dataclass
class PriceList:
    url: str
    requests: int = 0


@pytest.fixture
async def listing() -> AsyncIterator[PriceList]:
    served = PriceList("")

    async def answer(_: web.Request) -> web.Response:
        served.requests += 1
        return web.json_response(LIST)

    application = web.Application()
    application.router.add_get("/v1/models", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield served
    await runner.cleanup()


def openrouter(listing: PriceList, folder: Path, **facts: ModelFacts) -> Models:
    settings = Settings(
        model=ModelSettings(provider="openrouter", aliases={"fast": "openrouter:own/new"}),
        providers={"openrouter": ProviderAccount(base_url=listing.url)},
        models={name.replace("_", "/"): one for name, one in facts.items()},
    )
    return Models(settings, Secrets({}, {"OPENROUTER_API_KEY": "key"}, []), folder)


async def test_price_of_an_unknown_model_is_fetched_once_and_cached(listing: PriceList, tmp_path: Path) -> None:
    for _ in range(2):
        models = openrouter(listing, tmp_path)
        for _ in range(2):
            info = (await models.choose("openrouter", "own/new", "")).info
        await models.close()
        assert (info.context_limit, info.input_price, info.output_price) == (99_000, 2_000_000, 4_000_000)
        assert (info.has_price, info.free) == (True, False)
    assert listing.requests == 1


async def test_model_with_a_listed_price_of_zero_is_free(listing: PriceList, tmp_path: Path) -> None:
    models = openrouter(listing, tmp_path)
    info = (await models.choose("openrouter", "own/gift:free", "")).info
    await models.close()
    assert (info.free, info.has_price, info.context_limit) == (True, True, 8_000)


async def test_catalogue_and_settings_override_the_list_of_the_provider(listing: PriceList, tmp_path: Path) -> None:
    models = openrouter(listing, tmp_path, own_new=ModelFacts(input_price=7.0))
    await models.list_models()
    assert models.info("openai/gpt-6.1-terra", "openrouter").input_price != 1_000_000_000_000
    assert models.info("own/new", "openrouter").input_price == 7_000_000
    assert models.info("own/new", "openrouter").output_price == 4_000_000
    assert not models.info("own/gift:free", "mine").has_price
    await models.close()


async def test_model_is_found_by_its_alias(listing: PriceList, tmp_path: Path) -> None:
    models = openrouter(listing, tmp_path)
    chosen = await models.find("fast")
    await models.close()
    assert (chosen.provider, chosen.model) == ("openrouter", "own/new")


def test_damaged_or_old_cache_is_ignored(tmp_path: Path) -> None:
    lists = ListedModels(tmp_path)
    lists.put("mine", [ListedModel("named only")], NOW)
    assert not (tmp_path / "model-lists.json").exists()
    lists.put("mine", [ListedModel("new", 1, 2, 3)], NOW)
    assert ListedModels(tmp_path).get("mine", "new") == ListedModel("new", 1, 2, 3)
    assert ListedModels(tmp_path).find_first_model("mine", NOW) == "new"
    assert ListedModels(tmp_path).find_first_model("mine", NOW + timedelta(hours=25)) == ""
    assert ListedModels(tmp_path).find_first_model("other", NOW) == ""
    assert ListedModels(tmp_path).is_current("mine", NOW + timedelta(hours=23))
    assert not ListedModels(tmp_path).is_current("mine", NOW + timedelta(hours=25))
    (tmp_path / "model-lists.json").write_text("{")
    assert ListedModels(tmp_path).get("mine", "new") is None
