"""Transports to MCP servers: a child process, or streamable HTTP with headers and the tokens of a sign-in.

Unlike the transport of the library, this one skips lines that are no messages, gives up on a server that writes nothing
else, reports why a program ended, and ends it even if that is cancelled.
"""

import asyncio
import os
import shutil
import signal
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from talaria.core.errors import TalariaError
from talaria.core.files import INHERIT, person_umask
from talaria.tools.mcp.settings import McpServer

_LONGEST_SILENCE = 300.0  # seconds; a server may hold a reply open for as long as a tool runs
_UNAUTHORIZED = 401
Incoming = SessionMessage | Exception
_LONGEST_LOG = 1_000_000  # bytes, after which a new log is started
_LONGEST_MESSAGE = 64_000_000  # bytes
_LONGEST_REASON = 200  # characters
_MOST_OTHER_LINES = 1_000  # in a row
_SHORTEST_SECRET = 4
_TO_END = 2.0  # seconds after its input was closed, and again after SIGTERM
_CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError)
Report = Callable[[str], None]


@asynccontextmanager
async def open_transport(
    server: McpServer, log: Path, access: "HttpAccess", on_end: Callable[[], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Open the streams to a server; ``on_end`` is called when it has disconnected."""
    opened = _open_http_streams(server, access) if server.url else run_server(server, log, access.report)
    async with opened as (reading, writing):
        yield Watched(reading, on_end), writing


class Watched:
    """A stream from a server that reports its end."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """Return the context that the library sends along with a message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Incoming:
        """Return the next message."""
        message: Incoming = await self._stream.receive()
        return message

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            message: Incoming = await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise
        return message

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        handled: bool | None = await self._stream.__aexit__(kind, error, trace)
        return handled


class HttpAccess(httpx2.Auth):
    """Adds the tokens of a sign-in to requests; ``problem`` says why the server can't be used, if that is known."""

    def __init__(self, server: McpServer) -> None:
        self.problem = ""
        self._server = server

    def report(self, problem: str) -> None:
        """Store the first problem of a connection."""
        self.problem = self.problem or problem

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the current token, and once more with a renewed one if the server rejects it."""
        authorizer = self._server.authorizer
        try:
            with anyio.CancelScope(shield=True):  # the library would cancel a renewal again and again
                given = await authorizer.headers(request.method, str(request.url), b"") if authorizer else {}
            request.headers.update(given)
            response = yield request
            if response.status_code == _UNAUTHORIZED and authorizer is not None and given:
                with anyio.CancelScope(shield=True):
                    await authorizer.renew(given)
                request.headers.update(await authorizer.headers(request.method, str(request.url), b""))
                response = yield request
        except TalariaError as error:
            self.problem = str(error)
            raise httpx2.RequestError(str(error), request=request) from error
        if response.status_code == _UNAUTHORIZED:
            self.problem = f"it asks for a sign-in. Sign in with `talaria mcp login {self._server.name}`"


@cache
def _load_certificates(_paths: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    """Load the certificates that httpx trusts, or those of ``SSL_CERT_FILE``; each attempt to connect needs them."""
    return httpx2.create_ssl_context()


def _open_http_streams(server: McpServer, access: HttpAccess) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    @asynccontextmanager
    async def open_streams() -> AsyncIterator[tuple[Any, Any]]:
        timeout = httpx2.Timeout(server.connect_seconds, read=max(server.call_seconds, _LONGEST_SILENCE))
        certificates = _load_certificates(ssl.get_default_verify_paths())
        async with (
            httpx2.AsyncClient(headers=server.headers, timeout=timeout, auth=access, verify=certificates) as http,
            streamable_http_client(server.url, http_client=http) as streams,
        ):
            yield streams

    return open_streams()


@asynccontextmanager
async def run_server(server: McpServer, log: Path, report: Report) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server and yield the streams of its messages; ``report`` gets the reason why it can't be used."""
    with _open_log(log) as file:
        began = file.tell()
        process = await _start(server, file, report)

        async def report_end() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TO_END):
                    await process.wait()
            report(_describe_end(process.returncode, _read_reason(log, began, server)))

        to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(_read(process, to_session, file, report, report_end))
                writing = group.create_task(_write(process, from_session, to_session, report_end))
                try:
                    yield from_server, to_server
                finally:
                    reading.cancel()
                    writing.cancel()
        finally:
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()
            await _end(process)


async def _start(server: McpServer, errors: TextIO, report: Report) -> asyncio.subprocess.Process:
    argv = [server.command, *server.args]
    try:
        return await asyncio.create_subprocess_exec(
            *_wrap_with_umask(argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=get_default_environment() | server.session_env | server.env,
            cwd=server.folder or None,
            start_new_session=True,
        )
    except OSError as error:
        if server.folder and not os.path.isdir(server.folder):  # noqa: ASYNC240, PTH112 (once per failed start)
            report(f"its folder {server.folder} doesn't exist")
        elif isinstance(error, FileNotFoundError):
            report(f"the program `{server.command}` isn't installed, or isn't on the PATH")
        else:
            report(f"the program `{server.command}` can't be run: {error.strerror}")
        raise


def _wrap_with_umask(argv: list[str]) -> list[str]:
    """Return a command that runs with the user's own file mode mask, like all their other commands."""
    mask = person_umask()
    if mask == INHERIT or shutil.which(argv[0]) is None:
        return argv
    return ["/bin/sh", "-c", 'umask "$0" && exec "$@"', f"{mask:o}", *argv]


async def _read(
    process: asyncio.subprocess.Process,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    log: TextIO,
    report: Report,
    report_end: Callable[[], Awaitable[None]],
) -> None:
    """Pass messages on until the server ends; lines that are none go to the log."""
    others = 0
    async with to_session:
        async for line in _iterate_lines(process):
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                log.write(f"{line.decode('utf-8', 'replace')}\n")
                others += 1
                if others > _MOST_OTHER_LINES or len(line) > _LONGEST_MESSAGE:
                    report("it writes something else than MCP messages to its standard output")
                    _send_signal(process, signal.SIGTERM)  # to read on until it ends by itself would keep a core busy
                    return
                continue
            others = 0
            with suppress(*_CLOSED):
                await to_session.send(SessionMessage(message))
        await report_end()


async def _iterate_lines(process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    """Yield the lines of its output; one that is too long ends with what was read of it."""
    assert process.stdout is not None
    pieces: list[bytes] = []
    size = 0
    while chunk := await process.stdout.read(1 << 16):
        first, *others = chunk.split(b"\n")
        pieces.append(first)
        size += len(first)
        if not others and size <= _LONGEST_MESSAGE:
            continue
        for line in (b"".join(pieces), *others[:-1]):
            if line.strip():
                yield line
        pieces, size = others[-1:], sum(map(len, others[-1:]))


async def _write(
    process: asyncio.subprocess.Process,
    from_session: MemoryObjectReceiveStream[SessionMessage],
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    report_end: Callable[[], Awaitable[None]],
) -> None:
    """Send messages to the server; one that takes no more ends the connection."""
    assert process.stdin is not None
    try:
        async with from_session:
            async for one in from_session:
                process.stdin.write(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()
    except _CLOSED:
        await report_end()
        to_session.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its input, and end it with its children if it doesn't end by itself, at the latest when cancelled."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                async with asyncio.timeout(_TO_END):
                    await _wait_for_end(process)
                    return
            except TimeoutError:
                _send_signal(process, number)
    finally:
        _send_signal(process, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TO_END):
                await _wait_for_end(process)


async def _wait_for_end(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(1 << 16):
        pass  # a server that is blocked by a full pipe can't end
    await process.wait()


def _send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _describe_end(code: int | None, reason: str) -> str:
    if code is None:
        return "its program closed its output"
    if code < 0:
        return f"its program was ended by {signal.Signals(-code).name}"
    return f"its program ended with exit code {code}{f': {reason}' if code and reason else ''}"


def _read_reason(log: Path, began: int, server: McpServer) -> str:
    """Return the last line that a server has written to the log, without the secrets it was given."""
    try:
        with log.open("rb") as file:
            file.seek(max(began, log.stat().st_size - 4 * _LONGEST_REASON))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    line = next((one.strip() for one in reversed(lines) if one.strip()), "")
    for value in server.env.values():
        line = line.replace(value, "…") if len(value) >= _SHORTEST_SECRET else line
    return line[:_LONGEST_REASON]


def _open_log(log: Path) -> TextIO:
    log.parent.mkdir(parents=True, exist_ok=True)
    long = log.exists() and log.stat().st_size > _LONGEST_LOG
    return log.open("w" if long else "a", buffering=1, errors="replace")
