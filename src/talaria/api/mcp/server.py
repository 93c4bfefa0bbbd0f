"""MCP server of the agent: over stdio for its owner, over HTTP for API keys. Needs the MCP library."""

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from talaria.api.front_door import ApiCaller
from talaria.api.mcp.tools import AgentTool
from talaria.core.errors import TalariaError
from talaria.http.errors import to_problem
from talaria.http.routing import JSON, Reply

_INSTRUCTIONS = "A personal agent: its conversations in all chats, messages to its owner, and approvals that wait."


def make_mcp_server(tools: Sequence[AgentTool], caller: ApiCaller, version: str) -> Server[Any]:
    """Return a server with the tools that a caller may use."""
    allowed = {tool.name: tool for tool in tools if caller.may(tool.route.scope or "read")}

    async def list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_describe(tool) for tool in allowed.values()])

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = allowed.get(params.name)
        if tool is None:
            return _to_result(f"There is no tool {params.name}, or this key may not use it.", is_error=True)
        try:
            return _to_result(await tool.call(params.arguments or {}, caller))
        except TalariaError as error:
            return _to_result(str(to_problem(error)), is_error=True)

    return Server(
        "talaria", version=version, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def serve_stdio(tools: Sequence[AgentTool], caller: ApiCaller, version: str) -> None:
    """Serve on standard input and output until the input ends."""
    server = make_mcp_server(tools, caller, version)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


async def answer_http(server: Server[Any], headers: Mapping[str, str], body: bytes) -> Reply:
    """Answer one message over HTTP, without a session."""
    manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
    start: MutableMapping[str, Any] = {"status": 500, "headers": []}
    chunks: list[bytes] = []
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if not unread:
            await asyncio.Event().wait()  # a client that disconnects cancels this request
        return unread.pop()

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        else:
            chunks.append(message.get("body", b""))

    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": pairs, "query_string": b""}
    async with manager.run():
        await manager.handle_request(scope, receive, send)
    kinds = [value.decode("latin-1") for name, value in start["headers"] if name.lower() == b"content-type"]
    return Reply(status=start["status"], body=b"".join(chunks), content_type=kinds[0] if kinds else JSON)


def _describe(tool: AgentTool) -> Tool:
    reads = tool.route.method == "GET"
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        annotations=ToolAnnotations(read_only_hint=reads, destructive_hint=not reads),
    )


def _to_result(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)
