"""`talaria tools`: list tools and switch them on and off."""

import argparse
import re
from collections.abc import Sequence

from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.contracts.tool import ToolsetState
from talaria.settings.config_writer import switch_tools

ENABLE, DISABLE = "enable", "disable"

_SENTENCE_END = re.compile(r"\.\s+(?=[A-Z])")
_EPILOG = """\
Without an action, it lists every tool with the number of bytes that its
description adds to each request. A name means a toolset first: `memory` is the
toolset, `memory.memory` the tool in it. Tools of MCP servers are added when a
conversation opens: use the server's name for all, mcp_SERVER_TOOL for one.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("--json", action="store_true", help="print JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    for action, effect in ((ENABLE, "on"), (DISABLE, "off")):
        switch = actions.add_parser(action, help=f"switch tools or whole toolsets {effect}")
        name = switch.add_argument("names", nargs="+", metavar="NAME", help="a toolset, a tool or an MCP server")
        add_completion(name, "tools")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """List all tools, or switch the named ones."""
    if arguments.action:
        return _switch(arguments.names, services, on=arguments.action == ENABLE)
    servers = services.settings().mcp
    toolsets = services.tools().toolsets()
    enabled = [tool for toolset in toolsets for tool in toolset.tools if tool.enabled]
    total = sum(tool.bytes for tool in enabled)
    if arguments.json:
        states = [{"name": name, "enabled": server.enabled} for name, server in servers.items()]
        services.terminal.json({"toolsets": toolsets, "servers": states, "bytes": total})
        return 0
    services.terminal.table(("TOOLSET", "TOOL", "STATE", "EFFECT", "BYTES", "DOES"), _build_rows(toolsets, services))
    count = sum(len(toolset.tools) for toolset in toolsets)
    services.terminal.note(f"{len(enabled)} of {count} tools are on and add {total:,} bytes to each request.")
    for name, server in servers.items():
        services.terminal.note(f"The MCP server {name} is {_format_state(on=server.enabled)}.")
    return 0


def _build_rows(toolsets: Sequence[ToolsetState], services: Services) -> list[tuple[object, ...]]:
    styled = services.terminal.style
    return [
        (
            toolset.name,
            tool.name,
            styled(_format_state(on=tool.enabled), "green" if tool.enabled else "dim"),
            tool.effect,
            tool.bytes,
            _take_first_sentence(tool.does),
        )
        for toolset in toolsets
        for tool in toolset.tools
    ]


def _take_first_sentence(text: str) -> str:
    return f"{_SENTENCE_END.split(text, maxsplit=1)[0].rstrip('.')}."


def _switch(names: Sequence[str], services: Services, *, on: bool) -> int:
    switched = switch_tools(names, services.tools().toolsets(), services.profile, services.environment, on=on)
    if not switched.changed:
        services.terminal.line(f"{_format_state(on=on).capitalize()} already: {', '.join(names)}.")
        return 0
    services.terminal.line(f"{_format_state(on=on).capitalize()} now: {', '.join(switched.changed)}.")
    for remark in switched.remarks:
        services.terminal.note(remark)
    services.terminal.note(f"Saved in {services.profile.config_file}. New conversations use it.")
    return 0


def _format_state(*, on: bool) -> str:
    return "on" if on else "off"
