"""Clients of others ask the API: OpenAI's for JavaScript, the command `llm`, and curl."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.api.server_process import PATIENCE, Server, serving
from tests.app.program_with_model import scripted_program

from talaria.testing.model_server import Ask, ModelServer, Received, Say

_CLIENTS = Path(__file__).parents[2] / ".api-clients"
_MODULES, _LLM = _CLIENTS / "node_modules", _CLIENTS / "llm" / "bin" / "llm"
_MISSING = "{} is not installed; `make apiclients` installs it where it can be had"
_MODEL = """\
- model_id: talaria
  model_name: talaria
  api_base: "{url}/v1"
  api_key_name: openai
  can_stream: true
"""


def _answer(received: Received) -> Say:
    last = received.json["messages"][-1]
    if last["role"] == "user" and "tool" in str(last["content"]):
        return Say("Let me look.", calls=[Ask("terminal", {"command": "echo seen"})])
    return Say("It is done." if last["role"] == "tool" else "one")


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as one:
        yield one


@pytest.fixture
async def api(tmp_path: Path, model: ModelServer) -> AsyncIterator[Server]:
    model.answering(_answer)
    async with serving(scripted_program(tmp_path, model)) as served:
        yield served


async def _ran(*words: str | Path, env: Mapping[str, str], cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *words,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(cwd), **env},
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_client_for_javascript_understands_every_answer(api: Server, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (_MODULES / "openai").exists():
        pytest.skip(_MISSING.format("the openai client for JavaScript"))
    script = Path(__file__).with_name("client.cjs")
    out = await _ran(node, script, f"{api.url}/v1", api.key, env={"NODE_PATH": str(_MODULES)}, cwd=tmp_path)
    told: dict[str, Any] = json.loads(out)
    assert (told["completion"], told["chunks"], told["response"]) == ("one", "one", "one")
    assert told["previous"]
    assert told["streamed"]["text"] == "Let me look.It is done."
    assert "response.mcp_call.completed" in told["streamed"]["names"]
    assert told["streamed"]["names"][-1] == "response.completed"
    assert told["items"] == ["message", "mcp_call", "message"]
    assert told["final"] == "Let me look.It is done."
    assert (told["queued"], told["followed"]["text"], told["kept"]) == ("queued", "one", "one")
    assert told["error"] == {"status": 404, "code": "response_not_found", "kind": "NotFoundError"}


async def test_the_command_llm_talks_and_continues(api: Server, model: ModelServer, tmp_path: Path) -> None:
    if not _LLM.exists():
        pytest.skip(_MISSING.format("the command llm"))
    place = tmp_path / "llm"
    place.mkdir()
    (place / "extra-openai-models.yaml").write_text(_MODEL.format(url=api.url))
    env = {"LLM_USER_PATH": str(place), "OPENAI_API_KEY": api.key}
    assert (await _ran(_LLM, "-m", "talaria", "Say one.", env=env, cwd=tmp_path)).strip() == "one"
    assert (await _ran(_LLM, "-c", "Use a tool.", env=env, cwd=tmp_path)).strip().endswith("It is done.")
    said = [one["content"] for one in model.received[-1].json["messages"] if one["role"] == "user"]
    assert said == ["Say one.", "Use a tool."]
    assert (await _ran(_LLM, "-m", "talaria", "--no-stream", "Say one.", env=env, cwd=tmp_path)).strip() == "one"


async def test_curl_starts_a_run_and_follows_it(api: Server, tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip(_MISSING.format("curl"))
    body, key = json.dumps({"input": "Use a tool."}), ("-H", f"Authorization: Bearer {api.key}")
    started = await _ran(curl, "-sf", *key, f"{api.url}/v1/runs", "-d", body, env={}, cwd=tmp_path)
    run = json.loads(started)["id"]
    heard = await _ran(curl, "-sfN", *key, f"{api.url}/v1/runs/{run}/events", env={}, cwd=tmp_path)
    numbers = [int(line.removeprefix("id: ")) for line in heard.splitlines() if line.startswith("id: ")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert heard.rstrip().endswith('"text":"It is done."}')
    last = ("-H", f"Last-Event-ID: {numbers[-2]}")
    rest = await _ran(curl, "-sfN", *key, *last, f"{api.url}/v1/runs/{run}/events", env={}, cwd=tmp_path)
    assert rest.count("id: ") == 1
