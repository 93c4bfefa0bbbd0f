"""Model calls of the program honour HTTPS_PROXY and NO_PROXY, with a tunnel through a real proxy."""

import asyncio
from contextlib import suppress
from pathlib import Path

from tests.app import warm_program
from tests.app.program import Outcome, Program
from tests.providers.raw_servers import Talk, certificate, proxy, serving

from talaria.testing.model_server import ModelServer


def forward(port: int) -> Talk:
    """Return a server that passes each connection on to a port of this machine."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))

    return talk


async def ask(home: Path, url: str, **environment: str) -> Outcome:
    """Ask a model at an address, with these variables."""
    program = Program(home)
    own = {
        "TALARIA__MODEL__PROVIDER": "mine",
        "TALARIA__MODEL__NAME": "scripted",
        "TALARIA__PROVIDERS__MINE__BASE_URL": url,
    }
    env = program.environment(**own, **environment)
    return Outcome(*await asyncio.to_thread(warm_program.run, ("Hello there",), env=env, cwd=home))


async def test_https_model_call_uses_a_tunnel_through_the_proxy(tmp_path: Path, server: ModelServer) -> None:
    context, cert = certificate(tmp_path)
    asked: list[str] = []
    port = int(server.url.rpartition(":")[2])
    async with serving(forward(port), context) as secure, serving(proxy(secure, asked)) as proxy_port:
        done = await ask(
            tmp_path, "https://model.test/v1", HTTPS_PROXY=f"http://127.0.0.1:{proxy_port}", SSL_CERT_FILE=str(cert)
        )
    assert (done.code, done.out.strip()) == (0, "ok"), done.err
    assert asked[0].splitlines()[0] == "CONNECT model.test:443 HTTP/1.1"
    assert "Authorization" not in asked[0]


async def test_host_in_no_proxy_is_called_directly(tmp_path: Path) -> None:
    asked: list[str] = []
    async with serving(proxy(9, asked)) as proxy_port:
        variables = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy_port}", "NO_PROXY": "model.invalid"}
        done = await ask(tmp_path, "https://model.invalid/v1", **variables)
    assert (done.code, asked) == (1, [])
    assert "its host name can't be resolved" in done.err


async def test_local_model_is_called_without_the_proxy(tmp_path: Path, server: ModelServer) -> None:
    done = await ask(tmp_path, f"{server.url}/v1", HTTP_PROXY="http://127.0.0.1:9", HTTPS_PROXY="http://127.0.0.1:9")
    assert (done.code, done.out.strip()) == (0, "ok")


async def test_unsupported_proxy_kind_is_reported_to_the_owner(tmp_path: Path) -> None:
    done = await ask(tmp_path, "https://model.test/v1", HTTPS_PROXY="socks5://127.0.0.1:9")
    assert done.code == 1
    assert "the environment names a socks5:// proxy, and only HTTP proxies work. Check HTTPS_PROXY" in done.err


async def test_unreachable_proxy_is_reported_to_the_owner(tmp_path: Path) -> None:
    done = await ask(tmp_path, "https://model.test/v1", HTTPS_PROXY="http://127.0.0.1:9")
    assert done.code == 1
    assert "through the proxy 127.0.0.1:9, the connection was refused. Check HTTPS_PROXY" in " ".join(done.err.split())
