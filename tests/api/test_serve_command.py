"""`talaria serve`, `talaria api-keys` and the gateway that serves the API, as processes."""

import asyncio
import json
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.server_process import PATIENCE, Server, client, serving
from tests.app import warm_program
from tests.app.program import Program
from tests.app.program_with_model import scripted_program, talk
from tests.http.loopback_client import loopback_client

from talaria.testing.model_server import ModelServer, Say
from talaria.testing.system_servers import free_port
from talaria.testing.wait import until

HI = {"messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_serve_finishes_open_requests_when_terminated(tmp_path: Path, model: ModelServer, number: int) -> None:
    released = asyncio.Event()

    async def wait(_: object) -> Say:
        await released.wait()
        return Say("At last.")

    model.answering(wait)
    async with serving(scripted_program(tmp_path, model)) as server:
        assert server.process is not None
        async with client(server) as http, asyncio.TaskGroup() as group:
            answers = group.create_task(http.post(CHAT, json=HI))
            await model.arrived()
            os.kill(server.process.pid, number)
            released.set()
        assert answers.result().json()["choices"][0]["message"]["content"] == "At last."
        async with asyncio.timeout(PATIENCE):
            assert await server.process.wait() == 0


async def test_keyless_is_refused_where_others_can_connect(tmp_path: Path, model: ModelServer) -> None:
    program = scripted_program(tmp_path, model, "[api]\nkeyless = true\n")
    refused = await talk(program, "serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.code != 0
    assert "talaria config unset api.keyless" in refused.err
    assert "Traceback" not in refused.err


async def test_weak_api_key_is_refused(tmp_path: Path, model: ModelServer) -> None:
    for key in ("a", "fifteen-letters", "aaaaaaaaaaaaaaaaaaaaaaaa"):
        program = scripted_program(tmp_path / key, model, secrets=f"TALARIA_API_KEY={key}\n")
        refused = await talk(program, "serve", "--port", "0")
        assert (refused.code, "TALARIA_API_KEY is too easy to guess" in refused.err) == (1, True)
        doctor = await talk(program, "doctor")
        assert "TALARIA_API_KEY is too easy to guess" in doctor.out


async def test_first_start_creates_a_key_and_later_ones_do_not(tmp_path: Path, model: ModelServer) -> None:
    program = scripted_program(tmp_path, model)
    file = tmp_path / "profiles" / "default" / "api-key"
    async with serving(program) as server:
        first = server.key
    assert (file.stat().st_mode & 0o777, file.read_text()) == (0o600, f"{first}\n")
    async with serving(program) as server:
        assert server.key == first
        listed = json.loads((await talk(program, "api-keys", "list", "--json")).out)
        assert [(one["name"], one["scopes"]) for one in listed] == [("first", ["admin"])]
        async with client(server) as http:
            assert (await http.get("/v1/sessions")).status_code == 200
            assert (await talk(program, "api-keys", "revoke", "first")).code == 0
            assert not file.exists()

            async def refused() -> bool:
                return (await http.get("/v1/models")).status_code == httpx.codes.UNAUTHORIZED

            await until(refused)
            assert (await http.post("/v1/runs", json={"input": "hi"})).status_code == 401
            http.headers.pop("authorization")
            assert (await http.get("/v1/sessions")).status_code == 401
    async with serving(program) as server:
        assert server.key not in ("", first)


async def test_serve_listens_on_all_addresses_with_a_key(tmp_path: Path, model: ModelServer) -> None:
    program = scripted_program(tmp_path, model)
    made = await talk(program, "api-keys", "create", "mine", "--json")
    key = json.loads(made.out)["key"]
    process = await warm_program.start(
        "serve",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        env=program.environment(),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            line = await process.stderr.readline()
        port = int(line.decode().partition("0.0.0.0:")[2].partition("/")[0])
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            lines = ("GET /v1/models HTTP/1.1", "host: any.name", f"authorization: Bearer {key}", "connection: close")
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _listening(program: Program, *arguments: str) -> AsyncIterator[Any]:
    """Serve on a free port while the block runs, and yield the printed JSON; nothing else may be printed."""
    process = await warm_program.start(
        "serve",
        "--port",
        "0",
        "--json",
        *arguments,
        env=program.environment(),
        cwd=program.home / "work",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            announced = json.loads(await process.stdout.readline())
        assert announced["pid"] == process.pid
        yield announced
    finally:
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            rest = await process.communicate()
    assert (process.returncode, rest) == (0, (b"", b""))


def _key_of(announced: dict[str, str]) -> str:
    return Path(announced["api_key_file"]).read_text().strip()


async def test_a_script_can_read_the_listening_address(tmp_path: Path, model: ModelServer) -> None:
    async with _listening(scripted_program(tmp_path, model)) as announced:
        assert announced["base_url"] == f"{announced['url']}/v1"
        key = _key_of(announced)
        async with loopback_client(announced["base_url"]) as http:
            assert (await http.get("models")).status_code == httpx.codes.UNAUTHORIZED
            known = {"authorization": f"Bearer {key}"}
            assert (await http.get("models", headers=known)).status_code == httpx.codes.OK


async def test_serve_listens_at_an_ipv6_address(tmp_path: Path, model: ModelServer) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("There is no IPv6 here.")
    async with _listening(scripted_program(tmp_path, model), "--host", "::1") as announced:
        assert announced["url"].startswith("http://[::1]:")
        key = {"authorization": f"Bearer {_key_of(announced)}"}
        async with loopback_client(announced["url"], headers=key) as http:
            answers = {
                name: (await http.post(CHAT, json=HI, headers=headers)).status_code
                for name, headers in {
                    "by its address": {},
                    "by its own page": {"origin": announced["url"]},
                    "by its name": {"host": "localhost"},
                    "by another name": {"host": "evil.example.org"},
                    "by a page elsewhere": {"origin": "http://[::2]"},
                }.items()
            }
    assert list(answers.values()) == [200, 200, 200, 421, 403], answers


async def test_port_in_use_is_reported_in_one_line(tmp_path: Path, model: ModelServer) -> None:
    program = scripted_program(tmp_path, model)
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        refused = await talk(program, "serve", "--port", str(port))
    assert refused.code == 1
    (line,) = refused.err.splitlines()
    assert f"Can't listen on 127.0.0.1:{port}" in line
    assert (await talk(program, "serve", "--port", "70000")).code == 2


def test_keys_are_created_shown_once_listed_and_revoked(tmp_path: Path) -> None:
    program = Program(tmp_path)
    made = program.run("api-keys", "create", "laptop", "--scope", "chat", "--scope", "read")
    token = made.out.strip()
    assert token.startswith("tal_")
    assert "not shown again" in made.err
    assert program.run("api-keys", "create", "laptop").code == 1
    listed = json.loads(program.run("api-keys", "list", "--json").out)
    assert [(one["name"], one["scopes"]) for one in listed] == [("laptop", ["chat", "read"])]
    table = program.run("api-keys", "list").out
    assert "laptop" in table
    assert token not in table
    assert program.run("api-keys", "revoke", "laptop").code == 0
    gone = program.run("api-keys", "revoke", "laptop")
    assert (gone.code, "No key is called `laptop`" in gone.err) == (1, True)
    assert json.loads(program.run("api-keys", "list", "--json").out) == []
    assert program.run("api-keys", "create", "x", "--scope", "everything").code == 2


async def test_gateway_serves_chats_if_the_api_port_is_in_use(tmp_path: Path, model: ModelServer) -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        settings = f"[api]\nenabled = true\nport = {port}\n"
        alone = await talk(scripted_program(tmp_path / "alone", model, settings), "gateway", "run")
        assert (alone.code, f"Can't listen on 127.0.0.1:{port}" in alone.err) == (1, True)
        network = f'{settings}[platforms.loopback.options]\naddress = "http://127.0.0.1:9"\n'
        program = scripted_program(tmp_path / "chats", model, network)
        process = await warm_program.start(
            "gateway",
            "run",
            env=program.environment(),
            cwd=tmp_path,
            stderr=asyncio.subprocess.PIPE,
        )
        try:

            async def announced() -> str:
                status = await talk(program, "gateway", "status", "--json")
                return status.out if "The API isn't served" in status.out else ""

            assert f":{port} (" in await until(announced)
        finally:
            process.terminate()
            async with asyncio.timeout(PATIENCE):
                await process.communicate()


async def test_gateway_serves_the_api_if_enabled(tmp_path: Path, model: ModelServer) -> None:
    port = free_port()
    program = scripted_program(tmp_path, model, f"[api]\nenabled = true\nport = {port}\n")
    process = await warm_program.start(
        "gateway",
        "run",
        env=program.environment(),
        cwd=tmp_path / "work",
        stderr=asyncio.subprocess.PIPE,
    )
    try:

        async def answers() -> str:
            run = await asyncio.create_subprocess_exec(
                "curl",
                "-sf",
                f"http://127.0.0.1:{port}{CHAT}",
                "-H",
                f"Authorization: Bearer {Server(program).key}",
                "-d",
                json.dumps(HI),
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await run.communicate()
            return out.decode()

        if shutil.which("curl") is None:
            pytest.skip("There is no curl here.")
        answer = json.loads(await until(answers))
        assert answer["choices"][0]["message"]["content"] == "ok"
    finally:
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            await process.communicate()
    assert process.returncode == 0
