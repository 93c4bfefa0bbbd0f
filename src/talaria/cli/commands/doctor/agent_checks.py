"""Checks of the agent: model, tools and sandbox."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from talaria.cli.commands.doctor.report import Finding, fault, ok, warning
from talaria.cli.commands.setup.chat_section import build_trial
from talaria.cli.services import Services
from talaria.contracts.provider import ChosenModel
from talaria.contracts.setup import NetworkSetup
from talaria.core.chromium import is_root, require_executable
from talaria.core.errors import (
    BadKey,
    ModelUnknown,
    NoCredit,
    ProviderError,
    ProviderUnreachable,
    TalariaError,
    ToolFailed,
)
from talaria.settings.config_writer import ConfigWriter
from talaria.settings.errors import SettingsInvalid, find_nearest
from talaria.settings.load import load
from talaria.settings.model import Settings
from talaria.settings.sections.chats import ChatAccount

_BROWSER = "browser"
_SKIPPED = "Not checked, because the settings have faults."
_REPAIR_FIRST = "Fix the settings first."
_LAST_ENGINE = "duckduckgo"
_ADD_ENGINE = "`talaria setup tools` sets up an engine with a key."
_ANSWER_SECONDS = 30.0
_FIRST_WORD = re.compile(r"[\w~/.][\w~/.+-]*(?=\s|$)")
_TOO_SLOW = "Try again: a local model may still be loading. `talaria model` chooses another one."
_INSTALL = "install it with your package manager, for example `sudo apt install {package}`."


def check_model(services: Services) -> Iterator[Finding]:
    """Report the configured model, why it was chosen, and what it answers to a short question."""
    try:
        model_service = services.models()
        chosen = model_service.resolve_default_model()
    except SettingsInvalid:
        yield warning(_SKIPPED, _REPAIR_FIRST)
        return
    except ProviderError as error:
        yield _report_unusable(error)
        return
    except TalariaError as error:
        yield warning(error.for_owner)
        return
    name = f"{chosen.provider}:{chosen.model}"
    try:
        answer = model_service.ask(chosen, _ANSWER_SECONDS)
    except ProviderError as error:
        yield _report_unusable(error, f"{name} isn't answering. ")
    except TimeoutError:
        yield warning(f"{name} didn't answer within {_ANSWER_SECONDS:g} s.", _TOO_SLOW)
    else:
        quoted = f" “{answer.removesuffix('.')}”" if answer else ""
        sentence = f"{name} answers{quoted}. {chosen.why}"
        yield warning(sentence, chosen.limits) if chosen.limits else ok(sentence)
    yield from _check_catalogue(chosen)


def check_model_offline(services: Services) -> Iterator[Finding]:
    """Report the configured model and why it was chosen, without network access."""
    try:
        settings = services.settings()
        configured = settings.model
        if configured.provider and not configured.name and configured.provider in settings.providers:
            yield ok(f"`model.name` isn't set, so the first model of {configured.provider} is used.")
            return
        chosen = services.models().resolve_default_model()
    except SettingsInvalid:
        yield warning(_SKIPPED, _REPAIR_FIRST)
    except TalariaError as error:
        yield warning(error.for_owner)
    else:
        name = f"{chosen.provider}:{chosen.model}"
        yield _report_limited(chosen) if chosen.limits else ok(f"{name} is configured (not contacted). {chosen.why}")
        yield from _check_catalogue(chosen)


def check_tools(services: Services) -> Iterator[Finding]:
    """Report the number of enabled tools, unknown names in the settings, and missing helper programs."""
    try:
        settings, toolsets = services.settings(), services.tools().toolsets()
    except SettingsInvalid:
        yield warning(_SKIPPED, _REPAIR_FIRST)
        return
    tools = [tool for toolset in toolsets for tool in toolset.tools]
    total = sum(tool.bytes for tool in tools if tool.enabled)
    yield ok(
        f"{sum(tool.enabled for tool in tools)} of {len(tools)} tools are on and add {total:,} bytes to each request."
    )
    yield from _check_disabled_names(settings, [tool.name for tool in tools])
    yield from _check_mcp_servers(services, settings)
    yield from _check_voice_commands(services, settings)
    if shutil.which("rg", path=services.environment.get("PATH")) is None:
        yield warning(
            "ripgrep (rg) isn't installed, so searching many files is slow.",
            _capitalize(_INSTALL.format(package="ripgrep")),
        )


def check_search(services: Services) -> Iterator[Finding]:
    """Send a query to each configured search engine, and report those that can't be used."""
    yield from _check_engines(services, is_online=True)


def check_search_offline(services: Services) -> Iterator[Finding]:
    """Report the configured search engines, without network access."""
    yield from _check_engines(services, is_online=False)


def _check_engines(services: Services, *, is_online: bool) -> Iterator[Finding]:
    try:
        named = services.settings().web.engines
    except SettingsInvalid:
        yield warning(_SKIPPED, _REPAIR_FIRST)
        return
    probes = services.setup_probes().search()
    engines = probes.engines()
    for engine in engines:
        if engine.gap and (engine.name in named or engine.has_key):
            yield warning(f"{engine.title} isn't used: {engine.gap}.")
    ready = [one for one in engines if one.used and not one.gap and (one.name in named or one.name != _LAST_ENGINE)]
    if not ready:
        yield ok(f"Web searches use DuckDuckGo, which blocks programs at times. {_ADD_ENGINE}")
    elif not is_online:
        yield ok(f"Web searches use {', '.join(one.title for one in ready)} (not contacted).")
    else:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (loaded when engines are contacted)

        with ThreadPoolExecutor(len(ready)) as threads:
            for result in threads.map(lambda one: probes.try_engine(one.name), ready):
                yield (ok if result.right else warning)(result.sentence)


def check_networks(services: Services) -> Iterator[Finding]:
    """Test the stored answers of each configured chat network with it."""
    yield from _check_networks(services, is_online=True)


def check_networks_offline(services: Services) -> Iterator[Finding]:
    """Report the configured chat networks, without network access."""
    yield from _check_networks(services, is_online=False)


def _check_networks(services: Services, *, is_online: bool) -> Iterator[Finding]:
    try:
        names = services.networks().names()
    except SettingsInvalid:
        yield warning(_SKIPPED, _REPAIR_FIRST)
        return
    if not names:
        yield ok("No chat network is set up. `talaria setup chat` sets one up.")
        return
    service, writer = services.networks(), ConfigWriter(services.profile, services.environment)
    networks, accounts = service.setups(), writer.load_settings().platforms
    for name in names:
        account = ChatAccount(name, (accounts[name].network or name) if name in accounts else name)
        network = networks.get(account.network, NetworkSetup(title=account.network))
        if name != account.network:
            network = structs.replace(network, title=f"{network.title} ({name})")
        trial = build_trial(account, network, writer)
        checks = [one for one in network.questions if one.check and (one.name in trial.secrets or not one.is_secret)]
        problems = network.doctor(trial) if network.doctor else ()
        for problem in problems:
            yield warning(f"{network.title}: {problem}")
        if not is_online and not problems:
            yield ok(f"{network.title} is set up (not contacted).")
        for question in checks if is_online else ():
            result = service.try_answer(question, trial)
            report = ok if result.right else fault if result.outcome == "refused" else warning
            yield report(f"{name}: {result.sentence}" if name != account.network else result.sentence)
        if is_online and not checks and not problems:
            yield ok(f"{network.title} is set up.")


def check_sandbox(services: Services) -> Iterator[Finding]:
    """Report in which sandbox the agent's commands run, after running one there."""
    settings = load(services.profile, services.environment).settings
    enabled, kind = settings.sandbox.enabled, settings.sandbox.kind
    others = [f"{name}: {one.sandbox}" for name, one in settings.surfaces.items() if one.sandbox]
    which = f" Other sandboxes are set for some surfaces ({', '.join(others)})." if others else ""
    if enabled is False:
        yield ok(
            "Off: commands have the same access as you. `talaria config set sandbox.enabled true` turns it on." + which
        )
        return
    whose = "Commands from chats, the API and scheduled jobs" if enabled == "auto" else "The agent's commands"
    problem = services.sandbox_problem()
    if problem:
        install = _capitalize(_INSTALL.format(package="bubblewrap")) if kind == "bubblewrap" else ""
        yield warning(f"{whose} are refused, because their sandbox isn't available. {problem}{which}", install)
    elif enabled == "auto":
        yield ok(
            f"{whose} run in a {kind} sandbox; in the terminal they have the same access as you. "
            f"`talaria config set sandbox.enabled true` sandboxes those, too.{which}"
        )
    else:
        yield ok(f"{whose} run in a {kind} sandbox.{which}")


def check_browser(services: Services) -> Iterator[Finding]:
    """Report which browser the agent uses, or why it has none."""
    try:
        settings = services.settings()
    except SettingsInvalid:
        yield warning(_SKIPPED, _REPAIR_FIRST)
        return
    executable = problem = ""
    try:
        executable = settings.browser.attach or require_executable(
            settings.browser.executable_path, services.environment
        )
    except ToolFailed as error:
        problem = str(error)
    if _BROWSER not in settings.tools.toolsets:
        yield ok(f"Off. `talaria tools enable browser` gives the agent a web browser. {problem}".rstrip())
    elif problem:
        yield warning(f"The toolset `browser` is on, but the agent has no browser: {problem}")
    elif settings.browser.attach:
        yield ok(f"The agent uses your own browser at {executable}.")
    else:
        weak = ", without Chromium's own sandbox, which doesn't work as root" if is_root() else ""
        yield ok(f"The agent uses {executable}{weak}.")


def _report_unusable(error: ProviderError, about: str = "") -> Finding:
    """Return a fault for a permanent problem, a warning for one that may pass."""
    is_permanent = isinstance(error, BadKey | NoCredit | ModelUnknown | ProviderUnreachable)
    return (fault if is_permanent else warning)(f"{about}{error.for_owner}")


def _report_limited(chosen: ChosenModel) -> Finding:
    return warning(f"{chosen.provider}:{chosen.model} is in use. {chosen.why}", chosen.limits)


def _check_catalogue(chosen: ChosenModel) -> Iterator[Finding]:
    if not chosen.info.known:
        yield ok(f"{chosen.model} isn't in the catalogue, so its limits are cautious guesses.")


def _check_disabled_names(settings: Settings, known: list[str]) -> Iterator[Finding]:
    for name in settings.tools.disabled:
        if name not in known and not name.startswith("mcp_"):
            close = find_nearest(name, known)
            hint = f"The nearest is `{close}`." if close else "`talaria tools` lists them all."
            yield warning(f"`tools.disabled` names `{name}`, which isn't a tool.", hint)


def _check_mcp_servers(services: Services, settings: Settings) -> Iterator[Finding]:
    enabled = [name for name, one in settings.mcp.items() if one.enabled and bool(one.command) != bool(one.url)]
    if enabled:
        yield ok(f"MCP servers that are on: {', '.join(enabled)} (not contacted; `talaria mcp test` does that).")
        for entry in services.tools().mcp().list():
            if entry.enabled and entry.problem:
                yield warning(f"The sign-in to the MCP server {entry.name} has a problem: {entry.problem}")
    for name, server in settings.mcp.items():
        if server.enabled and bool(server.command) == bool(server.url):
            yield warning(
                f"The MCP server {name} needs a command or an address, but not both.",
                f"Set `mcp.{name}.command` or `mcp.{name}.url` with `talaria config set`.",
            )
        elif server.enabled and server.command and shutil.which(server.command) is None:
            yield warning(f"The command of the MCP server {name} wasn't found: {server.command}.")


def _check_voice_commands(services: Services, settings: Settings) -> Iterator[Finding]:
    """Report programs for speech that aren't there; a command that begins otherwise is left to the shell."""
    voice = settings.voice
    commands = {
        "voice.command": voice.command if voice.transcribe == "command" else "",
        "voice.speak_command": voice.speak_command if voice.speaker == "command" else "",
    }
    for key, command in commands.items():
        found = _FIRST_WORD.match(command)
        if found and shutil.which(Path(found[0]).expanduser(), path=services.environment.get("PATH")) is None:
            yield warning(f"`{found[0]}` of `{key}` isn't installed, so voice notes fail.", "Install it, or change it.")


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
