"""Switching of tools, toolsets and MCP servers, with minimal changes to config.toml."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from talaria.contracts.tool import ToolsetState
from talaria.core.errors import NotFound
from talaria.settings.errors import build_unknown_fault
from talaria.settings.load import load
from talaria.settings.model import Settings, ToolSettings
from talaria.settings.profiles import Profile
from talaria.settings.schema import Key, format_key, variable


class SwitchResult(Struct, frozen=True):
    """Names that changed, and notices about why a change has no effect."""

    changed: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def switch_tools(
    names: Sequence[str],
    toolsets: Sequence[ToolsetState],
    profile: Profile,
    environment: Mapping[str, str],
    *,
    on: bool,
) -> SwitchResult:
    """Switch all named items, or none if a name is unknown."""
    before = load(profile, {}).settings
    switches = ToolSelection(toolsets, before)
    targets = [switches.find(name) for name in names]
    changed = tuple(name for target in targets for name in switches.put(target, on=on))
    written = _write(switches, before, profile) if changed else []
    overriding = [variable(path) for path in written if variable(path) in environment]
    return SwitchResult(
        changed, tuple(f"The environment variable {one} is set and overrides the file." for one in overriding)
    )


class SwitchTarget(Struct, frozen=True):
    """Meaning of a name: some tools, or a server."""

    tools: tuple[str, ...] = ()
    server: str = ""


class ToolSelection:
    """Enabled and disabled tools as in the settings: enabled toolsets, and disabled tools in them."""

    def __init__(self, toolsets: Sequence[ToolsetState], settings: Settings) -> None:
        self._groups = {toolset.name: tuple(tool.name for tool in toolset.tools) for toolset in toolsets}
        self._servers = tuple(settings.mcp)
        tool_settings = settings.tools
        own = [tool for name in tool_settings.toolsets for tool in self._groups[name]]
        self._enabled = {tool for tool in own if tool not in tool_settings.disabled}
        self._other_disabled = {
            tool for tool in tool_settings.disabled if not any(tool in group for group in self._groups.values())
        }
        self.servers = {name: server.enabled for name, server in settings.mcp.items()}

    def find(self, name: str) -> SwitchTarget:
        """Return the target of a name; raises `NotFound` with the nearest name."""
        known = self._list_targets()
        if name in known:
            return known[name]
        if any(name.startswith(f"mcp_{server}_") for server in self._servers):
            return SwitchTarget((name,))
        plain = [one for one in known if "." not in one]
        raise NotFound(build_unknown_fault("tool or toolset", name, plain).problem)

    def put(self, target: SwitchTarget, *, on: bool) -> list[str]:
        """Switch a target and return the names that changed."""
        if target.server:
            changed = [target.server] if self.servers[target.server] != on else []
            self.servers[target.server] = on
            return changed
        return [tool for tool in target.tools if self._switch_tool(tool, on=on)]

    @property
    def tools(self) -> dict[str, tuple[str, ...]]:
        """Return the resulting values of the section ``tools``, by key."""
        groups = tuple(name for name, tools in self._groups.items() if self._enabled.intersection(tools))
        off = [tool for name in groups for tool in self._groups[name] if tool not in self._enabled]
        return {"toolsets": groups, "disabled": (*off, *sorted(self._other_disabled))}

    def _list_targets(self) -> Mapping[str, SwitchTarget]:
        servers = {name: SwitchTarget(server=name) for name in self._servers}
        tools = {tool: SwitchTarget((tool,)) for group in self._groups.values() for tool in group}
        exact = {f"{name}.{tool}": SwitchTarget((tool,)) for name, group in self._groups.items() for tool in group}
        exact_servers = {f"mcp.{name}": target for name, target in servers.items()}
        return {**servers, **tools, **exact, **exact_servers, **{n: SwitchTarget(g) for n, g in self._groups.items()}}

    def _switch_tool(self, tool: str, *, on: bool) -> bool:
        own = any(tool in group for group in self._groups.values())
        is_on = tool in self._enabled if own else tool not in self._other_disabled
        if is_on == on:
            return False
        (self._enabled if own else self._other_disabled).symmetric_difference_update({tool})
        return True


def _write(switches: ToolSelection, before: Settings, profile: Profile) -> list[Key]:
    tools = {key: value for key, value in switches.tools.items() if value != getattr(before.tools, key)}
    servers = {name: on for name, on in switches.servers.items() if before.mcp[name].enabled != on}
    for key, value in tools.items():
        _put(("tools", key), value, profile, default=getattr(ToolSettings(), key))
    for name, on in servers.items():
        _put(("mcp", name, "enabled"), on, profile, default=True)
    return [*(("tools", key) for key in tools), *(("mcp", name, "enabled") for name in servers)]


def _put(path: Key, value: object, profile: Profile, *, default: object) -> None:
    """Write a value, or remove the key if its default is the same, so that new defaults apply later."""
    from talaria.settings.edit import set_value, unset_value  # noqa: PLC0415 (loaded for a change: needs tomlkit)

    if value == default:
        unset_value(profile, format_key(path))
    else:
        set_value(profile, format_key(path), msgspec.json.encode(value).decode())
