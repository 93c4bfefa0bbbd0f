import asyncio
import json
from pathlib import Path

import pytest
from tests.app.program import Outcome, Program
from tests.app.program_with_model import scripted_program, talk

from talaria.providers.embedded.weights import MODEL, is_installed
from talaria.providers.presets import PRESETS
from talaria.testing.model_server import ModelServer, bad_key

DEAD = "http://127.0.0.1:9/v1"
ELSEWHERE = {
    f"TALARIA__PROVIDERS__{preset.name.upper()}__BASE_URL": DEAD for preset in PRESETS
}  # neither the internet nor a server that happens to run on this machine

needs_weights = pytest.mark.skipif(
    not is_installed(), reason="The embedded model is not installed: `talaria model install-embedded`."
)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@needs_weights
def test_embedded_model_is_used_without_keys_and_its_limits_are_shown(program: Program) -> None:
    shown = program.run("model", env=ELSEWHERE)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"embedded:{MODEL}\nChosen because no API key or local server was found.\n")
    assert "no tools" in shown.out
    assert program.run("models", env=ELSEWHERE).out == f"*\tembedded\t{MODEL}\t4,096\tfree\t\t\n"


def test_chosen_model_and_its_reason_are_shown(program: Program) -> None:
    keyed = {**ELSEWHERE, "OPENAI_API_KEY": "sk-x"}
    shown = json.loads(program.run("model", "--offline", "--json", env=keyed).out)
    assert (shown["provider"], shown["info"]["tools"]) == ("openai", True)
    assert shown["why"].startswith("Chosen because OPENAI_API_KEY is set")


async def test_model_command_checks_whether_the_model_answers(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server)
    assert (await talk(program, "model")).out.endswith("\nIt answers.\n")
    server.otherwise(bad_key())
    assert f"It isn't answering. mine at {server.url}/v1 requires an API key" in (await talk(program, "model")).out
    shown = json.loads((await talk(program, "model", "--json")).out)
    assert (shown["answers"], shown["problem"].partition(" at ")[0]) == (False, "mine")


def test_missing_model_is_reported(program: Program) -> None:
    refused = program.run("model", env={**ELSEWHERE, "TALARIA__EMBEDDED__ENABLED": "no"})
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("talaria: No model can be used: ")
    listed = program.run("models", env={**ELSEWHERE, "TALARIA__EMBEDDED__ENABLED": "no"})
    assert (listed.code, listed.out) == (0, "")
    assert "No model can be used" in listed.err


def test_all_option_lists_the_whole_catalogue(program: Program) -> None:
    rows = json.loads(program.run("models", "--all", "--json", env=ELSEWHERE).out)
    one = next(row for row in rows if row["name"] == "claude-opus-5-5")
    assert (one["usable"], one["provider"], one["output_price"]) == (False, None, 20_000_000)
    assert len(rows) > 60


async def test_model_is_chosen_from_the_list_of_its_provider(program: Program) -> None:
    async with ModelServer(models=["gpt-5", "text-embedding"]) as server:
        here = {**ELSEWHERE, "OPENAI_API_KEY": "k", "TALARIA__PROVIDERS__OPENAI__BASE_URL": f"{server.url}/v1"}
        refused = await _run(program, here, "model", "openai:gpt-55")
        assert refused.code == 1
        assert "the nearest is `gpt-5`" in refused.err
        assert not (program.home / "profiles").exists()
        assert (await _run(program, here, "model", "gpt-5")).code == 0
        written = (program.home / "profiles" / "default" / "config.toml").read_text()
        assert 'provider = "openai"\nname = "gpt-5"' in written
        listed = await _run(program, here, "models")
        assert listed.out.splitlines()[0] == "*\topenai\tgpt-5\t400,000\t$1.25\t$10\ttools, images, reasoning"
        assert "text-embedding" not in listed.out
        assert "Not shown: 1 model that the catalogue doesn't know; see --all." in listed.err
        assert "text-embedding" in (await _run(program, here, "models", "--all")).out


def test_choosing_a_provider_without_its_key_changes_nothing(program: Program) -> None:
    refused = program.run("model", "anthropic", env=ELSEWHERE)
    assert refused.code == 1
    assert "Store it with `talaria config set ANTHROPIC_API_KEY -`" in refused.err
    assert not (program.home / "profiles").exists()


@needs_weights
def test_installing_an_installed_model_only_verifies_it(program: Program) -> None:
    done = program.run("model", "install-embedded")
    assert (done.code, done.err) == (0, "")
    assert done.out == "The built-in model was already installed: 98 MB, checksum verified.\n"


async def _run(program: Program, env: dict[str, str], *arguments: str) -> Outcome:
    return await asyncio.to_thread(program.run, *arguments, env=env)
