"""The guided set-up: sections one after the other, left and resumed at any question."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from talaria.cli.discoveries import found_lines
from talaria.cli.services import Services
from talaria.cli.setting_up.chat_section import NETWORKS, TOKENS, ChatSection
from talaria.cli.setting_up.model_section import ModelSection
from talaria.cli.setting_up.progress import SECTIONS, Progress
from talaria.cli.setting_up.questions import Choice, Leave, Questions, walk
from talaria.cli.setting_up.session import Guided
from talaria.cli.setting_up.tools_section import MODES, ToolsSection
from talaria.cli.setting_up.writing import Writer

ALL = "all"
INTERRUPTED = 130

Section = ModelSection | ChatSection | ToolsSection

_KINDS: dict[str, Callable[[Guided], Section]] = {"model": ModelSection, "chat": ChatSection, "tools": ToolsSection}
_TITLES = {"model": ModelSection.title, "chat": ChatSection.title, "tools": ToolsSection.title}
_AGAIN = "All sections are done. `all` goes through everything, with your answers as defaults."


def guide(services: Services, section: str | None, *, checks: bool, network_urls: dict[str, str]) -> int:
    """Ask everything that is not done yet, or one section, and return the exit code."""
    desk, terminal = services.setup_desk(), services.terminal
    guided = Guided(
        services=services,
        questions=Questions(terminal),
        writer=Writer(services),
        desk=desk,
        found=desk.discover(),
        checks=checks,
        network_urls=network_urls,
    )
    progress = Progress(services.profile)
    try:
        _greet(guided)
        wanted = [section] if section else _sections(progress, guided)
        walk(list(_steps(wanted, guided, progress)), lambda: guided.say("This is the first question."))
    except (Leave, KeyboardInterrupt) as left:
        return _say_goodbye(progress, guided, interrupted=isinstance(left, KeyboardInterrupt))
    _sum_up(guided, progress)
    return 0


def _greet(guided: Guided) -> None:
    guided.say(f"Set-up of the profile {guided.services.profile.name}", "bold")
    for line in found_lines(guided.found):
        guided.say(f"  {line}")
    guided.say(f"{guided.questions.ways} Ctrl-C leaves at any time.")


def _sections(progress: Progress, guided: Guided) -> list[str]:
    left, done = progress.left(), progress.finished()
    if not done:
        return list(left)
    titles = ", ".join(_title(name) for name in done)
    if left:
        guided.say(f"Done before: {titles}. Continuing with: {_title(left[0])}.")
        return list(left)
    choices = [Choice(ALL), *(Choice(name, _title(name)) for name in SECTIONS)]
    picked = guided.questions.choose("Which section again", choices, default=ALL, explain=_AGAIN)
    return list(SECTIONS) if picked == ALL else [picked]


def _steps(wanted: Sequence[str], guided: Guided, progress: Progress) -> Iterator[Callable[[], bool]]:
    for place, name in enumerate(wanted, 1):
        section = _KINDS[name](guided)
        number = f"{place} of {len(wanted)}: " if len(wanted) > 1 else ""
        yield partial(_open, guided, f"{number}{section.title}", section.purpose)
        yield from section.steps()
        yield partial(_finish, progress, name)


def _open(guided: Guided, title: str, purpose: str) -> bool:
    guided.say("")
    guided.say(title, "bold")
    guided.say(purpose)
    return False


def _finish(progress: Progress, name: str) -> bool:
    progress.finish(name)
    return False


def _say_goodbye(progress: Progress, guided: Guided, *, interrupted: bool) -> int:
    left = progress.left()
    where = f", beginning with: {_title(left[0])}" if left else ""
    guided.say(f"\nStopped here. Your answers are saved; `talaria setup` continues{where}.")
    return INTERRUPTED if interrupted else 0


def _sum_up(guided: Guided, progress: Progress) -> None:
    now, settings, secrets = guided.desk.discover(), guided.writer.settings(), guided.writer.secrets()
    guided.say("")
    guided.say("Ready" if now.chosen else "Nearly ready", "bold")
    if now.chosen:
        guided.say(f"  Model:    {now.chosen.provider}:{now.chosen.model}. {now.chosen.why}")
    else:
        guided.say(f"  Model:    none yet. {now.trouble}", "yellow")
    ready = {token.network for token in TOKENS if secrets.get(token.secret)}
    networks = ", ".join(title for name, title in NETWORKS.items() if name in ready)
    guided.say(f"  Chats:    {f'{networks}, once the gateway runs' if networks else 'none'}.")
    guided.say(f"  Tools:    {', '.join(settings.tools.toolsets) or 'none'}.")
    guided.say(f"  Approval: {settings.approval.mode}, {MODES[settings.approval.mode]}.")
    if progress.left():
        guided.say(f"Not done yet: {', '.join(map(_title, progress.left()))}. `talaria setup` continues there.")
    if now.chosen:
        guided.say('Run `talaria` to chat, or `talaria "Hello"` to ask once. `talaria doctor` checks the installation.')
    else:
        guided.say("Now run `talaria setup model` to choose a model. `talaria doctor` checks the installation.")


def _title(name: str) -> str:
    return _TITLES[name]
