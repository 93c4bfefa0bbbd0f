"""Servers that send exact bytes, proxies, and self-signed certificates."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


@asynccontextmanager
async def serving(talk: Talk, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Yield the port of a server that calls ``talk`` for each connection and closes it afterwards."""
    talks: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())
        with suppress(OSError, asyncio.IncompleteReadError):
            await talk(reader, writer)
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(serve, host, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        if running := [one for one in talks if one is not None]:
            await asyncio.wait(running, timeout=5)


async def read_request(reader: asyncio.StreamReader) -> str:
    """Return the head of a request, and read its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lengths = [line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length:")]
    await reader.readexactly(int(lengths[0]) if lengths else 0)
    return head


def answering(*answers: bytes, requests: list[str] | None = None, pieces: Sequence[int] = ()) -> Talk:
    """Send these answers to the requests of a connection, then close it; ``pieces`` are offsets to split at."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            head = await read_request(reader)
            if requests is not None:
                requests.append(head)
            for start, end in zip([0, *pieces], [*pieces, len(answer)], strict=True):
                writer.write(answer[start:end])
                await writer.drain()
                await asyncio.sleep(0)

    return talk


class ScriptedConnections:
    """Answer each connection with its own list, in order; the last list is used for all later ones."""

    def __init__(self, *connections: list[bytes]) -> None:
        self.count = 0
        self.requests: list[str] = []
        self._connections = connections

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = self._connections[min(self.count, len(self._connections) - 1)]
        self.count += 1
        await answering(*answers, requests=self.requests)(reader, writer)


async def fetch(http: HttpPool, url: str, timeouts: Timeouts | None = None) -> tuple[int, bytes]:
    """Return the status and the body of an answer to a POST."""
    async with http.post(url, b"{}", {}, timeouts or Timeouts()) as answer:
        return answer.status, await answer.body()


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return the TLS context of a server named ``model.test`` (and 127.0.0.1), and its certificate file."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    names = "subjectAltName=DNS:model.test,IP:127.0.0.1"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=model.test"
    files = ["-addext", names, "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


def proxy(target: int, asked: list[str]) -> Talk:
    """Return a proxy that forwards to a local port and records the first head of each connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.decode())
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target)
        if head.startswith(b"CONNECT "):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            there_writer.write(head)
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
        await there_writer.wait_closed()

    return talk


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()
