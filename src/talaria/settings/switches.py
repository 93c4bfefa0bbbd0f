"""Switch tools, whole groups of them and servers on and off, in as few words of config.toml as say it."""

from collections.abc import Mapping, Sequence
from importlib import import_module

import msgspec
from msgspec import Struct

from talaria.contracts.tool import ToolsetState
from talaria.core.errors import NotFound
from talaria.settings.faults import unknown
from talaria.settings.keys import Key, dotted, variable
from talaria.settings.load import load
from talaria.settings.model import Settings, Tools
from talaria.settings.profiles import Profile

# Brings tomlkit along, which only a change needs.
_EDITING = "talaria.settings.edit"


class Switched(Struct, frozen=True):
    """What is the other way now than before, and sentences about what keeps it from counting."""

    changed: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def switch_tools(
    names: Sequence[str],
    toolsets: Sequence[ToolsetState],
    profile: Profile,
    environment: Mapping[str, str],
    *,
    on: bool,
) -> Switched:
    """Switch all that is named or, where one name is not known, none."""
    before = load(profile, {}).settings
    switches = Switches(toolsets, before)
    targets = [switches.find(name) for name in names]
    changed = tuple(name for target in targets for name in switches.put(target, on=on))
    written = _write(switches, before, profile) if changed else []
    stronger = [variable(path) for path in written if variable(path) in environment]
    return Switched(
        changed, tuple(f"The environment variable {one} is set, and it wins over the file." for one in stronger)
    )


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


def _write(switches: Switches, before: Settings, profile: Profile) -> list[Key]:
    tools = {key: value for key, value in switches.tools.items() if value != getattr(before.tools, key)}
    servers = {name: on for name, on in switches.servers.items() if before.mcp[name].enabled != on}
    for key, value in tools.items():
        _put(("tools", key), value, profile, default=getattr(Tools(), key))
    for name, on in servers.items():
        _put(("mcp", name, "enabled"), on, profile, default=True)
    return [*(("tools", key) for key in tools), *(("mcp", name, "enabled") for name in servers)]


def _put(path: Key, value: object, profile: Profile, *, default: object) -> None:
    """Write a value, or take the key out where its default says the same and will say more one day."""
    editing = import_module(_EDITING)
    if value == default:
        editing.unset_value(profile, dotted(path))
    else:
        editing.set_value(profile, dotted(path), msgspec.json.encode(value).decode())
