"""Progress and context of the setup; progress is stored in a file of the profile."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from talaria.cli.commands.setup.questions import MenuChoice, SetupQuestions, SkipQuestion, wrap_lines
from talaria.cli.output.terminal import Terminal
from talaria.cli.services import Services
from talaria.contracts.setup import Discovery, ProbeResult, SearchEngineOffer, SearchProbes, SetupProbes
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

    def finished(self) -> tuple[str, ...]:
        """Finished sections; none if the file is unreadable."""
        try:
            stored = msgspec.json.decode(read_file(self._file) or b"{}", type=_StoredProgress)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ()
        return tuple(section for section in SECTIONS if section in stored.finished)

    def left(self) -> tuple[str, ...]:
        """Unfinished sections."""
        done = self.finished()
        return tuple(section for section in SECTIONS if section not in done)

    def finish(self, section: str) -> None:
        """Store that a section is finished."""
        with lock_folder(self._profile.folder):
            done = {*self.finished(), section}
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

    def say(self, text: str, *styles: str) -> None:
        """Print a line, followed by the pending notes about saved settings."""
        self.terminal.line(self.terminal.styled(wrap_lines(text, self.terminal), *styles))
        for note in self.writer.notes:
            self.terminal.line(self.terminal.styled(wrap_lines(note, self.terminal), "yellow"))
        self.writer.notes.clear()


def ask_for_secret(
    setup: SetupContext, name: str, title: str, check: Callable[[str], ProbeResult], *, kind: str
) -> None:
    """Ask for a secret and save it once ``check`` accepts it; an empty answer keeps the stored one."""
    typed = _ask_hidden(setup, name, kind)
    while setup.checks:
        known = typed or setup.writer.secrets().get(name) or ""
        setup.say(f"Checking with {title} …", "dim")
        result = check(known)
        setup.say(result.sentence, "green" if result.right else "yellow")
        if result.right:
            break
        default = "another" if result.outcome == "refused" else "again"
        choices = (
            MenuChoice("another", f"enter another {kind}"),
            MenuChoice("again", "try again"),
            MenuChoice("keep", "save it without checking"),
            MenuChoice("skip", "save nothing and continue"),
        )
        explain = f"The {kind} hasn't been saved yet. `keep` saves it although it couldn't be checked."
        match setup.questions.choose("What next?", choices, default=default, explain=explain):
            case "another":
                typed = _ask_hidden(setup, name, kind)
            case "keep":
                break
            case "skip":
                raise SkipQuestion
    if typed:
        setup.writer.keep_secret(name, typed)
        setup.say(f"Saved {name} {mask(typed)} in {setup.services.profile.secrets_file}.")


def _ask_hidden(setup: SetupContext, name: str, kind: str) -> str:
    """Return a new secret, or an empty string to keep the current one."""
    known = setup.writer.secrets().get(name) or ""
    hint = next(secret.hint for secret in KNOWN_SECRETS if secret.name == name)
    while True:
        typed = setup.questions.ask_hidden(name, default=f"keep {mask(known)}" if known else "", explain=hint)
        if typed or known:
            return typed
        setup.say(f"Type or paste the {kind}, or `skip` to continue without one.")


def order_engines(offers: Sequence[SearchEngineOffer], chosen: str) -> list[str]:
    """Return the engines to use, with ``chosen`` first and DuckDuckGo last; only that one if it was chosen."""
    others = [one.name for one in offers if not one.gap and one.name not in {chosen, _LAST_ENGINE}]
    return [chosen] if chosen == _LAST_ENGINE else [chosen, *others, _LAST_ENGINE]
