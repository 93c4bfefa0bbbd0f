"""Questions on a terminal, line by line: `?` explains, and `back`, `skip` and `quit` work at each of them."""

import getpass
import sys
import textwrap
from collections.abc import Callable, Sequence

from msgspec import Struct

from talaria.cli.terminal import Terminal
from talaria.settings.faults import nearest

_MANY = 12
_WAYS = "`?` explains, `back` returns to the question before, `skip` leaves this as it is, `quit` ends here."


class Back(Exception):
    """The person wants the question before."""


class Skip(Exception):
    """The person wants to leave this as it is."""


class Leave(Exception):
    """The person wants to end here."""


class Choice(Struct, frozen=True):
    """One of several answers, and what there is to say of it."""

    name: str
    remark: str = ""


class Questions:
    """Asks a person; every question may raise `Back`, `Skip` or `Leave`."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    @property
    def ways(self) -> str:
        """What can be typed at any question."""
        return _WAYS

    def ask(self, text: str, *, default: str = "", explain: str) -> str:
        """Return a line that is not empty; an empty one means the default."""
        while True:
            typed = self._heard(text, default, explain, self._read) or default
            if typed:
                return typed
            self._terminal.line("Type an answer, or `skip` to continue without one.")

    def may_be_empty(self, text: str, *, default: str = "", explain: str) -> str:
        """Return a line, or the default for an empty one, or nothing."""
        return self._heard(text, default, explain, self._read) or default

    def hidden(self, text: str, *, default: str = "", explain: str) -> str:
        """Return what is typed without showing it, or nothing; ``default`` is only shown."""
        return self._heard(f"{text} (not shown)", default, explain, _read_hidden)

    def yes(self, text: str, *, default: bool, explain: str) -> bool:
        """Return whether the answer is a yes."""
        while True:
            typed = self._heard(text, "Y/n" if default else "y/N", explain, self._read).lower()
            if not typed:
                return default
            if typed in {"y", "yes", "n", "no"}:
                return typed[0] == "y"
            self._terminal.line("Answer y or n.")

    def choose(self, text: str, choices: Sequence[Choice], *, default: str = "", explain: str) -> str:
        """Show the choices and return the name of one, given by its number or its name."""
        self.show(choices)
        while True:
            typed = self.ask(text, default=default, explain=explain)
            found = picked(typed, [choice.name for choice in choices])
            if found is not None:
                return found
            self._terminal.line(_not_there(typed, choices))

    def choose_some(self, text: str, choices: Sequence[Choice], *, default: Sequence[str], explain: str) -> list[str]:
        """Show the choices and return the names of any number of them, in their order; `all` and `none` count too."""
        self.show(choices)
        names = [choice.name for choice in choices]
        now = "all" if set(names) <= set(default) else ", ".join(default) or "none"
        while True:
            typed = self.ask(text, default=now, explain=explain)
            words = {"none": [], "all": names}.get(typed, typed.replace(",", " ").split())
            wrong = [word for word in words if picked(word, names) is None]
            if not wrong:
                chosen = {picked(word, names) for word in words}
                return [name for name in names if name in chosen]
            self._terminal.line(_not_there(wrong[0], choices))

    def choose_from_many(self, text: str, names: Sequence[str], *, default: str, explain: str) -> str:
        """Return one of many names; a part of a name lists those that have it, another name is asked about."""
        shown = list(names[:_MANY])
        self.show([Choice(name) for name in shown])
        if len(names) > len(shown):
            self._terminal.line(
                f"     and {len(names) - len(shown):,} more; a part of a name lists those that have it."
            )
        while True:
            typed = self.ask(text, default=default, explain=explain)
            found = picked(typed, shown) or (typed if typed in names or typed == default else None)
            if found is not None:
                return found
            fitting = [name for name in names if typed.lower() in name.lower()]
            if fitting:
                shown = fitting[:_MANY]
                self.show([Choice(name) for name in shown])
            elif self._takes_anyway(typed, names):
                return typed

    def show(self, choices: Sequence[Choice]) -> None:
        """Print the choices, one a line, each behind its number."""
        width = max((len(choice.name) for choice in choices), default=0)
        for number, choice in enumerate(choices, 1):
            self._terminal.line(f"  {number:>2}  {choice.name:<{width}}  {choice.remark}".rstrip())

    def _takes_anyway(self, typed: str, names: Sequence[str]) -> bool:
        close = nearest(typed, names)
        hint = f" The nearest is {close}." if close else ""
        explain = "A provider may have models that it does not list; a misspelt name will not answer."
        return self.yes(f"There is no {typed} in the list.{hint} Take it anyway?", default=False, explain=explain)

    def _heard(self, text: str, default: str, explain: str, read: Callable[[str], str | None]) -> str:
        while True:
            typed = read(f"{text} [{default}]: " if default else f"{text}: ")
            if typed is None:
                self._terminal.note("")
                raise Leave
            match typed.strip():
                case "?":
                    self._terminal.line(wrapped(f"{explain}\n{_WAYS}", self._terminal))
                case "back":
                    raise Back
                case "skip":
                    raise Skip
                case "quit":
                    raise Leave
                case answer:
                    return answer

    def _read(self, prompt: str) -> str | None:
        """Return a line, or ``None`` at the end of what is typed."""
        self._terminal.prompt(prompt)
        try:
            return sys.stdin.readline() or None
        except UnicodeDecodeError:
            self._terminal.line("That was not readable as text.")
            return ""


def walk(steps: Sequence[Callable[[], bool]], at_the_beginning: Callable[[], None]) -> None:
    """Take the steps in order, each of which says whether it asked anything; `back` returns to the last that did."""
    asked: list[int] = []
    at = 0
    while at < len(steps):
        try:
            if steps[at]():
                asked.append(at)
        except Skip:
            asked.append(at)
        except Back:
            if not asked:
                at_the_beginning()
            at = asked.pop() if asked else at
            continue
        at += 1


def wrapped(text: str, terminal: Terminal) -> str:
    """Return the text in lines that fit, words and paths unbroken."""
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


def picked(typed: str, names: Sequence[str]) -> str | None:
    """Return the name that a number or the name itself stands for, in any case of letters."""
    if typed.isdecimal() and 1 <= int(typed) <= len(names):
        return names[int(typed) - 1]
    return next((name for name in names if name.lower() == typed.lower()), None)


def _read_hidden(prompt: str) -> str | None:
    try:
        return getpass.getpass(prompt)
    except EOFError:
        return None


def _not_there(typed: str, choices: Sequence[Choice]) -> str:
    close = nearest(typed, [choice.name for choice in choices])
    hint = f"did you mean {close}?" if close else f"take a number from 1 to {len(choices)}, or a name."
    return f"There is no {typed}: {hint}"
