from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from tests.providers.ollama_server import LOADED, serving

from talaria.app.configured_providers import ConfiguredProviders
from talaria.app.models import DEFAULT_MODELS, Models
from talaria.contracts.clock import SystemClock
from talaria.contracts.provider import ListedModel, ModelReply, ModelRequest
from talaria.core.errors import Ambiguous, ModelUnknown, NotFound, ProviderUnreachable, Refused
from talaria.core.messages import Message, Text, Usage
from talaria.providers.catalogue.lookup import Catalogue
from talaria.providers.embedded.weights import LIMITS, MODEL, is_installed
from talaria.providers.presets import PRESETS
from talaria.settings.model import Settings
from talaria.settings.secrets import KNOWN_SECRETS, Secrets
from talaria.settings.sections.providers import EmbeddedSettings, ModelFacts, ModelSettings, ProviderAccount
from talaria.testing.model_server import Fail, ModelServer, Say

UNREACHABLE = ProviderAccount(base_url="http://127.0.0.1:9/v1")
LOCAL = {preset.name: UNREACHABLE for preset in PRESETS if preset.port is not None}
Open = Callable[..., Models]

needs_weights = pytest.mark.skipif(
    not is_installed(), reason="The embedded model is not installed: `talaria model install-embedded`."
)


@pytest.fixture
async def open_models(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the models of some settings; local servers are unreachable unless some are given."""
    async with AsyncExitStack() as opened:

        def open_(
            model: ModelSettings | None = None, *, keys: dict[str, str] | None = None, **sections: object
        ) -> Models:
            extra = sections.pop("providers", {})
            assert isinstance(extra, dict)
            settings = Settings(model=model or ModelSettings(), providers=LOCAL | extra, **sections)  # type: ignore[arg-type]
            models = Models(settings, Secrets({}, keys or {}, []), tmp_path, probe_limit=timedelta(seconds=30))
            opened.push_async_callback(models.close)
            return models

        yield open_


async def test_first_key_selects_the_default_model_of_its_provider(open_models: Open) -> None:
    models = open_models(keys={"ANTHROPIC_API_KEY": "a", "GROQ_API_KEY": "g"})
    chosen = await models.resolve_default_model()
    assert (chosen.provider, chosen.model) == ("anthropic", DEFAULT_MODELS["anthropic"])
    assert chosen.why == "Chosen because ANTHROPIC_API_KEY is set and `model.provider` is not."
    assert chosen.limits == ""


async def test_context_limit_is_read_from_ollama_unless_it_is_set(open_models: Open) -> None:
    loaded = [LOADED | {"context_length": 5000}]
    async with serving(loaded=loaded) as url:
        own = {"ollama": ProviderAccount(base_url=url)}
        chosen = await open_models(
            ModelSettings(provider="ollama", name="qwen3"), providers=own
        ).resolve_default_model()
        assert chosen.info.context_limit == 5000
        facts = {"qwen3": ModelFacts(context_limit=9000)}
        configured = await open_models(
            ModelSettings(provider="ollama", name="qwen3"), providers=own, models=facts
        ).resolve_default_model()
        assert configured.info.context_limit == 9000


async def test_provider_setting_wins_over_keys(open_models: Open) -> None:
    models = open_models(
        ModelSettings(provider="groq", name="openai/gpt-oss-20b"), keys={"OPENAI_API_KEY": "a", "GROQ_API_KEY": "g"}
    )
    chosen = await models.resolve_default_model()
    assert (chosen.provider, chosen.model) == ("groq", "openai/gpt-oss-20b")
    assert "model.provider" in chosen.why


async def test_local_server_is_chosen_without_a_key(open_models: Open) -> None:
    async with ModelServer(models=["small", "large"]) as server:
        models = open_models(providers={"lmstudio": ProviderAccount(base_url=f"{server.url}/v1")})
        chosen = await models.resolve_default_model()
        assert (chosen.provider, chosen.model) == ("lmstudio", "small")
        assert chosen.why == f"Chosen because no API key is set and LM Studio is running at {server.url}/v1."
        other = open_models(
            ModelSettings(name="large"), providers={"vllm": ProviderAccount(base_url=f"{server.url}/v1")}
        )
        assert (await other.resolve_default_model()).model == "large"


@needs_weights
async def test_built_in_model_is_chosen_last_and_its_limits_are_reported(open_models: Open) -> None:
    chosen = await open_models().resolve_default_model()
    assert (chosen.provider, chosen.model, chosen.limits) == ("embedded", MODEL, LIMITS)
    assert not chosen.info.tools


async def test_choice_without_any_model_is_refused_with_instructions(open_models: Open) -> None:
    with pytest.raises(Refused, match=r"talaria config set OPENAI_API_KEY -.*embedded\.enabled"):
        await open_models(embedded=EmbeddedSettings(enabled=False)).resolve_default_model()


async def test_error_for_a_missing_key_names_the_command_to_store_it(open_models: Open) -> None:
    with pytest.raises(Refused, match=r"OpenAI at https://api\.openai\.com/v1 needs the key OPENAI_API_KEY\. Store it"):
        await open_models(ModelSettings(provider="openai")).resolve_default_model()
    own = {"mine": ProviderAccount(base_url="http://127.0.0.1:9/v1", key="MY_KEY")}
    with pytest.raises(Refused, match=r"mine at .* needs the key MY_KEY\. Store it with `talaria config set MY_KEY -`"):
        await open_models(ModelSettings(provider="mine"), providers=own).resolve_default_model()


async def test_unknown_provider_is_answered_with_the_nearest_name(open_models: Open) -> None:
    with pytest.raises(NotFound, match="the nearest is `openai`"):
        await open_models(ModelSettings(provider="opennai")).resolve_default_model()


async def test_unreachable_local_server_is_named_in_the_error(open_models: Open) -> None:
    with pytest.raises(ProviderUnreachable) as failed:
        await open_models(ModelSettings(provider="ollama")).resolve_default_model()
    assert failed.value.for_owner.startswith(
        "I can't reach Ollama at http://127.0.0.1:9/v1: the connection was refused"
    )


async def test_chain_contains_only_fallbacks_of_configured_providers(open_models: Open) -> None:
    async with ModelServer(keys=["right"]) as server:
        here = ProviderAccount(base_url=f"{server.url}/v1", key="MINE", headers={"x-team": "seven"})
        models = open_models(
            ModelSettings(provider="mine", name="test-model", fallbacks=("nobody:x", "openai:gpt-5", "mine:other")),
            keys={"MINE": "right"},
            providers={"mine": here},
        )
        chain = models.build_chain(await models.resolve_default_model())
        assert [(choice.provider.name, choice.model) for choice in chain] == [("mine", "test-model"), ("mine", "other")]
        message = Message(role="user", parts=(Text("Hi"),), at=SystemClock().now())
        events = [one async for one in chain[0].provider.reply(ModelRequest(model="test-model", messages=(message,)))]
        assert isinstance(events[-1], ModelReply)
        assert server.received[-1].headers["x-team"] == "seven"


async def test_second_key_of_a_provider_is_used_if_the_first_is_rejected(open_models: Open) -> None:
    async with ModelServer(keys=["second"]) as server:
        here = ProviderAccount(base_url=f"{server.url}/v1", key="ONE", keys=("TWO",))
        models = open_models(providers={"mine": here}, keys={"ONE": "first", "TWO": "second"})
        assert await models.provider("mine").models() == [ListedModel("test-model")]


async def test_auxiliary_model_is_the_main_model_unless_set(open_models: Open) -> None:
    keys = {"OPENAI_API_KEY": "a", "GROQ_API_KEY": "g"}
    usual, special = open_models(keys=keys), open_models(ModelSettings(auxiliary="groq:openai/gpt-oss-20b"), keys=keys)
    (same,) = usual.build_auxiliary_chain(await usual.resolve_default_model())
    (other,) = special.build_auxiliary_chain(await special.resolve_default_model())
    assert same.provider.name == "openai"
    assert (other.provider.name, other.model) == ("groq", "openai/gpt-oss-20b")


async def test_main_model_replaces_an_auxiliary_model_without_a_key(open_models: Open) -> None:
    models = open_models(ModelSettings(auxiliary="groq:openai/gpt-oss-20b"), keys={"OPENAI_API_KEY": "a"})
    (same,) = models.build_auxiliary_chain(await models.resolve_default_model())
    assert same.provider.name == "openai"


async def test_model_settings_override_the_catalogue(open_models: Open) -> None:
    facts = {"gpt-5": ModelFacts(context_limit=1000, input_price=0.25), "my-own": ModelFacts(tools=False)}
    models = open_models(models=facts)
    listed = Catalogue().find("gpt-5")
    assert (models.info("gpt-5").context_limit, models.info("gpt-5").input_price) == (1000, 250_000)
    assert models.info("gpt-5").output_price == listed.output_price
    assert (models.info("my-own").known, models.info("my-own").tools) == (True, False)


async def test_price_is_unknown_unless_input_and_output_are_set(open_models: Open) -> None:
    facts = {
        "half": ModelFacts(input_price=1.0),
        "whole": ModelFacts(input_price=1.0, output_price=0.0),
        "gift": ModelFacts(input_price=0.0, output_price=0.0),
    }
    models = open_models(models=facts)
    assert [models.info(name).describe_price() for name in facts] == ["price unknown", "$1 in, $0 out", "free"]


async def test_model_on_a_local_server_costs_nothing(open_models: Open) -> None:
    async with ModelServer(models=["gpt-oss:20b"]) as server:
        models = open_models(providers={"ollama": ProviderAccount(base_url=f"{server.url}/v1")})
        (choice,) = models.build_chain(await models.resolve_default_model())
        assert choice.info is not None
        assert choice.info.cost_of(Usage(input_tokens=1000, cache_read_tokens=500, output_tokens=1000)) == 0
        assert choice.info.context_limit == Catalogue().find("gpt-oss-20b").context_limit


async def test_listing_contains_all_providers_and_problems_of_those_that_fail(open_models: Open) -> None:
    async with ModelServer(keys=["right"], models=["gpt-5", "own"]) as server, ModelServer(models=["tiny"]) as near:
        models = open_models(
            keys={"OPENAI_API_KEY": "right", "ANTHROPIC_API_KEY": "wrong"},
            providers={
                "openai": ProviderAccount(base_url=f"{server.url}/v1"),
                "anthropic": ProviderAccount(base_url=f"{server.url}/v1"),
                "ollama": ProviderAccount(base_url=f"{near.url}/v1"),
            },
            embedded=EmbeddedSettings(enabled=False),
        )
        listing = await models.list_models()
        assert [(one.provider, one.model, one.local) for one in listing.models] == [
            ("openai", "gpt-5", False),
            ("openai", "own", False),
            ("ollama", "tiny", True),
        ]
        assert ["Anthropic" in one and "rejected the API key ANTHROPIC_API_KEY" in one for one in listing.problems] == [
            True
        ]
        assert [one.model for one in (await models.list_models(local_only=True)).models] == ["tiny"]


async def test_model_is_found_by_name_provider_or_both(open_models: Open) -> None:
    async with ModelServer(models=["llama3.2:3b", "vendor/large"]) as near, ModelServer(models=["large"]) as other:
        models = open_models(
            providers={
                "ollama": ProviderAccount(base_url=f"{near.url}/v1"),
                "mine": ProviderAccount(base_url=f"{other.url}/v1"),
            },
        )
        assert (await models.find("llama3.2:3b")).provider == "ollama"
        assert (await models.find("ollama")).model == "llama3.2:3b"
        assert (await models.find("mine:large")).provider == "mine"
        with pytest.raises(Ambiguous, match="`mine:large`, `ollama:vendor/large`"):
            await models.find("large")
        with pytest.raises(NotFound, match="the nearest is `large`"):
            await models.find("mine:lareg")
        with pytest.raises(NotFound, match="talaria models"):
            await models.find("something-else")


def test_every_provider_with_a_key_has_a_default_model_in_the_catalogue() -> None:
    no_default = {"nous", "github", "azure", "bedrock"}  # names that change often or belong to the account
    assert set(DEFAULT_MODELS) | no_default == {preset.name for preset in PRESETS if preset.key_name}
    assert {preset.key_name for preset in PRESETS if preset.key_name} <= {secret.name for secret in KNOWN_SECRETS}
    assert [name for name in DEFAULT_MODELS.values() if not Catalogue().find(name).known] == []


async def test_key_that_other_programs_also_use_does_not_select_a_provider(open_models: Open) -> None:
    models = open_models(keys={"GITHUB_TOKEN": "g", "HF_TOKEN": "h"}, embedded=EmbeddedSettings(enabled=False))
    with pytest.raises(Refused):
        await models.resolve_default_model()
    assert (await models.choose("huggingface", "", "Asked for.")).model == DEFAULT_MODELS["huggingface"]


async def test_key_is_found_under_an_alternative_variable_name(open_models: Open) -> None:
    chosen = await open_models(keys={"GOOGLE_API_KEY": "g"}).resolve_default_model()
    assert (chosen.provider, chosen.why.split()[2]) == ("google", "GOOGLE_API_KEY")


ADDRESSES = [
    ("openai", {"OPENAI_BASE_URL": "https://proxy.example/v1/"}, "https://proxy.example/v1"),
    ("openai", {"OPENAI_API_BASE": "https://proxy.example/v1"}, "https://proxy.example/v1"),
    ("anthropic", {"ANTHROPIC_BASE_URL": "https://proxy.example"}, "https://proxy.example/v1"),
    ("anthropic", {"ANTHROPIC_BASE_URL": "https://proxy.example/v1"}, "https://proxy.example/v1"),
    ("ollama", {"OLLAMA_HOST": "0.0.0.0"}, "http://127.0.0.1:11434/v1"),
    ("ollama", {"OLLAMA_HOST": "box:8000"}, "http://box:8000/v1"),
    ("ollama", {"OLLAMA_HOST": ":8000"}, "http://127.0.0.1:8000/v1"),
    ("ollama", {"OLLAMA_HOST": "https://box.example/ollama"}, "https://box.example:443/ollama/v1"),
    ("ollama", {"OLLAMA_HOST": "[::1]:8000"}, "http://[::1]:8000/v1"),
    ("ollama", {"OLLAMA_HOST": "box:port"}, "http://box:port/v1"),
]


@pytest.mark.parametrize(("provider", "environment", "url"), ADDRESSES)
def test_conventional_variables_set_the_address_of_a_provider(
    provider: str, environment: dict[str, str], url: str
) -> None:
    keys = {"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a"}
    providers = ConfiguredProviders(Settings(), Secrets({}, keys | environment, []))
    assert providers.get(provider).preset.base_url == url
    extra = Settings(providers={provider: ProviderAccount(base_url="https://settings.example/v1")})
    own = ConfiguredProviders(extra, Secrets({}, keys | environment, []))
    assert own.get(provider).preset.base_url == "https://settings.example/v1"


@pytest.mark.parametrize("spoken", ["chat", "responses"])
async def test_protocol_of_another_openai_server_is_detected_and_cached(open_models: Open, spoken: str) -> None:
    async with ModelServer() as server:
        server.answering(lambda call: Say("Hello.") if call.protocol == spoken else Fail(404))
        message = Message(role="user", parts=(Text("Hi"),), at=SystemClock().now())
        tries = []
        for _ in range(2):
            models = open_models(keys={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{server.url}/v1"})
            provider = models.build_chain(await models.resolve_default_model())[0].provider
            for _ in range(2):
                before = len(server.received)
                events = [one async for one in provider.reply(ModelRequest(model="m", messages=(message,)))]
                assert isinstance(events[-1], ModelReply)
                tries.append(len(server.received) - before)
        assert tries == ([1, 1, 1, 1] if spoken == "chat" else [2, 1, 1, 1])


async def test_unknown_model_of_an_openai_server_is_reported(open_models: Open) -> None:
    async with ModelServer() as server:
        server.otherwise(Fail(404, kind="model_not_found", message="There is no model m."))
        models = open_models(keys={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{server.url}/v1"})
        message = Message(role="user", parts=(Text("Hi"),), at=SystemClock().now())
        provider = models.build_chain(await models.resolve_default_model())[0].provider
        with pytest.raises(ModelUnknown, match="There is no model m"):
            _ = [one async for one in provider.reply(ModelRequest(model="m", messages=(message,)))]
