"""Interactive setup: sections in order, which can be left and resumed at any question."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from talaria.cli.commands.setup.chat_section import ChatSection, find_accounts
from talaria.cli.commands.setup.model_section import ModelSection
from talaria.cli.commands.setup.questions import MenuChoice, QuitWizard, SetupQuestions, run_steps
from talaria.cli.commands.setup.wizard_state import (
    SECTIONS,
    SetupContext,
    WizardProgress,
    ask_for_secret,
    describe_secret,
    order_engines,
)
from talaria.cli.first_run import describe_discovery
from talaria.cli.services import Services
from talaria.settings.config_writer import ConfigWriter
from talaria.settings.sections.checks import is_web_address

DUCKDUCKGO = "duckduckgo"
SEARXNG = "searxng"
MODES = {
    "ask": "ask before dangerous calls, run all others",
    "allow-list": "ask before everything except reading and the commands in `approval.allowed`",
    "off": "never ask, run everything",
}
SANDBOXES = {
    "auto": "in a sandbox for chats, the API and scheduled jobs; not in the terminal",
    "on": "always in a sandbox",
    "off": "never in a sandbox: commands have the same access as you",
}
_WHICH = (
    "Each tool makes every request a little larger. Give the numbers or names of the toolsets to turn on, `all`, "
    "`all but NAMES` or `none`."
)
_SEARCH = (
    f"`{DUCKDUCKGO}` needs no setup, but blocks programs at times. The engines with a key don't: give the name of one. "
    "To use a SearXNG server of your own, give its address, for example http://127.0.0.1:8888."
)
_GOOGLE_ID = "Google's engine searches with a Programmable Search Engine of yours; its overview page shows the id (cx)."
_SANDBOX = "In a sandbox, the agent's commands can write only to their working folder and can't see your keys."
_NETWORK = "Without the network, sandboxed commands can't fetch or send anything; the web tools still can."
_MODE = (
    "Dangerous calls, for example, delete a lot, write outside the working folder, or run downloaded code. `allow-list`"
    " is the strictest: harmless commands, file writes and code need your approval too, unless you listed the command."
)
ALL = "all"
INTERRUPTED = 130
_AGAIN_HELP = "All sections are done. `all` goes through everything again, with your answers as defaults."


class ToolsSection:
    """Questions about toolsets, search engine, sandbox and approval mode; each answer is written at once."""

    title = "Tools"
    purpose = "What the agent may use, and when it must ask you. The defaults are sensible."

    def __init__(self, setup: SetupContext) -> None:
        self._setup = setup
        self._enabled: tuple[str, ...] = ()
        self._engine = ""

    def steps(self) -> Sequence[Callable[[], bool]]:
        """Return the questions in order."""
        return (
            self._ask_toolsets,
            self._ask_search,
            self._ask_search_key,
            self._ask_sandbox,
            self._ask_network,
            self._ask_approval,
        )

    def _ask_toolsets(self) -> bool:
        self._enabled = self._setup.writer.load_settings().tools.toolsets
        choices = [
            MenuChoice(group.name, ", ".join(tool.name for tool in group.tools))
            for group in self._setup.services.tools().toolsets()
        ]
        on = self._setup.questions.choose_some("Toolsets to turn on", choices, default=self._enabled, explain=_WHICH)
        self._enabled = tuple(on)
        self._setup.writer.put("tools.toolsets", msgspec.json.encode(on).decode())
        self._setup.print_line(f"On: {', '.join(on) or 'none'}.")
        return True

    def _ask_search(self) -> bool:
        self._engine = ""
        if "web" not in self._enabled:
            return False
        offers = {offer.name: offer for offer in self._setup.search.engines()}
        addresses = self._setup.writer.load_settings().web.addresses
        now = next(iter(offers))
        default = addresses.get(now, "") if now == SEARXNG and now in addresses else now
        while True:
            typed = self._setup.questions.ask("Web search", default=default, explain=_SEARCH)
            name = typed.lower()
            if name in offers and (name != SEARXNG or SEARXNG in addresses):
                break
            if "://" in typed and is_web_address(typed):
                self._setup.writer.put(f"web.addresses.{SEARXNG}", typed)
                name = SEARXNG
                break
            names = ", ".join(one for one in offers if one != SEARXNG)
            self._setup.print_line(f"Type {names}, or an address that begins with http:// or https://.")
        self._engine = name
        if not offers[name].key_name:
            self._use_engine()
        return True

    def _ask_search_key(self) -> bool:
        offers = {offer.name: offer for offer in self._setup.search.engines()}
        offer = offers.get(self._engine)
        if offer is None or not offer.key_name:
            return False
        if offer.name == "google":
            known = self._setup.writer.load_settings().web.google_engine_id
            answer = self._setup.questions.ask("Search engine id", default=known, explain=_GOOGLE_ID)
            self._setup.writer.put("web.google_engine_id", answer)
        check = partial(self._setup.search.try_engine, offer.name)
        ask_for_secret(self._setup, describe_secret(offer.key_name), offer.title, check, kind="key")
        self._use_engine()
        return True

    def _use_engine(self) -> None:
        """Write the order of the engines, unless searches use the chosen one first already."""
        offers = self._setup.search.engines()
        self._setup.writer.reset_setting("web.engines")
        if next(iter(self._setup.search.engines())).name != self._engine:
            order = order_engines(offers, self._engine)
            self._setup.writer.put("web.engines", msgspec.json.encode(order).decode())
        title = next(offer.title for offer in offers if offer.name == self._engine)
        self._setup.print_line(f"Web searches use {title}.")

    def _ask_sandbox(self) -> bool:
        if not {"terminal", "code"}.intersection(self._enabled):
            return False
        problem = self._setup.services.sandbox_problem()
        if problem:
            self._setup.print_line(f"A sandbox for commands isn't available here: {problem}")
            return False
        enabled = self._setup.writer.load_settings().sandbox.enabled
        now = enabled if enabled == "auto" else "on" if enabled else "off"
        choices = [MenuChoice(name, note) for name, note in SANDBOXES.items()]
        chosen = self._setup.questions.choose("Sandbox", choices, default=now, explain=_SANDBOX)
        self._setup.writer.put("sandbox.enabled", chosen)
        self._setup.print_line(f"Commands run {SANDBOXES[chosen]}.")
        return True

    def _ask_network(self) -> bool:
        settings = self._setup.writer.load_settings().sandbox
        if (
            not settings.enabled
            or self._setup.services.sandbox_problem()
            or not {"terminal", "code"}.intersection(self._enabled)
        ):
            return False
        on = self._setup.questions.confirm(
            "May sandboxed commands use the network?", default=settings.network, explain=_NETWORK
        )
        self._setup.writer.put("sandbox.network", "true" if on else "false")
        return True

    def _ask_approval(self) -> bool:
        choices = [MenuChoice(name, note) for name, note in MODES.items()]
        now = self._setup.writer.load_settings().approval.mode
        mode = self._setup.questions.choose("Approval", choices, default=now, explain=_MODE)
        self._setup.writer.put("approval.mode", mode)
        self._setup.print_line(f"Approval: {MODES[mode]}.")
        return True


Section = ModelSection | ChatSection | ToolsSection
_SECTION_TYPES: dict[str, Callable[[SetupContext], Section]] = {
    "model": ModelSection,
    "chat": ChatSection,
    "tools": ToolsSection,
}


_TITLES = {"model": ModelSection.title, "chat": ChatSection.title, "tools": ToolsSection.title}


def run_wizard(services: Services, section: str | None, *, checks: bool, network_urls: dict[str, str]) -> int:
    """Ask all unfinished sections, or one section, and return the exit code."""
    probes, terminal = services.setup_probes(), services.terminal
    setup = SetupContext(
        services=services,
        questions=SetupQuestions(terminal),
        writer=ConfigWriter(services.profile, services.environment),
        probes=probes,
        search=probes.search(),
        found=probes.discover(),
        checks=checks,
        network_urls=network_urls,
    )
    progress = WizardProgress(services.profile)
    try:
        _greet(setup)
        sections = [section] if section else _choose_sections(progress, setup)
        run_steps(list(_list_steps(sections, setup, progress)), lambda: setup.print_line("This is the first question."))
    except (QuitWizard, KeyboardInterrupt) as left:
        return _report_stop(progress, setup, interrupted=isinstance(left, KeyboardInterrupt))
    _print_summary(setup, progress)
    return 0


def _greet(setup: SetupContext) -> None:
    setup.print_line(f"Setup of the profile {setup.services.profile.name}", "bold")
    for line in describe_discovery(setup.found):
        setup.print_line(f"  {line}")
    setup.print_line(f"{setup.questions.navigation_help} Press Ctrl-C to leave at any time.")


def _choose_sections(progress: WizardProgress, setup: SetupContext) -> list[str]:
    left, done = progress.list_unfinished(), progress.load_finished()
    if not done:
        return list(left)
    titles = ", ".join(_get_title(name) for name in done)
    if left:
        setup.print_line(f"Already done: {titles}. Continuing with: {_get_title(left[0])}.")
        return list(left)
    choices = [MenuChoice(ALL), *(MenuChoice(name, _get_title(name)) for name in SECTIONS)]
    picked = setup.questions.choose("Which section?", choices, default=ALL, explain=_AGAIN_HELP)
    return list(SECTIONS) if picked == ALL else [picked]


def _list_steps(sections: Sequence[str], setup: SetupContext, progress: WizardProgress) -> Iterator[Callable[[], bool]]:
    for index, name in enumerate(sections, 1):
        section = _SECTION_TYPES[name](setup)
        number = f"{index} of {len(sections)}: " if len(sections) > 1 else ""
        yield partial(_print_heading, setup, f"{number}{section.title}", section.purpose)
        yield from section.steps()
        yield partial(_finish, progress, name)


def _print_heading(setup: SetupContext, title: str, purpose: str) -> bool:
    setup.print_line("")
    setup.print_line(title, "bold")
    setup.print_line(purpose)
    return False


def _finish(progress: WizardProgress, name: str) -> bool:
    progress.finish(name)
    return False


def _report_stop(progress: WizardProgress, setup: SetupContext, *, interrupted: bool) -> int:
    left = progress.list_unfinished()
    where = f", starting with: {_get_title(left[0])}" if left else ""
    setup.print_line(f"\nStopped here. Your answers are saved; `talaria setup` continues{where}.")
    return INTERRUPTED if interrupted else 0


def _print_summary(setup: SetupContext, progress: WizardProgress) -> None:
    now, settings = setup.probes.discover(), setup.writer.load_settings()
    setup.print_line("")
    setup.print_line("Ready" if now.chosen else "Almost ready", "bold")
    if now.chosen:
        setup.print_line(f"  Model:    {now.chosen.provider}:{now.chosen.model}. {now.chosen.why}")
    else:
        setup.print_line(f"  Model:    none yet. {now.trouble}", "yellow")
    off = {name for name, one in settings.platforms.items() if not one.enabled}
    networks = ", ".join(
        network.title if account.name == name else f"{network.title} ({account.name})"
        for name, network in setup.services.networks().setups().items()
        for account in find_accounts(name, setup.writer)
        if account.name not in off
    )
    setup.print_line(f"  Chats:    {f'{networks}, when the gateway runs' if networks else 'none'}.")
    setup.print_line(f"  Tools:    {', '.join(settings.tools.toolsets) or 'none'}.")
    setup.print_line(f"  Approval: {settings.approval.mode} ({MODES[settings.approval.mode]}).")
    if progress.list_unfinished():
        setup.print_line(
            f"Not done yet: {', '.join(map(_get_title, progress.list_unfinished()))}. `talaria setup` continues there."
        )
    if now.chosen:
        setup.print_line(
            'Run `talaria` to chat, or `talaria "Hello"` to ask once. `talaria doctor` checks the installation.'
        )
    else:
        setup.print_line("Now run `talaria setup model` to choose a model. `talaria doctor` checks the installation.")


def _get_title(name: str) -> str:
    return _TITLES[name]
