"""HTTP proxy for a sandbox without network: its only way out, and only to allowed hosts."""

import asyncio
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatch
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from talaria.http_client.dial import is_public
from talaria.tools.sandbox.inside import PROXY_FOLDER, PROXY_PORT

_BRIDGE = Path(__file__).with_name("proxy_bridge.py")
_LONGEST_HEAD = 65_536
_CHUNK = 65_536
_CONNECT_SECONDS = 20
_SOCKET = "socket"

log = logging.getLogger(__name__)


class AllowListProxy(Struct, frozen=True):
    """A running proxy: ``folder`` has its socket and bridge, and belongs at `PROXY_FOLDER` in the sandbox."""

    folder: Path

    def build_bridge_argv(self, python: str) -> tuple[str, ...]:
        """Return the start of a call inside that makes the proxy reachable on a port there."""
        return (python, "-I", "-S", f"{PROXY_FOLDER}/{_BRIDGE.name}", f"{PROXY_FOLDER}/{_SOCKET}", str(PROXY_PORT))


class _Refusal(Exception):
    """A request that isn't allowed, or that failed; the text is for the program inside."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


@asynccontextmanager
async def run_proxy(hosts: Sequence[str], folder: Path | None = None) -> AsyncIterator[AllowListProxy]:
    """Run a proxy to ``hosts`` within the block, in a folder that stays or in a temporary one."""
    own, listener = await asyncio.to_thread(_listen, folder)
    connections: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        connections.add(connection)
        try:
            await _serve(reader, writer, hosts)
        except asyncio.CancelledError:
            log.debug("connection of a sandbox ended with the proxy")
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("connection of a sandbox ended: %s", error)
        finally:
            connections.discard(connection)
            writer.close()

    try:
        async with await asyncio.start_unix_server(serve, sock=listener, limit=_LONGEST_HEAD) as server:
            try:
                yield AllowListProxy(own)
            finally:
                server.close()
                ended = [connection for connection in connections if connection is not None]
                for connection in ended:
                    connection.cancel()
                await asyncio.gather(*ended)
    finally:
        if folder is None:
            await asyncio.to_thread(shutil.rmtree, own, ignore_errors=True)


def _listen(folder: Path | None) -> tuple[Path, socket.socket]:
    """Return a folder with the bridge and a new socket, which replaces the one of a former process."""
    own = folder or Path(tempfile.mkdtemp(prefix="talaria-proxy-"))
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(_BRIDGE, own / _BRIDGE.name)
    (own / _SOCKET).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    handle = os.open(own, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{handle}/{_SOCKET}")  # a path of more than 107 bytes can't be bound
    finally:
        os.close(handle)
    return own, listener


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hosts: Sequence[str]) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    line, _, rest = head.partition(b"\r\n")
    try:
        method, target, _ = line.decode("latin-1").split(" ", 2)
        host, port, path = _parse_target(method, target)
        far_reader, far_writer = await _connect(host, port, hosts)
    except _Refusal as refusal:
        body = f"{refusal}\n".encode()
        writer.write(f"HTTP/1.1 {refusal.status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
        writer.write(body)
        await writer.drain()
        return
    except ValueError:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        return
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        far_writer.write(f"{method} {path} HTTP/1.1\r\n".encode("latin-1") + _filter_headers(rest))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_pump(reader, far_writer))
            group.create_task(_pump(far_reader, writer))
    finally:
        far_writer.close()


def _parse_target(method: str, target: str) -> tuple[str, int, str]:
    """Return host, port and path of a request; raises `ValueError`."""
    if method == "CONNECT":
        parts = urlsplit(f"//{target}")
        return parts.hostname or "", parts.port or 443, ""
    parts = urlsplit(target)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(target)
    return parts.hostname, parts.port or 80, f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"


def is_allowed_host(host: str, hosts: Sequence[str]) -> bool:
    """Return whether a list of names and patterns includes a host."""
    return any(fnmatch(host.lower().rstrip("."), pattern.lower()) for pattern in hosts)


async def _connect(host: str, port: int, hosts: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not is_allowed_host(host, hosts):
        raise _Refusal("403 Forbidden", f"{host} isn't in sandbox.allowed_hosts.")
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)
            addresses = [str(one[4][0]) for one in found]
            # A public name must not lead into this machine or its network; a literal in the list may.
            if host not in hosts or not _is_local_name(host):
                addresses = [one for one in addresses if is_public(ip_address(one.partition("%")[0]))]
            if not addresses:
                raise _Refusal("403 Forbidden", f"{host} isn't a public address.")
            return await asyncio.open_connection(addresses[0], port)
    except (OSError, TimeoutError) as error:
        raise _Refusal("502 Bad Gateway", f"{host} can't be reached: {error}") from error


def _is_local_name(host: str) -> bool:
    with suppress(ValueError):
        ip_address(host)
        return True
    return host == "localhost"


def _filter_headers(rest: bytes) -> bytes:
    lines = [line for line in rest.split(b"\r\n") if line]
    kept = [one for one in lines if not one.lower().startswith((b"proxy-", b"connection:"))]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_CHUNK):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
