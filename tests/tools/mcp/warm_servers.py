"""Real MCP servers that Talaria starts, as processes that have already imported the library."""

import json

from tests.app import warm_program

from talaria.tools.mcp.settings import McpServer

KITCHEN = ("tests.tools.mcp.mcp_server", "stdio")


def server_of(name: str, module: str, *arguments: str) -> McpServer:
    """Return a server that is a module, with its name in the settings."""
    command, *program_arguments = warm_program.command(module, *arguments)
    return McpServer(name=name, command=command, args=tuple(program_arguments), first_pause_seconds=0.05)


def settings_of(name: str, module: str, *arguments: str) -> str:
    """Return the settings for a server that is a module."""
    server = server_of(name, module, *arguments)
    return (
        f"[mcp.{name}]\ncommand = {json.dumps(server.command)}\nargs = {json.dumps(server.args)}\n"
        "connect_timeout_seconds = 60\n"
    )
