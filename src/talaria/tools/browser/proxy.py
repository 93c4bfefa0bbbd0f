"""Loopback proxy that is the only way of a browser to the network, and connects to permitted addresses only.

A name is resolved here and the checked address is the one connected to, so neither a redirect, a subresource, a
WebSocket nor a second answer of the name server reaches this machine or its network. Where the environment names a
proxy, connections go through it: it resolves names itself, so those that are unknown here are left to its rules.
"""

import asyncio
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from contextlib import suppress
from html import escape
from typing import Self

from talaria.core.errors import ToolFailed
from talaria.http_client.connection import HttpAddress, HttpRoute, make_head
from talaria.http_client.dial import ProxyRefused, ProxyUnsupported, find_route, reach
from talaria.tools.web.ssrf_guard import Guard

_CHUNK = 65_536
_LONGEST_HEAD = 262_144
_CONNECT_SECONDS = 20.0
_HEAD_END = b"\r\n\r\n"
_TARGET = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<host>[^/:\[\]@]+))(?::(?P<port>\d{1,5}))?(?P<path>/.*)?\Z", re.IGNORECASE)  # fmt: skip  # noqa: E501 (one pattern)
_HOP_HEADERS = (b"proxy-connection:", b"connection:", b"keep-alive:", b"proxy-authorization:")


class GuardedProxy:
    """HTTP proxy on a free port of loopback.

    ``allowed`` returns the hosts that are not checked, as ``name`` or ``name:port``; ``on_refused`` gets the host and
    port of each refused connection.
    """

    def __init__(self, allowed: Callable[[], frozenset[str]], on_refused: Callable[[str], None]) -> None:
        self._allowed = allowed
        self._on_refused = on_refused
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LONGEST_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await self._serve_one(reader, writer)
        except (OSError, UnicodeError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the browser sees a closed connection
        finally:
            writer.close()

    async def _serve_one(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = await reader.readuntil(_HEAD_END)
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        found = _TARGET.match(rest.rpartition(" ")[0])
        if found is None or (method != "CONNECT" and (found["scheme"] or "").lower() != "http"):
            _answer(writer, 400, "Only http and https addresses can be opened.")
            return
        scheme = "https" if method == "CONNECT" else "http"
        server = HttpAddress(scheme, (found["v6"] or found["host"]).lower(), int(found["port"] or 80))
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                route = find_route(server)
                upstream, sender = await _connect(route, Guard(self._allowed()))
        except ToolFailed:
            self._on_refused(f"{server.host}:{server.port}")
            _answer(writer, 403, f"Talaria blocked {server.host}: it is not a public address.")
            return
        except (OSError, TimeoutError, UnicodeError, ProxyUnsupported, asyncio.IncompleteReadError) as error:
            _answer(writer, 502, f"{server.host} can't be reached: {str(error) or 'it did not answer in time'}.")
            return
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                await _relay_both(reader, writer, upstream, sender)
            else:
                head = _join_request(method, route, found["path"] or "/", head)
                await _forward(head, (reader, writer), (upstream, sender))
        finally:
            sender.close()


async def _connect(route: HttpRoute, guard: Guard) -> tuple[StreamReader, StreamWriter]:
    """Connect to a permitted address, or to the proxy on the way, with a tunnel for https."""
    to, proxy = route.to, route.proxy
    if proxy is None:
        return await asyncio.open_connection(sock=await reach(to.host, to.port, guard.resolve), limit=_LONGEST_HEAD)
    await guard.check_through_proxy(to)
    reached, name = await reach(proxy.host, proxy.port), proxy.host if proxy.is_secure else None
    reader, writer = await asyncio.open_connection(
        sock=reached, limit=_LONGEST_HEAD, ssl=proxy.is_secure or None, server_hostname=name
    )
    if to.is_secure:
        login = {"Proxy-Authorization": proxy.login} if proxy.login else {}
        writer.write(make_head(f"CONNECT {to.authority} HTTP/1.1", {"Host": to.authority, **login}))
        status = (await reader.readuntil(_HEAD_END)).split(b" ", 2)[1]
        if status != b"200":
            writer.close()
            raise ProxyRefused(f"the proxy {proxy.authority} answered {status.decode('latin-1')}")
    return reader, writer


def _join_request(method: str, route: HttpRoute, path: str, head: bytes) -> bytes:
    """Return the head of a request for a server, or for the proxy on the way to it."""
    lines = head[: -len(_HEAD_END)].split(b"\r\n")[1:]
    target = f"http://{route.to.name}{path}" if route.proxy else path
    login = route.proxy.login if route.proxy else ""
    own = [f"Proxy-Authorization: {login}".encode("latin-1")] if login else []
    return _join_head(f"{method} {target} HTTP/1.1".encode("latin-1"), lines, own)


async def _forward(
    head: bytes,
    client: tuple[StreamReader, StreamWriter],
    server: tuple[StreamReader, StreamWriter],
) -> None:
    """Forward exactly one request and its response.

    Both sides close afterwards, and nothing after the request's body is sent on: a connection to one server never
    carries a request to another.
    """
    lines = head.split(b"\r\n")
    server[1].write(head)
    length = next((line.partition(b":")[2] for line in lines if line.lower().startswith(b"content-length:")), b"0")
    if any(line.lower().startswith(b"transfer-encoding:") for line in lines):
        _answer(client[1], 411, "This request has no length.")
        return
    async with asyncio.TaskGroup() as group:
        body = group.create_task(_copy(client[0], server[1], int(length)))
        await _copy_response(server[0], client[1])
        body.cancel()


async def _copy_response(server: StreamReader, client: StreamWriter) -> None:
    while True:
        first, *lines = (await server.readuntil(_HEAD_END))[: -len(_HEAD_END)].split(b"\r\n")
        client.write(_join_head(first, lines))
        if not first.split(b" ")[1:2] or not first.split(b" ")[1].startswith(b"1"):
            break
    await _copy(server, client, None)


def _join_head(first: bytes, lines: list[bytes], own: Sequence[bytes] = ()) -> bytes:
    kept = [line for line in lines if not line.lower().startswith(_HOP_HEADERS)]
    return b"\r\n".join((first, *kept, *own, b"Connection: close", b"", b""))


async def _relay_both(reader: StreamReader, writer: StreamWriter, upstream: StreamReader, sender: StreamWriter) -> None:
    """Relay a tunnel until one side ends it."""
    async with asyncio.TaskGroup() as group:
        ways = [
            group.create_task(_copy(reader, sender, None)),
            group.create_task(_copy(upstream, writer, None)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()


async def _copy(source: StreamReader, target: StreamWriter, length: int | None) -> None:
    """Copy ``length`` bytes, or all there are."""
    with suppress(OSError):
        while length is None or length > 0:
            data = await source.read(_CHUNK if length is None else min(_CHUNK, length))
            if not data:
                break
            target.write(data)
            await target.drain()
            length = None if length is None else length - len(data)


def _answer(writer: StreamWriter, status: int, sentence: str) -> None:
    body = f"<!doctype html><title>Blocked</title><p>{escape(sentence)}</p>".encode()
    head = (
        f"HTTP/1.1 {status} Refused\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
