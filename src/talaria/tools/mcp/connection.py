"""A connection to one MCP server, and the task that keeps it: reconnects, changed lists, questions of the server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.context import ClientRequestContext
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    ListRootsResult,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    Root,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl

from talaria.contracts.mcp import ServerState, ServerTool
from talaria.contracts.tool import Call, Tool, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.messages import Part
from talaria.tools.mcp.elicitation import answer_elicitation
from talaria.tools.mcp.remote_tools import (
    Offers,
    convert_prompt,
    convert_resource,
    convert_tool_result,
    list_prompt_parts,
    make_offer,
    make_prompt,
    make_tools,
)
from talaria.tools.mcp.settings import McpServer
from talaria.tools.mcp.transport import HttpAccess, open_transport

_MOST_PAGES = 20
_LASTING = 30.0  # seconds after which a connection counts as good, and retry pauses start small again
_LONGEST_ANSWER = 3600.0  # seconds; a person may have to answer during a call
_LIST_CHANGES = (ToolListChangedNotification, ResourceListChangedNotification, PromptListChangedNotification)
_FAILURES = (
    OSError, TimeoutError, ValueError, RuntimeError, MCPError, httpx2.HTTPError, anyio.ClosedResourceError,
    anyio.BrokenResourceError, ExceptionGroup,
)  # fmt: skip

log = logging.getLogger(__name__)


class Connection:
    """Implementation of `Remote`; `serve` is the task that owns the connection.

    ``revision`` grows when the server offers something else than before. The tools of a server that is disconnected
    stay those it had.
    """

    def __init__(self, server: McpServer, log_folder: Path) -> None:
        self.name = server.name
        self.problem = "it didn't answer in time"
        self.tools: list[Tool] = []
        self.offers = Offers()
        self.revision = 0
        self._server = server
        self._log = log_folder / f"mcp-{server.name}.log"
        self._line: _Line | None = None
        self._calls: list[_RunningCall] = []
        self._roots: tuple[str, ...] = server.roots
        self._tried = asyncio.Event()
        self._access = HttpAccess(server)

    async def serve(self) -> None:
        """Stay connected until cancelled."""
        pause = self._server.first_pause_seconds
        while True:
            began = asyncio.get_running_loop().time()
            self._access.problem = ""
            try:
                await self._stay_connected()
            except _FAILURES as error:
                self._leave(self._explain(error))
                _check_not_cancelled(error)
            if asyncio.get_running_loop().time() - began > _LASTING:
                pause = self._server.first_pause_seconds
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._server.longest_pause_seconds)

    async def wait_for_first_attempt(self) -> None:
        """Wait until the first attempt to connect has succeeded or failed."""
        await self._tried.wait()

    @property
    def state(self) -> ServerState:
        """Return the state for people."""
        tools = tuple(ServerTool(tool.name, tool.description) for tool in self.tools)
        return ServerState(
            name=self.name,
            condition="disconnected" if self.problem else "connected",
            problem=self.problem,
            tools=tools,
            resources=len(self.offers.resources),
            prompts=self.offers.prompts,
        )

    async def move_roots(self, roots: tuple[str, ...]) -> None:
        """Offer other folders as roots from now on, and notify a connected server."""
        if roots == self._roots:
            return
        self._roots = roots
        line = self._line
        if line is not None and line.client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            with suppress(*_FAILURES):
                await line.client.session.send_roots_list_changed()

    async def call_tool(self, name: str, arguments: dict[str, Any], call: Call) -> ToolOutput:
        """Run a tool on the server; its limit doesn't run while the person is asked something."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            call.progress(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

        seconds = self._server.call_seconds
        with self._use_client() as client:
            running = _RunningCall(call, seconds)
            self._calls.append(running)
            try:
                async with running.limit:
                    result = await client.call_tool(
                        name, arguments, read_timeout_seconds=_LONGEST_ANSWER, progress_callback=on_progress
                    )
            except TimeoutError as error:
                if self._line is not None:
                    self._line.report_change()  # asks it for its tools: a server that hangs is restarted
                raise ToolFailed(f"{self.name}: no answer within {seconds:g} s") from error
            finally:
                self._calls.remove(running)
        return convert_tool_result(result)

    async def read_resource(self, uri: str) -> ToolOutput:
        """Return a resource of the server."""
        with self._use_client() as client:
            return convert_resource(await client.read_resource(uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> ToolOutput:
        """Return a prompt of the server, filled in."""
        with self._use_client() as client:
            return convert_prompt(await client.get_prompt(name, dict(arguments)))

    async def get_prompt_parts(self, name: str, arguments: Mapping[str, str]) -> Sequence[Part]:
        """Return a prompt of the server as the parts of a message."""
        with self._use_client() as client:
            return list_prompt_parts(await client.get_prompt(name, dict(arguments)))

    async def _stay_connected(self) -> None:
        line = _Line()
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._server.connect_seconds):
                line.client = await stack.enter_async_context(self._make_client(line))
                self._take_offers(await self._ask_for_offers(line.client))
            self._line, self.problem = line, ""
            self._tried.set()
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(self._listen(line))
                try:
                    await self._follow_changes(line)
                finally:
                    listening.cancel()
            self._leave(self._access.problem or "the server disconnected; reconnecting")

    async def _follow_changes(self, line: "_Line") -> None:
        """Ask for the lists again whenever they may have changed, until the server is gone."""
        while await line.wait_for_change():
            try:
                async with asyncio.timeout(self._server.connect_seconds):
                    self._take_offers(await self._ask_for_offers(line.client))
            except TimeoutError:
                self._leave("the server doesn't answer any more; restarting it")
                return
            await asyncio.sleep(self._server.first_pause_seconds)  # a server may report changes without end

    async def _listen(self, line: "_Line") -> None:
        """Subscribe to changed lists, where the protocol has no notifications for them."""
        has = line.client.server_capabilities
        tools, prompts, resources = (bool(one and one.list_changed) for one in (has.tools, has.prompts, has.resources))
        if line.client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (tools or prompts or resources):
            return
        with suppress(MCPError, TimeoutError):  # not supported: the lists stay as they are
            while True:
                with suppress(SubscriptionLost):
                    async with line.client.listen(
                        tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
                    ) as subscription:
                        async for _ in subscription:
                            line.report_change()
                await asyncio.sleep(self._server.longest_pause_seconds)
                line.report_change()

    def _make_client(self, line: "_Line") -> Client:
        async def on_message(message: IncomingMessage) -> None:
            if isinstance(message, _LIST_CHANGES):
                line.report_change()

        return Client(
            open_transport(self._server, self._log, self._access, line.report_end),
            read_timeout_seconds=self._server.call_seconds,
            client_info=Implementation(name="talaria", version="1"),
            mode="legacy" if self._server.legacy else "auto",
            message_handler=on_message,
            elicitation_callback=self._on_elicitation,
            list_roots_callback=self._on_list_roots if self._roots else None,
            cache=None,
        )

    async def _on_elicitation(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Ask the person of the latest call; without a call nobody is asked."""
        if not self._calls:
            return ElicitResult(action="cancel")
        running = self._calls[-1]
        with running.paused():
            return await answer_elicitation(self.name, params, running.call.person)

    async def _on_list_roots(self, context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl(Path(root).as_uri())) for root in self._roots])

    def _take_offers(self, offers: Offers) -> None:
        if offers != self.offers or not self._tried.is_set():
            self.offers, self.tools = offers, make_tools(self, offers)
            self.revision += 1

    def _leave(self, problem: str) -> None:
        if self._line is not None or not self._tried.is_set():
            log.warning("MCP server %s: %s", self.name, problem)
        self._line, self.problem = None, problem
        self._tried.set()

    @contextmanager
    def _use_client(self) -> Iterator[Client]:
        """Lend the client for one call; convert its errors to ours, and drop an unusable connection."""
        line = self._line
        if line is None:
            raise ToolFailed(f"MCP server {self.name} is not connected: {self.problem}")
        try:
            yield line.client
        except MCPError as error:
            _check_not_cancelled(error)
            # INVALID_REQUEST is how the library reports a session that a server over HTTP has forgotten.
            if error.code == CONNECTION_CLOSED or (self._server.url and error.code == INVALID_REQUEST):
                line.report_end()
            late = error.code == REQUEST_TIMEOUT
            reason = f"no answer within {self._server.call_seconds:g} s" if late else error.message
            raise ToolFailed(f"{self.name}: {self._access.problem or reason}") from error
        except _FAILURES as error:
            line.report_end()
            _check_not_cancelled(error)
            raise ToolFailed(f"{self.name}: {self._explain(error)}") from error

    def _explain(self, error: BaseException) -> str:
        """Return what the transport reports, or a description of the innermost error."""
        if self._access.problem:
            return self._access.problem
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, TimeoutError):
            return f"no answer within {self._server.connect_seconds:g} s"
        if isinstance(error, httpx2.ConnectError):
            return f"nothing answers at {self._server.url}"
        words = str(error) or type(error).__name__
        return f"{self._server.url} answers: {words}" if isinstance(error, MCPError) and self._server.url else words

    async def _ask_for_offers(self, client: Client) -> Offers:
        has = client.server_capabilities
        tools = await _list_all(lambda cursor: client.list_tools(cursor=cursor), "tools") if has.tools else []
        resources, templates = [], []
        if has.resources:
            resources = await _list_all(lambda cursor: client.list_resources(cursor=cursor), "resources")
            with suppress(MCPError):  # a server may have none, and not know the question
                templates = await _list_all(
                    lambda cursor: client.list_resource_templates(cursor=cursor), "resource_templates"
                )
        prompts = await _list_all(lambda cursor: client.list_prompts(cursor=cursor), "prompts") if has.prompts else []
        return Offers(
            tuple(make_offer(tool) for tool in tools if self._server.offers_tool(tool.name)),
            (*(str(one.uri) for one in resources), *(str(one.uri_template) for one in templates)),
            tuple(make_prompt(self.name, prompt) for prompt in prompts),
        )


class _Line:
    """One connection, from start to end."""

    client: Client

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._is_over = False

    def report_change(self) -> None:
        """Report that a list may have changed."""
        self._news.set()

    def report_end(self) -> None:
        """Report that the connection has ended."""
        self._is_over = True
        self._news.set()

    async def wait_for_change(self) -> bool:
        """Wait until a list may have changed; ``False`` once the connection has ended."""
        await self._news.wait()
        self._news.clear()
        return not self._is_over


class _RunningCall:
    """A call of a tool, and its time limit."""

    def __init__(self, call: Call, seconds: float) -> None:
        self.call = call
        self.limit = asyncio.timeout(seconds)
        self._seconds = seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the limit within the block, and begin it again afterwards."""
        self._reschedule(None)
        try:
            yield
        finally:
            self._reschedule(asyncio.get_running_loop().time() + self._seconds)

    def _reschedule(self, when: float | None) -> None:
        with suppress(RuntimeError):  # the call has ended or expired
            self.limit.reschedule(when)


def _check_not_cancelled(error: Exception) -> None:
    """Raise `CancelledError` if the task is also cancelled: of the two, the library reports only the failure."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


async def _list_all(ask: Callable[[str | None], Awaitable[Any]], field: str) -> list[Any]:
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
