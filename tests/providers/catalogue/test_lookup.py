import pytest

from talaria.core.messages import Usage
from talaria.providers.catalogue.lookup import Catalogue


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def test_a_model_is_found_by_its_own_name(catalogue: Catalogue) -> None:
    found = catalogue.find("claude-opus-5-5")
    assert (found.known, found.context_limit, found.output_limit) == (True, 1_000_000, 128_000)
    assert (found.input_price, found.output_price) == (4_000_000, 20_000_000)
    assert (found.cache_read_price, found.cache_write_price) == (200_000, 5_000_000)
    assert found.tools
    assert found.images
    assert found.reasoning


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("openai/gpt-5", "gpt-5"),
        ("models/gemini-3.8-flash", "gemini-3.8-flash"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic/claude-opus-4.5", "claude-opus-4-5"),
        ("mistral-large-latest", "mistral-large"),
        ("gemini-3.1-pro-preview", "gemini-3.1-pro"),
        ("moonshotai/kimi-k2-0905-preview", "kimi-k2"),
        ("llama3.2:3b", "llama3.2"),
        ("meta-llama/llama-3.3-70b-instruct:free", "llama-3.3-70b"),
        ("GPT-4o-Mini-2024-07-18", "gpt-4o-mini"),
    ],
)
def test_prefixes_dates_and_sizes_are_ignored_in_model_names(catalogue: Catalogue, name: str, like: str) -> None:
    found, listed = catalogue.find(name), catalogue.find(like)
    assert (found.name, found.known) == (name, True)
    assert (found.context_limit, found.input_price) == (listed.context_limit, listed.input_price)


@pytest.mark.parametrize(
    ("name", "context"), [("gpt-5-codex", 400_000), ("claude-opus-9", 200_000), ("gpt-6.7-ultra", 1_050_000)]
)
def test_unlisted_model_of_a_family_gets_the_limits_of_the_family(
    catalogue: Catalogue, name: str, context: int
) -> None:
    found = catalogue.find(name)
    assert (found.known, found.context_limit) == (False, context)


def test_higher_version_is_not_matched_to_a_lower_one(catalogue: Catalogue) -> None:
    assert catalogue.find("gpt-4.1").context_limit != catalogue.find("gpt-4").context_limit
    assert not catalogue.find("gpt-5.9").known


def test_unknown_model_gets_a_small_context_limit(catalogue: Catalogue) -> None:
    found = catalogue.find("somebodys/own-model")
    assert (found.name, found.known, found.context_limit) == ("somebodys/own-model", False, 32_768)


def test_listed_models_have_plausible_limits_and_prices(catalogue: Catalogue) -> None:
    listed = catalogue.all()
    assert len(listed) == len({info.name for info in listed}) > 60
    for info in listed:
        assert 0 < info.output_limit <= info.context_limit, info.name
        assert info.output_price >= info.input_price >= (info.cache_read_price or 0), info.name
        assert catalogue.find(info.name) == info


def test_cost_of_a_call_is_exact_to_a_microdollar(catalogue: Catalogue) -> None:
    usage = Usage(input_tokens=1_000, cache_read_tokens=600, cache_write_tokens=300, output_tokens=7)
    spent = catalogue.find("claude-haiku-4-5").cost_of(usage)
    assert spent == 100 * 1 + 600 // 10 + 300 * 5 // 4 + 7 * 5
