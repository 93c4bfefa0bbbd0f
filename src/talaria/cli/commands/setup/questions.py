"""Line-by-line terminal questions with `?` for help and `back`, `skip` and `quit`."""

import getpass
import sys
import textwrap
from collections.abc import Callable, Sequence

from msgspec import Struct

from talaria.cli.terminal import Terminal
from talaria.settings.errors import find_nearest

_SHOWN_CHOICES = 12
_ALL_BUT = "all but "
_NAVIGATION_HELP = (
    "`?` explains, `back` returns to the previous question, `skip` leaves this as it is, `quit` stops here."
)


class GoBack(Exception):
    """Signal that the user wants to return to the previous question."""


class SkipQuestion(Exception):
    """Signal that the user wants to skip this question."""


class QuitWizard(Exception):
    """Signal that the user wants to quit."""


class MenuChoice(Struct, frozen=True):
    """Answer of a menu, with its description."""

    name: str
    remark: str = ""


class SetupQuestions:
    """Asks a person; every question may raise `GoBack`, `SkipQuestion` or `QuitWizard`."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    @property
    def navigation_help(self) -> str:
        """Return what can be typed at any question."""
        return _NAVIGATION_HELP

    def ask(self, text: str, *, default: str = "", explain: str) -> str:
        """Return a non-empty line; an empty one means the default."""
        while True:
            typed = self._read_answer(text, default, explain, self._read) or default
            if typed:
                return typed
            self._terminal.line("Type an answer, or `skip` to continue without one.")

    def may_be_empty(self, text: str, *, default: str = "", explain: str) -> str:
        """Return a line, or the default for an empty one; the result may be empty."""
        return self._read_answer(text, default, explain, self._read) or default

    def ask_hidden(self, text: str, *, default: str = "", explain: str) -> str:
        """Return typed text without showing it; may be empty. ``default`` is only shown."""
        return self._read_answer(f"{text} (not shown)", default, explain, _read_hidden)

    def confirm(self, text: str, *, default: bool, explain: str) -> bool:
        """Return whether the answer is yes."""
        while True:
            typed = self._read_answer(text, "Y/n" if default else "y/N", explain, self._read).lower()
            if not typed:
                return default
            if typed in {"y", "yes", "n", "no"}:
                return typed[0] == "y"
            self._terminal.line("Answer y or n.")

    def choose(self, text: str, choices: Sequence[MenuChoice], *, default: str = "", explain: str) -> str:
        """Show the choices and return the name of one, chosen by number or name."""
        self.show(choices)
        while True:
            typed = self.ask(text, default=default, explain=explain)
            found = match_choice(typed, [choice.name for choice in choices])
            if found is not None:
                return found
            self._terminal.line(_explain_unknown(typed, choices))

    def choose_some(
        self, text: str, choices: Sequence[MenuChoice], *, default: Sequence[str], explain: str
    ) -> list[str]:
        """Show the choices and return the chosen names in order; `all`, `all but NAMES` and `none` are accepted."""
        self.show(choices)
        names = [choice.name for choice in choices]
        while True:
            typed = self.ask(text, default=_describe_chosen(names, default), explain=explain)
            inverted = typed.startswith(_ALL_BUT)
            words = {"none": [], "all": names}.get(typed, typed.removeprefix(_ALL_BUT).replace(",", " ").split())
            wrong = [word for word in words if match_choice(word, names) is None]
            if not wrong:
                chosen = {match_choice(word, names) for word in words}
                return [name for name in names if (name in chosen) is not inverted]
            self._terminal.line(_explain_unknown(wrong[0], choices))

    def choose_from_many(self, text: str, names: Sequence[str], *, default: str, explain: str) -> str:
        """Return one of many names; a part of a name lists its matches, the first as the default."""
        shown = list(names[:_SHOWN_CHOICES])
        self.show([MenuChoice(name) for name in shown])
        if len(names) > len(shown):
            self._terminal.line(f"     and {len(names) - len(shown):,} more; type part of a name to list its matches.")
        while True:
            typed = self.ask(text, default=default, explain=explain)
            found = match_choice(typed, shown) or (typed if typed in names or typed == default else None)
            if found is not None:
                return found
            matches = [name for name in names if typed.lower() in name.lower()]
            if matches:
                shown, default = matches[:_SHOWN_CHOICES], matches[0]
                self.show([MenuChoice(name) for name in shown])
            elif self._confirm_unlisted(typed, names):
                return typed

    def show(self, choices: Sequence[MenuChoice]) -> None:
        """Print the choices, one per line, each after its number."""
        width = max((len(choice.name) for choice in choices), default=0)
        for number, choice in enumerate(choices, 1):
            self._terminal.line(f"  {number:>2}  {choice.name:<{width}}  {choice.remark}".rstrip())

    def _confirm_unlisted(self, typed: str, names: Sequence[str]) -> bool:
        close = find_nearest(typed, names)
        hint = f" The nearest is {close}." if close else ""
        explain = "A provider may have models that it doesn't list, but a misspelled name won't work."
        return self.confirm(f"{typed} isn't in the list.{hint} Use it anyway?", default=False, explain=explain)

    def _read_answer(self, text: str, default: str, explain: str, read: Callable[[str], str | None]) -> str:
        while True:
            typed = read(f"{text} [{default}]: " if default else f"{text}: ")
            if typed is None:
                self._terminal.note("")
                raise QuitWizard
            match typed.strip():
                case "?":
                    self._terminal.line(wrap_lines(f"{explain}\n{_NAVIGATION_HELP}", self._terminal))
                case "back":
                    raise GoBack
                case "skip":
                    raise SkipQuestion
                case "quit":
                    raise QuitWizard
                case answer:
                    return answer

    def _read(self, prompt: str) -> str | None:
        """Return a line, or ``None`` at the end of the input."""
        self._terminal.prompt(prompt)
        try:
            return sys.stdin.readline() or None
        except UnicodeDecodeError:
            self._terminal.line("That isn't readable as text.")
            return ""


def run_steps(steps: Sequence[Callable[[], bool]], on_first_question: Callable[[], None]) -> None:
    """Run the steps in order; `back` returns to the last step that asked something.

    Each step returns whether it asked a question.
    """
    asked: list[int] = []
    at = 0
    while at < len(steps):
        try:
            if steps[at]():
                asked.append(at)
        except SkipQuestion:
            asked.append(at)
        except GoBack:
            if not asked:
                on_first_question()
            at = asked.pop() if asked else at
            continue
        at += 1


def wrap_lines(text: str, terminal: Terminal) -> str:
    """Return the text wrapped at words, with paths unbroken."""
    return "\n".join(
        textwrap.fill(
            line,
            max(40, terminal.width - 1),
            subsequent_indent=" " * (len(line) - len(line.lstrip())),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )


def match_choice(typed: str, names: Sequence[str]) -> str | None:
    """Return the name for a number or a name, ignoring case."""
    if typed.isdecimal() and 1 <= int(typed) <= len(names):
        return names[int(typed) - 1]
    return next((name for name in names if name.lower() == typed.lower()), None)


def _read_hidden(prompt: str) -> str | None:
    try:
        return getpass.getpass(prompt)
    except EOFError:
        return None


def _describe_chosen(names: Sequence[str], chosen: Sequence[str]) -> str:
    """Return chosen names as they can be typed, in the shorter form."""
    left_out = [name for name in names if name not in chosen]
    if not left_out:
        return "all"
    return f"{_ALL_BUT}{', '.join(left_out)}" if len(left_out) < len(chosen) else ", ".join(chosen) or "none"


def _explain_unknown(typed: str, choices: Sequence[MenuChoice]) -> str:
    close = find_nearest(typed, [choice.name for choice in choices])
    hint = f"did you mean {close}?" if close else f"choose a number from 1 to {len(choices)}, or a name."
    return f"{typed} isn't in the list: {hint}"
