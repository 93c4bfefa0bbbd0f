"""Interactive setup: sections in order, which can be left and resumed at any question."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from talaria.cli.commands.setup.chat_section import NETWORKS, TOKENS, ChatSection
from talaria.cli.commands.setup.config_writer import ConfigWriter
from talaria.cli.commands.setup.model_section import ModelSection
from talaria.cli.commands.setup.questions import MenuChoice, QuitWizard, SetupQuestions, run_steps
from talaria.cli.commands.setup.tools_section import MODES, ToolsSection
from talaria.cli.commands.setup.wizard_state import SECTIONS, SetupContext, WizardProgress
from talaria.cli.first_run import describe_discovery
from talaria.cli.services import Services

ALL = "all"
INTERRUPTED = 130

Section = ModelSection | ChatSection | ToolsSection

_SECTION_TYPES: dict[str, Callable[[SetupContext], Section]] = {
    "model": ModelSection,
    "chat": ChatSection,
    "tools": ToolsSection,
}
_TITLES = {"model": ModelSection.title, "chat": ChatSection.title, "tools": ToolsSection.title}
_AGAIN_HELP = "All sections are done. `all` goes through everything again, with your answers as defaults."


def run_wizard(services: Services, section: str | None, *, checks: bool, network_urls: dict[str, str]) -> int:
    """Ask all unfinished sections, or one section, and return the exit code."""
    probes, terminal = services.setup_probes(), services.terminal
    setup = SetupContext(
        services=services,
        questions=SetupQuestions(terminal),
        writer=ConfigWriter(services),
        probes=probes,
        found=probes.discover(),
        checks=checks,
        network_urls=network_urls,
    )
    progress = WizardProgress(services.profile)
    try:
        _greet(setup)
        sections = [section] if section else _choose_sections(progress, setup)
        run_steps(list(_list_steps(sections, setup, progress)), lambda: setup.say("This is the first question."))
    except (QuitWizard, KeyboardInterrupt) as left:
        return _report_stop(progress, setup, interrupted=isinstance(left, KeyboardInterrupt))
    _print_summary(setup, progress)
    return 0


def _greet(setup: SetupContext) -> None:
    setup.say(f"Setup of the profile {setup.services.profile.name}", "bold")
    for line in describe_discovery(setup.found):
        setup.say(f"  {line}")
    setup.say(f"{setup.questions.navigation_help} Press Ctrl-C to leave at any time.")


def _choose_sections(progress: WizardProgress, setup: SetupContext) -> list[str]:
    left, done = progress.left(), progress.finished()
    if not done:
        return list(left)
    titles = ", ".join(_title(name) for name in done)
    if left:
        setup.say(f"Already done: {titles}. Continuing with: {_title(left[0])}.")
        return list(left)
    choices = [MenuChoice(ALL), *(MenuChoice(name, _title(name)) for name in SECTIONS)]
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
    setup.say("")
    setup.say(title, "bold")
    setup.say(purpose)
    return False


def _finish(progress: WizardProgress, name: str) -> bool:
    progress.finish(name)
    return False


def _report_stop(progress: WizardProgress, setup: SetupContext, *, interrupted: bool) -> int:
    left = progress.left()
    where = f", starting with: {_title(left[0])}" if left else ""
    setup.say(f"\nStopped here. Your answers are saved; `talaria setup` continues{where}.")
    return INTERRUPTED if interrupted else 0


def _print_summary(setup: SetupContext, progress: WizardProgress) -> None:
    now, settings, secrets = setup.probes.discover(), setup.writer.settings(), setup.writer.secrets()
    setup.say("")
    setup.say("Ready" if now.chosen else "Almost ready", "bold")
    if now.chosen:
        setup.say(f"  Model:    {now.chosen.provider}:{now.chosen.model}. {now.chosen.why}")
    else:
        setup.say(f"  Model:    none yet. {now.trouble}", "yellow")
    ready = {token.network for token in TOKENS if secrets.get(token.secret)}
    networks = ", ".join(title for name, title in NETWORKS.items() if name in ready)
    setup.say(f"  Chats:    {f'{networks}, when the gateway runs' if networks else 'none'}.")
    setup.say(f"  Tools:    {', '.join(settings.tools.toolsets) or 'none'}.")
    setup.say(f"  Approval: {settings.approval.mode}, {MODES[settings.approval.mode]}.")
    if progress.left():
        setup.say(f"Not done yet: {', '.join(map(_title, progress.left()))}. `talaria setup` continues there.")
    if now.chosen:
        setup.say('Run `talaria` to chat, or `talaria "Hello"` to ask once. `talaria doctor` checks the installation.')
    else:
        setup.say("Now run `talaria setup model` to choose a model. `talaria doctor` checks the installation.")


def _title(name: str) -> str:
    return _TITLES[name]
