"""`talaria tools`: what the agent can do, switched on and off."""

import argparse
import re
from collections.abc import Mapping, Sequence
from importlib import import_module

import msgspec
from msgspec import Struct

from talaria.cli.arguments import completing
from talaria.cli.services import Services
from talaria.contracts.tool import ToolsetState
from talaria.core.errors import NotFound
from talaria.settings.faults import unknown
from talaria.settings.keys import dotted, variable
from talaria.settings.load import load
from talaria.settings.model import Settings, Tools

ENABLE, DISABLE = "enable", "disable"

# Brings tomlkit along, which only a change needs.
_EDITING = "talaria.settings.edit"
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


class Target(Struct, frozen=True):
    """What a name stands for: some tools, or a server."""

    tools: tuple[str, ...] = ()
    server: str = ""


class Switches:
    """The tools that are on and off, as the settings say it: groups that are on, and tools of these that are off."""

    def __init__(self, toolsets: Sequence[ToolsetState], settings: Settings) -> None:
        self._groups = {toolset.name: tuple(tool.name for tool in toolset.tools) for toolset in toolsets}
        self._servers = tuple(settings.mcp)
        wanted = settings.tools
        own = [tool for name in wanted.toolsets for tool in self._groups[name]]
        self._on = {tool for tool in own if tool not in wanted.disabled}
        self._foreign = {tool for tool in wanted.disabled if not any(tool in group for group in self._groups.values())}
        self.servers = {name: server.enabled for name, server in settings.mcp.items()}

    def find(self, name: str) -> Target:
        """Return what is called so, or raise `NotFound` with the nearest name."""
        known = self._known()
        if name in known:
            return known[name]
        if any(name.startswith(f"mcp_{server}_") for server in self._servers):
            return Target((name,))
        plain = [one for one in known if "." not in one]
        raise NotFound(unknown("tool or toolset", name, plain).problem)

    def put(self, target: Target, *, on: bool) -> list[str]:
        """Switch it, and return the names of what was the other way before."""
        if target.server:
            changed = [target.server] if self.servers[target.server] != on else []
            self.servers[target.server] = on
            return changed
        return [tool for tool in target.tools if self._put_tool(tool, on=on)]

    @property
    def tools(self) -> dict[str, tuple[str, ...]]:
        """What the settings of the section ``tools`` have to be, by key."""
        groups = tuple(name for name, tools in self._groups.items() if self._on.intersection(tools))
        off = [tool for name in groups for tool in self._groups[name] if tool not in self._on]
        return {"toolsets": groups, "disabled": (*off, *sorted(self._foreign))}

    def _known(self) -> Mapping[str, Target]:
        servers = {name: Target(server=name) for name in self._servers}
        tools = {tool: Target((tool,)) for group in self._groups.values() for tool in group}
        exact = {f"{name}.{tool}": Target((tool,)) for name, group in self._groups.items() for tool in group}
        exact_servers = {f"mcp.{name}": target for name, target in servers.items()}
        return {**servers, **tools, **exact, **exact_servers, **{n: Target(g) for n, g in self._groups.items()}}

    def _put_tool(self, tool: str, *, on: bool) -> bool:
        own = any(tool in group for group in self._groups.values())
        is_on = tool in self._on if own else tool not in self._foreign
        if is_on == on:
            return False
        (self._on if own else self._foreign).symmetric_difference_update({tool})
        return True


def _switch(names: Sequence[str], services: Services, *, on: bool) -> int:
    """Switch all or, where one name is not known, none."""
    before = load(services.profile, {}).settings
    switches = Switches(services.toolsets(), before)
    targets = [switches.find(name) for name in names]
    changed = [name for target in targets for name in switches.put(target, on=on)]
    if not changed:
        services.terminal.line(f"{_word(on=on).capitalize()} already: {', '.join(names)}.")
        return 0
    _write(switches, before, services)
    services.terminal.line(f"{_word(on=on).capitalize()} now: {', '.join(changed)}.")
    services.terminal.note(f"Written to {services.profile.config_file}; conversations that open from now on use it.")
    return 0


def _write(switches: Switches, before: Settings, services: Services) -> None:
    wanted = {("tools", key): value for key, value in switches.tools.items() if value != getattr(before.tools, key)}
    for path, value in wanted.items():
        _put(path, value, services, default=getattr(Tools(), path[1]))
    for name, on in switches.servers.items():
        if before.mcp[name].enabled != on:
            _put(("mcp", name, "enabled"), on, services, default=True)


def _put(path: tuple[str, ...], value: object, services: Services, *, default: object) -> None:
    """Write a value, or take the key out where its default says the same and will say more one day."""
    editing = import_module(_EDITING)
    if value == default:
        editing.unset_value(services.profile, dotted(path))
    else:
        editing.set_value(services.profile, dotted(path), msgspec.json.encode(value).decode())
    if variable(path) in services.environment:
        services.terminal.note(f"The environment variable {variable(path)} is set, and it wins over the file.")


def _word(*, on: bool) -> str:
    return "on" if on else "off"
