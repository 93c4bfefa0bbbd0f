"""A connection to one MCP server: transports, content, and the task that reconnects. Imported with the MCP library."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import anyio
import httpx2
import msgspec
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import (
    Tool as McpTool,
)
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Implementation,
    Prompt,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from msgspec import Struct

from talaria.contracts.tool import Effect, Tool, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.messages import Image
from talaria.core.umask import INHERIT, person_umask
from talaria.tools.mcp.remote_tools import Offer, Offers, tools_of
from talaria.tools.mcp.settings import McpServer

_SOURCE = "an MCP server"
_LONGEST_LOG = 1_000_000  # bytes, after which a new log is started
_LONGEST_SILENCE = 300.0  # seconds; a server may hold a reply open for as long as a tool runs
Incoming = SessionMessage | Exception
_MOST_PAGES = 20
_LASTING = 30.0  # seconds after which a connection counts as good, and retry pauses start small again
_FAILURES = (
    OSError, TimeoutError, ValueError, RuntimeError, MCPError, httpx2.HTTPError, anyio.ClosedResourceError,
    anyio.BrokenResourceError, ExceptionGroup,
)  # fmt: skip

log = logging.getLogger(__name__)


def offer_of(tool: McpTool) -> Offer:
    """Return our description of a tool; an undeclared effect counts as irreversible."""
    hints = tool.annotations
    effect = Effect.IRREVERSIBLE
    if hints is not None and hints.read_only_hint:
        effect = Effect.READS
    elif hints is not None and hints.idempotent_hint:
        effect = Effect.IDEMPOTENT
    return Offer(tool.name, tool.description or tool.title or "", tool.input_schema, effect)


def prompt_in_words(prompt: Prompt) -> str:
    """Return the name of a prompt and its arguments."""
    names = ", ".join(one.name if one.required else f"{one.name}?" for one in prompt.arguments or ())
    return f"{prompt.name}({names})"


def tool_output(result: CallToolResult) -> ToolOutput:
    """Return the result of a tool, or raise `ToolFailed` if it reports a failure."""
    output = _output(result.content)
    if not output.text and result.structured_content is not None:
        output = ToolOutput(msgspec.json.encode(result.structured_content).decode(), output.images, _SOURCE)
    if result.is_error:
        raise ToolFailed(output.text or "the tool failed without an error message")
    return output if output.text or output.images else ToolOutput("(no output)")


def resource_output(result: ReadResourceResult) -> ToolOutput:
    """Return the content of a resource."""
    return ToolOutput("\n\n".join(_resource(one) for one in result.contents) or "(empty)", source=_SOURCE)


def prompt_output(result: GetPromptResult) -> ToolOutput:
    """Return the messages of a prompt."""
    return ToolOutput(
        "\n\n".join(f"{one.role}: {_words(one.content)}" for one in result.messages) or "(empty)", source=_SOURCE
    )


def _output(blocks: list[ContentBlock]) -> ToolOutput:
    pictures = tuple(
        Image(f"data:{block.mime_type};base64,{block.data}", block.mime_type)
        for block in blocks
        if isinstance(block, ImageContent)
    )
    return ToolOutput("\n\n".join(filter(None, map(_words, blocks))), pictures, _SOURCE)


def _words(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return f"[image, {block.mime_type}]"
        case AudioContent():
            return f"[audio, {block.mime_type}]"
        case ResourceLink():
            return f"{block.name}: {block.uri}"
        case EmbeddedResource():
            return _resource(block.resource)


def _resource(contents: TextResourceContents | BlobResourceContents) -> str:
    if isinstance(contents, TextResourceContents):
        return contents.text
    return f"[{contents.uri}: {contents.mime_type or 'binary'}, {len(contents.blob) * 3 // 4:,} bytes]"


@asynccontextmanager
async def transport(server: McpServer, log: Path, gone: asyncio.Event) -> AsyncIterator[tuple[Any, Any]]:
    """Open the streams to a server; ``gone`` is set when it has disconnected."""
    opened = _over_http(server) if server.url else _over_stdio(server, log)
    async with opened as (reading, writing):
        yield Watched(reading, gone), writing


class Watched:
    """A stream from a server that reports its end."""

    def __init__(self, stream: Any, gone: asyncio.Event) -> None:
        self._stream = stream
        self._gone = gone

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
            self._gone.set()
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


def _over_stdio(server: McpServer, log: Path) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Any, Any]]:
        command, *arguments = _with_own_umask([server.command, *server.args])
        env = {**server.session_env, **server.env}
        parameters = StdioServerParameters(command=command, args=arguments, env=env, cwd=server.folder or None)
        with _opened_log(log) as file:
            async with stdio_client(parameters, errlog=file) as streams:
                yield streams

    return opened()


def _with_own_umask(argv: list[str]) -> list[str]:
    """Return a command that runs with the user's own file mode mask, like all their other commands."""
    mask = person_umask()
    if mask == INHERIT or shutil.which(argv[0]) is None:
        return argv
    return ["/bin/sh", "-c", 'umask "$0" && exec "$@"', f"{mask:o}", *argv]


def _over_http(server: McpServer) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Any, Any]]:
        timeout = httpx2.Timeout(server.connect_seconds, read=max(server.call_seconds, _LONGEST_SILENCE))
        async with (
            httpx2.AsyncClient(headers=server.headers, timeout=timeout) as http,
            streamable_http_client(server.url, http_client=http) as streams,
        ):
            yield streams

    return opened()


def _opened_log(log: Path) -> TextIO:
    log.parent.mkdir(parents=True, exist_ok=True)
    long = log.exists() and log.stat().st_size > _LONGEST_LOG
    return log.open("w" if long else "a")


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
