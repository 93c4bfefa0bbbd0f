"""Third-party clients of the API: OpenAI's for JavaScript, the command `llm`, and curl."""

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
_MISSING = "{} is not installed; `make apiclients` installs it where it is available"
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


async def _run(*command: str | Path, env: Mapping[str, str], cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
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


async def test_openai_client_for_javascript_parses_every_answer(api: Server, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (_MODULES / "openai").exists():
        pytest.skip(_MISSING.format("the openai client for JavaScript"))
    script = Path(__file__).with_name("client.cjs")
    out = await _run(node, script, f"{api.url}/v1", api.key, env={"NODE_PATH": str(_MODULES)}, cwd=tmp_path)
    results: dict[str, Any] = json.loads(out)
    assert (results["completion"], results["chunks"], results["response"]) == ("one", "one", "one")
    assert results["previous"]
    assert results["streamed"]["text"] == "Let me look.It is done."
    assert "response.mcp_call.completed" in results["streamed"]["names"]
    assert results["streamed"]["names"][-1] == "response.completed"
    assert results["items"] == ["message", "mcp_call", "message"]
    assert results["final"] == "Let me look.It is done."
    assert (results["queued"], results["followed"]["text"], results["kept"]) == ("queued", "one", "one")
    assert results["error"] == {"status": 404, "code": "response_not_found", "kind": "NotFoundError"}


async def test_llm_command_chats_and_continues(api: Server, model: ModelServer, tmp_path: Path) -> None:
    if not _LLM.exists():
        pytest.skip(_MISSING.format("the command llm"))
    folder = tmp_path / "llm"
    folder.mkdir()
    (folder / "extra-openai-models.yaml").write_text(_MODEL.format(url=api.url))
    env = {"LLM_USER_PATH": str(folder), "OPENAI_API_KEY": api.key}
    assert (await _run(_LLM, "-m", "talaria", "Say one.", env=env, cwd=tmp_path)).strip() == "one"
    assert (await _run(_LLM, "-c", "Use a tool.", env=env, cwd=tmp_path)).strip().endswith("It is done.")
    texts = [one["content"] for one in model.received[-1].json["messages"] if one["role"] == "user"]
    assert texts == ["Say one.", "Use a tool."]
    assert (await _run(_LLM, "-m", "talaria", "--no-stream", "Say one.", env=env, cwd=tmp_path)).strip() == "one"


async def test_curl_starts_a_run_and_follows_it(api: Server, tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip(_MISSING.format("curl"))
    body, key = json.dumps({"input": "Use a tool."}), ("-H", f"Authorization: Bearer {api.key}")
    started = await _run(curl, "-sf", *key, f"{api.url}/v1/runs", "-d", body, env={}, cwd=tmp_path)
    run = json.loads(started)["id"]
    events = await _run(curl, "-sfN", *key, f"{api.url}/v1/runs/{run}/events", env={}, cwd=tmp_path)
    numbers = [int(line.removeprefix("id: ")) for line in events.splitlines() if line.startswith("id: ")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert events.rstrip().endswith('"text":"It is done."}')
    last = ("-H", f"Last-Event-ID: {numbers[-2]}")
    rest = await _run(curl, "-sfN", *key, *last, f"{api.url}/v1/runs/{run}/events", env={}, cwd=tmp_path)
    assert rest.count("id: ") == 1
