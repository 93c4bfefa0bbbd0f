"""Checks of what the agent can do: which model answers, with which tools, behind which wall."""

import shutil
from collections.abc import Iterator

from talaria.cli.checks.findings import Finding, fault, ok, warning
from talaria.cli.services import Services
from talaria.contracts.models import Chosen
from talaria.core.errors import (
    BadKey,
    ModelUnknown,
    NoCredit,
    ProviderError,
    ProviderUnreachable,
    TalariaError,
)
from talaria.settings.errors import SettingsInvalid
from talaria.settings.faults import nearest
from talaria.settings.load import load
from talaria.settings.model import Settings

_NOT_NOW = "Not looked at, since the settings have faults."
_REPAIR_FIRST = "Repair the settings first."
_INSTALL = "install it with your package manager, for example `sudo apt install {package}`."


def look_at_model(services: Services) -> Iterator[Finding]:
    """Report which model is configured and why, and whether it answers: its provider is asked."""
    try:
        desk = services.models()
        chosen = desk.chosen()
    except SettingsInvalid:
        yield warning(_NOT_NOW, _REPAIR_FIRST)
        return
    except ProviderError as error:
        yield _unusable(error)
        return
    except TalariaError as error:
        yield warning(error.for_owner)
        return
    name = f"{chosen.provider}:{chosen.model}"
    try:
        desk.check(chosen)
    except ProviderError as error:
        yield _unusable(error, f"{name} does not answer. ")
    else:
        yield _limited(chosen) if chosen.limits else ok(f"{name} answers. {chosen.why}")
    yield from _catalogued(chosen)


def look_at_model_offline(services: Services) -> Iterator[Finding]:
    """Report which model is configured and why, without asking anybody outside this machine."""
    try:
        settings = services.settings()
        wanted = settings.model
        if wanted.provider and not wanted.name and wanted.provider in settings.providers:
            yield ok(f"The first model of {wanted.provider} is configured: `model.name` is not set.")
            return
        chosen = services.models().chosen()
    except SettingsInvalid:
        yield warning(_NOT_NOW, _REPAIR_FIRST)
    except TalariaError as error:
        yield warning(error.for_owner)
    else:
        name = f"{chosen.provider}:{chosen.model}"
        yield _limited(chosen) if chosen.limits else ok(f"{name} is configured; it was not asked. {chosen.why}")
        yield from _catalogued(chosen)


def look_at_tools(services: Services) -> Iterator[Finding]:
    """Report how many tools are on, names in the settings that mean none, and a helper that is missing."""
    try:
        settings, toolsets = services.settings(), services.toolsets()
    except SettingsInvalid:
        yield warning(_NOT_NOW, _REPAIR_FIRST)
        return
    tools = [tool for toolset in toolsets for tool in toolset.tools]
    total = sum(tool.bytes for tool in tools if tool.enabled)
    yield ok(f"{sum(tool.enabled for tool in tools)} of {len(tools)} tools are on, {total:,} bytes of each request.")
    yield from _odd_names(settings, [tool.name for tool in tools])
    yield from _odd_servers(settings)
    if shutil.which("rg", path=services.environment.get("PATH")) is None:
        yield warning(
            "ripgrep (rg) is not installed: searching in many files takes longer.",
            _sentence(_INSTALL.format(package="ripgrep")),
        )


def look_at_sandbox(services: Services) -> Iterator[Finding]:
    """Report whether commands of the agent run in a sandbox, could, or cannot."""
    enabled = load(services.profile, services.environment).settings.sandbox.enabled
    problem = services.sandbox_problem()
    install = _INSTALL.format(package="bubblewrap")
    if enabled and problem:
        yield warning(
            f"`sandbox.enabled` is on, but there is no sandbox here, so commands don't run: {problem}",
            _sentence(install),
        )
    elif enabled:
        yield ok("Commands of the agent run in a sandbox of bubblewrap.")
    elif problem:
        yield ok(f"Off, and not possible here: {problem} To use a sandbox, {install}")
    else:
        yield ok("Off: commands have the same access as you. `talaria config set sandbox.enabled true` turns it on.")


def _unusable(error: ProviderError, about: str = "") -> Finding:
    """Return a fault for what stays until somebody changes it, a warning for what may pass."""
    lasting = isinstance(error, BadKey | NoCredit | ModelUnknown | ProviderUnreachable)
    return (fault if lasting else warning)(f"{about}{error.for_owner}")


def _limited(chosen: Chosen) -> Finding:
    return warning(f"{chosen.provider}:{chosen.model} is in use. {chosen.why}", chosen.limits)


def _catalogued(chosen: Chosen) -> Iterator[Finding]:
    if not chosen.info.known:
        yield ok(f"{chosen.model} is not in the catalogue: its limits are cautious guesses.")


def _odd_names(settings: Settings, known: list[str]) -> Iterator[Finding]:
    for name in settings.tools.disabled:
        if name not in known and not name.startswith("mcp_"):
            close = nearest(name, known)
            hint = f"The nearest is `{close}`." if close else "`talaria tools` lists all."
            yield warning(f"`tools.disabled` names `{name}`, which is no tool.", hint)


def _odd_servers(settings: Settings) -> Iterator[Finding]:
    for name, server in settings.mcp.items():
        if server.enabled and bool(server.command) == bool(server.url):
            yield warning(
                f"The MCP server {name} needs either a command or an address.",
                f"`talaria config set mcp.{name}.command` or `mcp.{name}.url`, and only one of them.",
            )
        elif server.enabled and server.command and shutil.which(server.command) is None:
            yield warning(f"The MCP server {name} has a command that is not found: {server.command}.")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
