"""Changes of config.toml by the setup and by commands: values, secrets, provider accounts, and switches of tools."""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from talaria.contracts.tool import ToolsetState
from talaria.core.errors import NotFound
from talaria.settings.errors import SettingsInvalid, build_unknown_fault, build_wrong_value_fault
from talaria.settings.load import load, load_settings
from talaria.settings.model import Settings, ToolSettings
from talaria.settings.profiles import Profile
from talaria.settings.schema import Key, SchemaField, SettingsSchema, format_key, split_key, variable
from talaria.settings.secrets import Secrets, mask, read_secrets, remove_secret, store_secret
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS, ChatAccount
from talaria.settings.value_text import parse_value

OWN = "own"
EMBEDDED = "embedded"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class ConfigWriter:
    """Writer that stores each answer at once; ``written`` has each key with a displayable value."""

    def __init__(self, profile: Profile, environment: Mapping[str, str]) -> None:
        self._profile = profile
        self._environment = environment
        self.written: dict[str, str] = {}
        self.notes: list[str] = []

    def load_settings(self) -> Settings:
        """Return the current settings."""
        return load_settings(self._profile, self._environment)

    def read_secrets(self) -> Secrets:
        """Return the current secrets."""
        return read_secrets(self._profile, self._environment)

    def put(self, key: str, text: str) -> None:
        """Write a setting, or remove it from the file if its default is the same."""
        field = find_field(key)
        if parse_value(text, field.annotation) == _to_plain(field.default):
            self.reset_setting(key)
        else:
            from talaria.settings.edit import set_value  # noqa: PLC0415 (loaded for a change: needs tomlkit)

            self.written[key] = set_value(self._profile, key, text).shown
        name = variable(split_key(key))
        if name in self._environment:
            self.notes.append(f"The environment variable {name} is set and overrides the file.")

    def reset_setting(self, key: str) -> None:
        """Reset a setting to its default."""
        from talaria.settings.edit import unset_value  # noqa: PLC0415 (loaded for a change: needs tomlkit)

        try:
            unset_value(self._profile, key)
        except NotFound:  # it was not set
            return
        self.written[key] = "default"

    def enable_account(self, account: ChatAccount) -> None:
        """Let the gateway serve a chat network; one without required secrets has to be named in the settings."""
        key, known = f"platforms.{account.name}.enabled", BUILT_IN_PLATFORMS.get(account.network)
        if known is not None and known.secrets:
            self.put(key, "true")
        else:
            from talaria.settings.edit import set_value  # noqa: PLC0415 (loaded for a change: needs tomlkit)

            self.written[key] = set_value(self._profile, key, "true").shown

    def remove_account(self, account: ChatAccount, secrets: Collection[str]) -> None:
        """Remove an account and its secrets; access lists and other settings of the network's first account stay."""
        for name in map(account.secret_name, secrets):
            with suppress(NotFound):
                remove_secret(self._profile, name)
                self.written[name] = "removed"
            if self._environment.get(name):
                self.notes.append(f"The environment variable {name} is still set; unset it where it comes from.")
        if account.name != account.network:
            self.reset_setting(f"platforms.{account.name}")
            return
        self.reset_setting(f"platforms.{account.name}.options")
        known = BUILT_IN_PLATFORMS.get(account.network)
        if known is None or not known.secrets:
            self.put(f"platforms.{account.name}.enabled", "false")

    def keep_secret(self, name: str, value: str) -> None:
        """Write a secret."""
        store_secret(self._profile, name, value)
        self.written[name] = mask(value)
        if self._environment.get(name, value) != value:
            self.notes.append(f"The environment variable {name} has another value and overrides the file.")


def check_setting(key: str, text: str) -> None:
    """Raise `SettingsInvalid` or `NotFound` if this setting could not be written."""
    field = find_field(key)
    value = parse_value(text, field.annotation)
    if not field.accepts(value):
        raise SettingsInvalid([build_wrong_value_fault(field.key, field.expected, field.describe_value(value))])


def find_field(key: str) -> SchemaField:
    """Return the schema of a setting."""
    model = SettingsSchema()
    found = model.find(split_key(key))
    if not isinstance(found, SchemaField):
        raise NotFound(build_unknown_fault("key", key, [field.key for field in model.fields()]).problem)
    return found


class ProviderChange(Struct, frozen=True, kw_only=True):
    """A provider to set up; without a ``key`` the stored one is kept. Only custom ones have a ``base_url``."""

    name: str
    key_name: str = ""
    key: str = ""
    base_url: str = ""


def write_provider(writer: ConfigWriter, change: ProviderChange) -> None:
    """Write the key and address of a provider."""
    if change.key:
        writer.keep_secret(change.key_name, change.key)
    if change.base_url:
        writer.put(build_provider_key(change.name, "base_url"), change.base_url)
        if change.key or (change.key_name and writer.read_secrets().get(change.key_name)):
            writer.put(build_provider_key(change.name, "key"), change.key_name)


def use_provider(writer: ConfigWriter, name: str) -> None:
    """Make a provider the one in use; the model of another provider is forgotten."""
    if writer.load_settings().model.provider != name:
        writer.reset_setting("model.name")
    writer.put("model.provider", name)


def use_model(writer: ConfigWriter, provider: str, model: str) -> None:
    """Make a model of a provider the default."""
    writer.put("model.provider", provider)
    writer.put("model.name", model)


def use_embedded(writer: ConfigWriter) -> None:
    """Make the built-in model the one in use."""
    writer.put("embedded.enabled", "true")
    writer.put("model.provider", EMBEDDED)
    writer.reset_setting("model.name")


def is_provider_name(name: str) -> bool:
    """Return whether a custom provider may have this name."""
    return _NAME.fullmatch(name) is not None and name not in {EMBEDDED, OWN}


def build_key_name(provider: str) -> str:
    """Return the name of the secret for a custom provider's key."""
    return f"{provider.upper().replace('-', '_')}_API_KEY"


def build_provider_key(provider: str, name: str) -> str:
    """Return the key of a provider's setting."""
    return format_key(("providers", provider, name))


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
    written = _write_selection(switches, before, profile) if changed else []
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


def _to_plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _write_selection(switches: ToolSelection, before: Settings, profile: Profile) -> list[Key]:
    tools = {key: value for key, value in switches.tools.items() if value != getattr(before.tools, key)}
    servers = {name: on for name, on in switches.servers.items() if before.mcp[name].enabled != on}
    for key, value in tools.items():
        _put_list(("tools", key), value, profile, default=getattr(ToolSettings(), key))
    for name, on in servers.items():
        _put_list(("mcp", name, "enabled"), on, profile, default=True)
    return [*(("tools", key) for key in tools), *(("mcp", name, "enabled") for name in servers)]


def _put_list(path: Key, value: object, profile: Profile, *, default: object) -> None:
    """Write a value, or remove the key if its default is the same, so that new defaults apply later."""
    from talaria.settings.edit import set_value, unset_value  # noqa: PLC0415 (loaded for a change: needs tomlkit)

    if value == default:
        unset_value(profile, format_key(path))
    else:
        set_value(profile, format_key(path), msgspec.json.encode(value).decode())
