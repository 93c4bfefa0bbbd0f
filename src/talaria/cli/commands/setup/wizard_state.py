"""Progress and context of the setup; progress is stored in a file of the profile."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from talaria.cli.commands.setup.questions import GoBack, MenuChoice, SetupQuestions, SkipQuestion, wrap_lines
from talaria.cli.services import Services
from talaria.cli.terminal import Terminal
from talaria.contracts.setup import Discovery, ProbeResult, SearchEngineOffer, SearchProbes, SetupProbes, SetupQuestion
from talaria.settings.atomic_files import lock_folder, read_file, write_file
from talaria.settings.config_writer import ConfigWriter
from talaria.settings.profiles import Profile
from talaria.settings.secrets import KNOWN_SECRETS, mask

SECTIONS = ("model", "chat", "tools")
_FILE = "setup.json"
_LAST_ENGINE = "duckduckgo"


class _StoredProgress(Struct):
    finished: list[str] = []


class WizardProgress:
    """Finished sections, including skipped questions, which the settings alone cannot show."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._file = profile.folder / _FILE

    def load_finished(self) -> tuple[str, ...]:
        """Finished sections; none if the file is unreadable."""
        try:
            stored = msgspec.json.decode(read_file(self._file) or b"{}", type=_StoredProgress)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ()
        return tuple(section for section in SECTIONS if section in stored.finished)

    def list_unfinished(self) -> tuple[str, ...]:
        """Unfinished sections."""
        done = self.load_finished()
        return tuple(section for section in SECTIONS if section not in done)

    def finish(self, section: str) -> None:
        """Store that a section is finished."""
        with lock_folder(self._profile.folder):
            done = {*self.load_finished(), section}
            stored = _StoredProgress([name for name in SECTIONS if name in done])
            write_file(self._file, msgspec.json.encode(stored).decode() + "\n")


class SetupContext(Struct, frozen=True):
    """Context of one setup run; with ``checks`` off, nothing is tested before it is written."""

    services: Services
    questions: SetupQuestions
    writer: ConfigWriter
    probes: SetupProbes
    search: SearchProbes
    found: Discovery
    checks: bool = True
    network_urls: dict[str, str] = {}

    @property
    def terminal(self) -> Terminal:
        """Terminal to print to."""
        return self.services.terminal

    def print_line(self, text: str, *styles: str) -> None:
        """Print a line, followed by the pending notes about saved settings."""
        self.terminal.line(self.terminal.style(wrap_lines(text, self.terminal), *styles))
        for note in self.writer.notes:
            self.terminal.line(self.terminal.style(wrap_lines(note, self.terminal), "yellow"))
        self.writer.notes.clear()


def ask_for_secret(
    setup: SetupContext, question: SetupQuestion, title: str, check: Callable[[str], ProbeResult], *, kind: str
) -> None:
    """Ask for a secret and save it once ``check`` accepts it; an empty answer keeps the stored one."""
    typed = ask_setup_question(
        setup, question, title, check, setup.writer.read_secrets().get(question.name) or "", kind
    )
    if typed:
        setup.writer.keep_secret(question.name, typed)
        setup.print_line(f"Saved {question.name} {mask(typed)} in {setup.services.profile.secrets_file}.")


def ask_setup_question(
    setup: SetupContext,
    question: SetupQuestion,
    title: str,
    check: Callable[[str], ProbeResult] | None,
    known: str,
    kind: str,
) -> str:
    """Ask until the service ``title`` accepts the answer, and return it; an empty text keeps ``known``."""
    typed = _read_answer(setup, question, known, kind)
    while setup.checks and check is not None and (typed or known):
        setup.print_line(f"Checking with {title} …", "dim")
        result = check(typed or known)
        setup.print_line(result.sentence, "green" if result.right else "yellow")
        if result.right:
            break
        default = "another" if result.outcome == "refused" else "again"
        choices = (
            MenuChoice("another", f"enter another {kind}"),
            MenuChoice("again", "try again"),
            MenuChoice("keep", "save it without checking"),
            MenuChoice("skip", "save nothing and continue"),
            MenuChoice("back", "return to the question before"),
        )
        explain = f"The {kind} hasn't been saved yet. `keep` saves it although it couldn't be checked."
        match setup.questions.choose("What next?", choices, default=default, explain=explain):
            case "another":
                typed = _read_answer(setup, question, known, kind)
            case "keep":
                break
            case "skip":
                raise SkipQuestion
            case "back":
                raise GoBack
    return typed


def _read_answer(setup: SetupContext, question: SetupQuestion, known: str, kind: str) -> str:
    """Return a new answer, or an empty text to keep the current one; an optional question may have none."""
    while True:
        prompt = question.prompt or question.name
        if question.is_secret and not question.public:
            default = f"keep {mask(known)}" if known else "" if question.required else "none"
            typed = setup.questions.ask_hidden(prompt, default=default, explain=question.hint)
        elif question.required or known or question.default:
            typed = setup.questions.ask(prompt, default=known or question.default, explain=question.hint).rstrip("/")
        else:
            typed = setup.questions.ask(prompt, default="none", explain=question.hint)
            typed = "" if typed == "none" else typed
        problem = question.problem(typed) if typed and question.problem else ""
        if problem:
            setup.print_line(problem)
        elif typed or known or not question.required:
            return typed
        else:
            setup.print_line(f"Type or paste the {kind}, or `skip` to continue without one.")


def describe_secret(name: str) -> SetupQuestion:
    """Return the question for a known secret."""
    hint = next((secret.hint for secret in KNOWN_SECRETS if secret.name == name), "")
    return SetupQuestion(name=name, hint=hint)


def order_engines(offers: Sequence[SearchEngineOffer], chosen: str) -> list[str]:
    """Return the engines to use, with ``chosen`` first and DuckDuckGo last; only that one if it was chosen."""
    others = [one.name for one in offers if not one.gap and one.name not in {chosen, _LAST_ENGINE}]
    return [chosen] if chosen == _LAST_ENGINE else [chosen, *others, _LAST_ENGINE]
