"""`talaria tools`: what the agent can do, switched on and off."""

import argparse
import re
from collections.abc import Sequence

from talaria.cli.arguments import completing
from talaria.cli.services import Services
from talaria.contracts.tool import ToolsetState
from talaria.settings.switches import switch_tools

ENABLE, DISABLE = "enable", "disable"

_SENTENCE_END = re.compile(r"\.\s+(?=[A-Z])")
_MORE = """\
Without an action it lists every tool with the bytes that its description adds to
each request. A name means a whole toolset first: `memory` is the toolset, and
`memory.memory` the tool in it. The tools of MCP servers join when a conversation
opens; the name of a server switches it, mcp_SERVER_TOOL a single tool of it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to switch, or nothing."""
    parser.epilog = _MORE
    parser.add_argument("--json", action="store_true", help="print JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    for action, effect in ((ENABLE, "on"), (DISABLE, "off")):
        switch = actions.add_parser(action, help=f"switch tools or whole toolsets {effect}")
        name = switch.add_argument("names", nargs="+", metavar="NAME", help="a toolset, a tool or an MCP server")
        completing(name, "tools")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """List everything, or switch what is named."""
    if arguments.action:
        return _switch(arguments.names, services, on=arguments.action == ENABLE)
    servers = services.settings().mcp
    toolsets = services.toolsets()
    enabled = [tool for toolset in toolsets for tool in toolset.tools if tool.enabled]
    total = sum(tool.bytes for tool in enabled)
    if arguments.json:
        states = [{"name": name, "enabled": server.enabled} for name, server in servers.items()]
        services.terminal.json({"toolsets": toolsets, "servers": states, "bytes": total})
        return 0
    services.terminal.table(("TOOLSET", "TOOL", "STATE", "EFFECT", "BYTES", "DOES"), _rows(toolsets, services))
    count = sum(len(toolset.tools) for toolset in toolsets)
    services.terminal.note(f"{len(enabled)} of {count} tools are on and add {total:,} bytes to each request.")
    for name, server in servers.items():
        services.terminal.note(f"The MCP server {name} is {_word(on=server.enabled)}.")
    return 0


def _rows(toolsets: Sequence[ToolsetState], services: Services) -> list[tuple[object, ...]]:
    styled = services.terminal.styled
    return [
        (
            toolset.name,
            tool.name,
            styled(_word(on=tool.enabled), "green" if tool.enabled else "dim"),
            tool.effect,
            tool.bytes,
            _first_sentence(tool.does),
        )
        for toolset in toolsets
        for tool in toolset.tools
    ]


def _first_sentence(text: str) -> str:
    return f"{_SENTENCE_END.split(text, maxsplit=1)[0].rstrip('.')}."


def _switch(names: Sequence[str], services: Services, *, on: bool) -> int:
    switched = switch_tools(names, services.toolsets(), services.profile, services.environment, on=on)
    if not switched.changed:
        services.terminal.line(f"{_word(on=on).capitalize()} already: {', '.join(names)}.")
        return 0
    services.terminal.line(f"{_word(on=on).capitalize()} now: {', '.join(switched.changed)}.")
    for remark in switched.remarks:
        services.terminal.note(remark)
    services.terminal.note(f"Written to {services.profile.config_file}; conversations that open from now on use it.")
    return 0


def _word(*, on: bool) -> str:
    return "on" if on else "off"
