"""A web server on this machine that receives the redirect of a browser at the end of a sign-in."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from urllib.parse import urlsplit

from talaria.core.errors import Refused
from talaria.providers.oauth import read_redirect

_PAGE = """<!doctype html><meta charset="utf-8"><title>Talaria</title>
<body style="font:1.1rem system-ui;margin:4rem auto;max-width:32rem"><h1>{title}</h1><p>{text}</p>"""
_HEAD_LIMIT = 16_384


class LoopbackRedirect:
    """Listens on the loopback address, for one redirect with this path and state."""

    def __init__(self, path: str, state: str) -> None:
        self._path = path
        self._state = state
        self._answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self.uri = ""

    @asynccontextmanager
    async def listen(self, ports: tuple[int, ...]) -> AsyncGenerator[None, None]:
        """Listen on the first free one of these ports, on any port if there are none."""
        server = await self._start(ports)
        port = server.sockets[0].getsockname()[1]
        self.uri = f"http://localhost:{port}{self._path}"
        try:
            yield
        finally:
            server.close()

    async def wait(self, limit: timedelta) -> Mapping[str, str]:
        """Return the parameters of the redirect; raises `TimeoutError` if it doesn't come."""
        return await asyncio.wait_for(asyncio.shield(self._answer), limit.total_seconds())

    async def _start(self, ports: tuple[int, ...]) -> asyncio.Server:
        for port in ports or (0,):
            try:
                return await asyncio.start_server(self._serve, "127.0.0.1", port, limit=_HEAD_LIMIT)
            except OSError:
                continue
        taken = " and ".join(map(str, ports))
        raise Refused(
            f"The ports {taken}, which this sign-in needs, are in use. Close what uses them, or add --device."
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError):
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._respond(head.split(b"\r\n", 1)[0].decode("latin-1")))
                await writer.drain()
        writer.close()

    def _respond(self, request_line: str) -> bytes:
        method, _, rest = request_line.partition(" ")
        target = rest.rpartition(" ")[0]
        found = read_redirect(target)
        if method != "GET" or urlsplit(target).path != self._path:
            return _make_page("404 Not Found", "Not found", "This address is for signing in only.")
        if not secrets.compare_digest(found.get("state", ""), self._state):
            return _make_page("400 Bad Request", "Not this sign-in", "Start again from the terminal.")
        if not self._answer.done():
            self._answer.set_result(found)
        if "error" in found:
            return _make_page("200 OK", "Not signed in", "The terminal says more. You can close this page.")
        return _make_page("200 OK", "Signed in", "Return to the terminal. You can close this page.")


def _make_page(status: str, title: str, text: str) -> bytes:
    body = _PAGE.format(title=title, text=text).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nReferrer-Policy: no-referrer\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
