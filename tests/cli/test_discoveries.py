"""What the first start tells, from the services that a command gets."""

import asyncio
import sys
from pathlib import Path

import pytest
from tests.app.networks import networks
from tests.app.program import Program
from tests.cli.test_setup import ELSEWHERE

from talaria.providers.embedded.weights import is_installed
from talaria.testing.model_server import ModelServer

SCRIPT = """
import asyncio, sys, time
from talaria.app.services import ProcessServices
from talaria.cli.discoveries import discoveries
services = ProcessServices(profile_name=None, color="never")
discoveries(services)
began = time.perf_counter()
lines = discoveries(services)
took = time.perf_counter() - began
async def within_a_loop():
    return discoveries(services)
assert asyncio.run(within_a_loop()) == lines
print(took, *lines, sep="\\n")
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


async def discovered(program: Program, **env: str) -> tuple[float, list[str]]:
    """Return how long it took, and the lines."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", SCRIPT),
        env=program.environment(**{**ELSEWHERE, **env}),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    took, *lines = out.decode().splitlines()
    return float(took), lines


async def test_with_nothing_set_up_it_says_who_answers_and_where_to_go(program: Program) -> None:
    _, lines = await discovered(program)
    assert lines[0] == "No key of a model provider was found."
    assert lines[1] == "No model server answers on this machine."
    assert lines[2].startswith("The embedded model is ")
    if is_installed():
        assert lines[3].startswith("embedded:smollm2-135m-instruct answers now. No key is set")
    assert lines[4] == "`talaria setup` guides you through keys, chat networks and tools."
    assert len(lines) == 5


async def test_keys_are_named_with_their_place_and_without_their_value(program: Program) -> None:
    program.run("config", "set", "GROQ_API_KEY", "gsk-hidden-0123456789")
    _, lines = await discovered(program, OPENAI_API_KEY="sk-hidden-0123456789")
    file = program.home / "profiles" / "default" / ".env"
    assert lines[0] == f"Keys found: OPENAI_API_KEY (in the environment), GROQ_API_KEY (in {file}:1)."
    assert lines[3].startswith("openai:")
    assert "hidden" not in "".join(lines)


async def test_local_servers_that_answer_are_named(program: Program) -> None:
    async with ModelServer(models=["small", "large"]) as server:
        _, lines = await discovered(program, TALARIA__PROVIDERS__OLLAMA__BASE_URL=f"{server.url}/v1")
        assert lines[1] == f"Ollama answers at {server.url}/v1 with 2 models."
        assert lines[3].startswith("ollama:small answers now.")


async def test_without_any_model_that_is_said_in_one_line(program: Program) -> None:
    _, lines = await discovered(program, TALARIA__EMBEDDED__ENABLED="no")
    assert lines[2] == "The embedded model is turned off."
    assert lines[3].startswith("No model can be used: no key of a provider is set")
    assert len(lines) == 5


async def test_servers_that_say_nothing_do_not_hold_it_up(program: Program) -> None:
    async with networks() as base:
        silent = {
            f"TALARIA__PROVIDERS__{name}__BASE_URL": f"{base}/silent" for name in ("OLLAMA", "VLLM", "LMSTUDIO", "MINE")
        }
        took, lines = await discovered(program, **silent, TALARIA__MODEL__PROVIDER="mine")
    assert took < 0.45  # 0.28 s on a machine with nothing else to do
    assert lines[3] == "The model that is set did not answer in time."


async def test_faulty_settings_do_not_make_it_raise(program: Program) -> None:
    folder = program.home / "profiles" / "default"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("[modl]\n")
    _, lines = await discovered(program)
    assert lines[0].startswith("It is not clear what there is: ")
    assert lines[1].startswith("`talaria setup`")
