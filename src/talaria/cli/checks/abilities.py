"""Checks of what the agent can do: which model answers, with which tools, behind which wall."""

import shutil
from collections.abc import Iterator

from talaria.cli.checks.findings import Finding, ok, warning
from talaria.cli.services import Services
from talaria.contracts.models import Chosen
from talaria.core.errors import TalariaError
from talaria.settings.errors import SettingsInvalid
from talaria.settings.faults import nearest
from talaria.settings.load import load
from talaria.settings.model import Settings

_NOT_NOW = "Not looked at, since the settings have faults."
_REPAIR_FIRST = "Repair the settings first."
_INSTALL = "your system has the package {package}, as in `sudo apt install {package}`."


def look_at_model(services: Services) -> Iterator[Finding]:
    """Report which model would answer and why; asks servers on this machine and nobody else."""
    try:
        settings = services.settings()
        wanted = settings.model
        account = settings.providers.get(wanted.provider)
        if account is not None and account.base_url and not wanted.name:
            yield ok(f"The first model of {wanted.provider} answers: `model.name` is not set.")
            return
        chosen = services.models().chosen()
    except SettingsInvalid:
        yield warning(_NOT_NOW, _REPAIR_FIRST)
    except TalariaError as error:
        yield warning(str(error) or error.public)
    else:
        yield from _answering(chosen)


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
        yield ok(f"Off, and not possible here: {problem} For commands in a sandbox, {install}")
    else:
        yield ok("Off: commands reach what you reach. `talaria config set sandbox.enabled true` changes that.")


def _answering(chosen: Chosen) -> Iterator[Finding]:
    yield ok(f"{chosen.provider}:{chosen.model} answers. {chosen.why}")
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
