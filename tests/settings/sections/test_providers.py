from pathlib import Path

import pytest

from talaria.settings.config_file import ConfigFile
from talaria.settings.load import LoadedSettings, interpret
from talaria.settings.sections.providers import EmbeddedSettings, ModelFacts, ModelSettings, ProviderAccount


def read(text: str, **environment: str) -> LoadedSettings:
    return interpret(ConfigFile(Path("config.toml"), text), environment)


def test_empty_settings_leave_the_model_unset() -> None:
    settings = read("").settings
    assert (settings.model, settings.providers, settings.models) == (ModelSettings(), {}, {})
    assert settings.embedded == EmbeddedSettings(enabled=True)


def test_custom_provider_and_model_facts_are_read() -> None:
    loaded = read(
        '[model]\nprovider = "mine"\nname = "big.one"\nfallbacks = ["openai:gpt-5"]\n\n'
        '[providers.mine]\nbase_url = "http://10.0.0.7:9000/v1"\nkeys = ["MINE_1", "MINE_2"]\n\n'
        '[models."big.one"]\ncontext_limit = 65536\ninput_price = 0.5\ntools = false\n',
        TALARIA__MODEL__TEMPERATURE="0.3",
    )
    assert loaded.faults == ()
    assert loaded.settings.model == ModelSettings(
        provider="mine", name="big.one", fallbacks=("openai:gpt-5",), temperature=0.3
    )
    assert loaded.settings.providers["mine"] == ProviderAccount(
        base_url="http://10.0.0.7:9000/v1", keys=("MINE_1", "MINE_2")
    )
    assert loaded.settings.models["big.one"] == ModelFacts(context_limit=65536, input_price=0.5, tools=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[model]\nfallbacks = ["gpt-5"]', "a list, each item written as PROVIDER:MODEL"),
        ('[model]\nauxiliary = "gpt-5"', "empty or PROVIDER:MODEL"),
        ("[model]\ntemperature = 3", "a number from 0 to 2"),
        ('[model]\neffort = "much"', "empty or one of none, minimal, low, medium, high"),
        ('[providers.mine]\nbase_url = "10.0.0.7"', "empty or an address that starts with https:// or http://"),
        ("[models.big]\ncontext_limit = 0", "a whole number above 0"),
        ("[models.big]\ninput_price = -1", "a number of at least 0"),
    ],
)
def test_invalid_model_setting_is_refused_with_the_expected_format(text: str, expected: str) -> None:
    (fault,) = read(text).faults
    assert fault.expected == expected


def test_header_values_are_masked() -> None:
    loaded = read('[providers.mine]\nheaders = { "X-Key" = "hidden", "X-Team" = "a" }\n')
    shown = {field.key: field.format_value(value) for field, value in loaded.values()}
    assert shown["providers.mine.headers"] == "X-Key=****, X-Team=****"
