"""A connection to one MCP server, owned by one task that reconnects. Imported with the MCP library."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT, Implementation
from msgspec import Struct

from talaria.contracts.tool import Tool, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.mcp.content import offer_of, prompt_in_words, prompt_output, resource_output, tool_output
from talaria.tools.mcp.remote_tools import Offers, tools_of
from talaria.tools.mcp.settings import McpServer
from talaria.tools.mcp.transports import transport

log = logging.getLogger(__name__)

_MOST_PAGES = 20
_LASTING = 30.0  # seconds after which a connection counts as good, and retry pauses start small again
_FAILURES = (
    OSError, TimeoutError, ValueError, RuntimeError, MCPError, httpx2.HTTPError, anyio.ClosedResourceError,
    anyio.BrokenResourceError, ExceptionGroup,
)  # fmt: skip


class Connection:
    """Implementation of `Remote`; `serve` is the task that owns the connection."""

    def __init__(self, server: McpServer, log_folder: Path) -> None:
        self.name = server.name
        self.problem = "it didn't answer in time"
        self.tools: list[Tool] = []
        self._server = server
        self._log = log_folder / f"mcp-{server.name}.log"
        self._line: _Line | None = None
        self._tried = asyncio.Event()

    async def serve(self) -> None:
        """Stay connected until cancelled."""
        pause = self._server.first_pause_seconds
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._stay_connected()
            except _FAILURES as error:
                self._leave(_in_words(error))
            if asyncio.get_running_loop().time() - began > _LASTING:
                pause = self._server.first_pause_seconds
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._server.longest_pause_seconds)

    async def tried(self) -> None:
        """Wait until the first attempt to connect has succeeded or failed."""
        await self._tried.wait()

    async def call_tool(self, name: str, arguments: dict[str, Any], show: Callable[[str], None]) -> ToolOutput:
        """Run a tool on the server."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            show(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

        seconds = self._server.call_seconds
        with self._connected() as client:
            result = await client.call_tool(
                name, arguments, read_timeout_seconds=seconds, progress_callback=on_progress
            )
        return tool_output(result)

    async def read_resource(self, uri: str) -> ToolOutput:
        """Return a resource of the server."""
        with self._connected() as client:
            return resource_output(await client.read_resource(uri))

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> ToolOutput:
        """Return a prompt of the server, filled in."""
        with self._connected() as client:
            return prompt_output(await client.get_prompt(name, arguments))

    async def _stay_connected(self) -> None:
        gone = asyncio.Event()
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._server.connect_seconds):
                client = await stack.enter_async_context(self._new_client(gone))
                self.tools = tools_of(self, await self._ask_for_offers(client))
            self._line, self.problem = _Line(client, gone), ""
            self._tried.set()
            await gone.wait()
            self._leave("the server disconnected; reconnecting")

    def _new_client(self, gone: asyncio.Event) -> Client:
        return Client(
            transport(self._server, self._log, gone),
            read_timeout_seconds=self._server.call_seconds,
            client_info=Implementation(name="talaria", version="1"),
            mode="legacy" if self._server.legacy else "auto",
            cache=None,
        )

    def _leave(self, problem: str) -> None:
        if self._line is not None or not self._tried.is_set():
            log.warning("MCP server %s: %s", self.name, problem)
        self._line, self.problem = None, problem
        self._tried.set()

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        """Lend the client for one call; convert its errors to ours, and drop an unusable connection."""
        line = self._line
        if line is None:
            raise ToolFailed(f"MCP server {self.name} is not connected: {self.problem}")
        try:
            yield line.client
        except MCPError as error:
            # INVALID_REQUEST is how the library reports a session that the server has forgotten.
            if error.code in {CONNECTION_CLOSED, INVALID_REQUEST}:
                line.gone.set()
            late = error.code == REQUEST_TIMEOUT
            reason = f"no answer within {self._server.call_seconds:g} s" if late else error.message
            raise ToolFailed(f"{self.name}: {reason}") from error
        except _FAILURES as error:
            line.gone.set()
            raise ToolFailed(f"{self.name}: {_in_words(error)}") from error

    async def _ask_for_offers(self, client: Client) -> Offers:
        has = client.server_capabilities
        tools = await _all(lambda cursor: client.list_tools(cursor=cursor), "tools") if has.tools else []
        resources = (
            await _all(lambda cursor: client.list_resources(cursor=cursor), "resources") if has.resources else []
        )
        prompts = await _all(lambda cursor: client.list_prompts(cursor=cursor), "prompts") if has.prompts else []
        return Offers(
            tuple(offer_of(tool) for tool in tools if self._server.offers(tool.name)),
            tuple(str(resource.uri) for resource in resources),
            tuple(prompt_in_words(prompt) for prompt in prompts),
        )


class _Line(Struct, frozen=True):
    """One connection, from start to end."""

    client: Client
    gone: asyncio.Event


async def _all(ask: Callable[[str | None], Awaitable[Any]], field: str) -> list[Any]:
    """Return every page of a list."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await ask(cursor)
        found += getattr(page, field)
        cursor = page.next_cursor
        if not cursor:
            break
    return found


def _in_words(error: BaseException) -> str:
    """Return a description of the innermost error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
