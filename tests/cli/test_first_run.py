"""Description of the first run: keys, local servers and the model in use."""

import asyncio
import sys
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.setup.network_servers import networks
from tests.cli.commands.test_setup import ELSEWHERE

from talaria.providers.embedded.weights import is_installed
from talaria.testing.model_server import ModelServer

SCRIPT = """
import asyncio
from talaria.app.command_line.services import ProcessServices
from talaria.cli.first_run import describe_first_run
services = ProcessServices(profile_name=None, color="never")
lines = describe_first_run(services)
async def within_a_loop():
    return describe_first_run(services)
assert asyncio.run(within_a_loop()) == lines
print(*lines, sep="\\n")
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


async def describe(program: Program, **env: str) -> list[str]:
    """Return the lines of the description."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", SCRIPT),
        env=program.environment(**{**ELSEWHERE, **env}),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return out.decode().splitlines()


async def test_first_run_without_setup_names_the_model_in_use_and_the_next_step(program: Program) -> None:
    lines = await describe(program)
    if is_installed():
        assert lines == ["No API key, sign-in or local server was found, so the built-in model answers."]
    else:
        assert lines[0].startswith("The built-in model isn't installed")
        assert lines[-1].startswith("`talaria setup` connects models, chat networks and tools;")
    assert len(lines) <= 3


async def test_keys_are_named_with_their_source_and_without_their_value(program: Program) -> None:
    program.run("config", "set", "GROQ_API_KEY", "gsk-hidden-0123456789")
    lines = await describe(program, OPENAI_API_KEY="sk-hidden-0123456789")
    file = program.home / "profiles" / "default" / ".env"
    assert lines[0] == f"Keys found: OPENAI_API_KEY (in the environment), GROQ_API_KEY (in {file}:1)."
    assert lines[1].startswith("Using openai:")
    assert "hidden" not in "".join(lines)


async def test_running_local_servers_are_named(program: Program) -> None:
    async with ModelServer(models=["small", "large"]) as server:
        lines = await describe(program, TALARIA__PROVIDERS__OLLAMA__BASE_URL=f"{server.url}/v1")
        assert lines[0] == f"Ollama is running at {server.url}/v1 with 2 models."
        assert lines[1].startswith("Using ollama:small. Chosen because no API key is set and Ollama is running")


async def test_own_provider_without_a_key_is_named_and_not_called(program: Program) -> None:
    own = {"TALARIA__MODEL__PROVIDER": "mine", "TALARIA__MODEL__NAME": "clever"}
    lines = await describe(program, **own, TALARIA__PROVIDERS__MINE__BASE_URL="http://127.0.0.1:9/v1")
    assert lines[0] == "Using mine:clever. Chosen by the setting `model.provider`."
    assert len(lines) == 2


async def test_missing_model_is_reported_in_one_line(program: Program) -> None:
    lines = await describe(program, TALARIA__EMBEDDED__ENABLED="no")
    assert lines[0] == "The built-in model is turned off."
    assert lines[1].startswith("No model can be used: no API key is set")
    assert len(lines) == 3


async def test_silent_servers_do_not_delay_the_first_run(program: Program) -> None:
    async with networks() as base:
        silent = {
            f"TALARIA__PROVIDERS__{name}__BASE_URL": f"{base}/silent" for name in ("OLLAMA", "VLLM", "LMSTUDIO", "MINE")
        }
        lines = await describe(program, **silent, TALARIA__MODEL__PROVIDER="mine")
    assert "The configured model didn't answer in time." in lines


async def test_faulty_settings_are_reported_in_the_first_run(program: Program) -> None:
    folder = program.home / "profiles" / "default"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("[modl]\n")
    lines = await describe(program)
    assert lines[0].startswith("I couldn't look for models: ")
    assert lines[1].startswith("`talaria setup`")
