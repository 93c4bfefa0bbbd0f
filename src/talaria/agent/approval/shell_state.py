"""State of a shell while its code is read: variables, folder, functions, input; and the commands that it runs."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from tree_sitter import Node

from talaria.agent.approval.places import UNKNOWN

__all__ = ["FOUND", "ITEMS", "NAME", "UNKNOWN", "Input", "Redirect", "ShellState", "SimpleCommand", "Word"]

NAME = "\x1a"  # stands for a number or a plain name: no slash, no blank
ITEMS = "\x1d"  # stands between the elements of an array
FOUND = "…"  # stands for a file below the folder before it
_NUMBERS = frozenset({
    "RANDOM", "SRANDOM", "SECONDS", "LINENO", "UID", "EUID", "PPID", "BASHPID", "EPOCHSECONDS", "SHLVL", "HOSTTYPE",
    "OSTYPE",
})  # fmt: skip
_MOST_FOLDERS = 4
_LONGEST_VALUE = 10_000


class Word(Struct, frozen=True):
    """A word after expansion, with `UNKNOWN` for what depends on more than the code.

    ``loose`` words may turn out to be several. ``sources`` are the programs whose output is part of it.
    """

    text: str
    quoted: bool = False
    loose: bool = False
    sources: tuple[str, ...] = ()


class Input(Struct, frozen=True):
    """What a command reads from its standard input; a pipe, a here-document or a file."""

    text: str = UNKNOWN
    sources: tuple[str, ...] = ()
    path: str = ""
    piped: bool = False


class Redirect(Struct, frozen=True):
    """A file that is opened for a command."""

    operator: str
    target: Word


class SimpleCommand(Struct, frozen=True):
    """A program with its words as they are after expansion.

    ``input`` is ``None`` where nothing is fed to it; ``assignments`` hold for this command alone.
    """

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()
    input: Input | None = None
    assignments: tuple[tuple[str, str], ...] = ()

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after the program."""
        return tuple(word.text for word in self.words[1:])


class ShellState:
    """What is known of a shell at one point of its code.

    ``folders`` are all in which it may be; ``None`` where that is not known.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self.variables: dict[str, str] = {**environment, "IFS": " \t\n"}
        self.exported = set(environment)
        self.folders: tuple[Path, ...] | None = (folder,)
        self.functions: dict[str, tuple[Node, ...]] = {}
        self.arguments: tuple[str, ...] | None = None
        self.script = UNKNOWN
        self.input: Input | None = None

    def copy(self) -> "ShellState":
        """Return a state that changes on its own."""
        made = ShellState({}, Path())
        made.__dict__.update(self.__dict__)
        made.variables, made.exported = dict(self.variables), set(self.exported)
        made.functions = dict(self.functions)
        return made

    def for_child(self) -> "ShellState":
        """Return the state of another shell that is started here: it sees what is exported."""
        made = self.copy()
        made.variables = {name: value if name in self.exported else UNKNOWN for name, value in self.variables.items()}
        made.variables["IFS"] = " \t\n"
        made.arguments = None
        return made

    def merge(self, other: "ShellState") -> None:
        """Keep what is true in both states."""
        names = self.variables.keys() | other.variables.keys()
        mine, theirs = self.variables, other.variables
        self.variables = {
            name: mine[name] if mine.get(name) == theirs.get(name) and name in mine else UNKNOWN for name in names
        }
        self.exported &= other.exported
        for name, bodies in other.functions.items():
            known = self.functions.get(name, ())
            self.functions[name] = (*known, *(body for body in bodies if body not in known))
        if self.arguments != other.arguments:
            self.arguments = None
        if self.folders is None or other.folders is None:
            self.folders = None
        else:
            self.enter(tuple(dict.fromkeys((*self.folders, *other.folders))))

    def enter(self, folders: tuple[Path, ...] | None) -> None:
        """Go to one of some folders."""
        self.folders = folders if folders is not None and len(folders) <= _MOST_FOLDERS else None

    def value(self, name: str) -> str:
        """Return the value of a variable or parameter, `UNKNOWN` where the code does not say it."""
        if name in ("@", "*"):
            return UNKNOWN if self.arguments is None else ITEMS.join(self.arguments)
        if name == "0":
            return self.script
        if name.isdigit():
            given = self.arguments
            return UNKNOWN if given is None else given[int(name) - 1] if int(name) <= len(given) else ""
        if name in _NUMBERS or name in tuple("#?$!-"):
            return NAME
        if name == "PWD":
            return str(self.folders[0]) if self.folders and len(self.folders) == 1 else UNKNOWN
        return self.variables.get(name, UNKNOWN)

    def assign(self, name: str, value: str) -> None:
        """Set a variable."""
        self.variables[name] = value if len(value) < _LONGEST_VALUE else UNKNOWN
