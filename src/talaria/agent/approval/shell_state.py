"""Shell state during analysis: variables, folder, functions, input; commands that run, and what simple ones print."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from tree_sitter import Node

from talaria.agent.approval.paths import UNKNOWN, PathRules

__all__ = [
    "FIND_FILTERS", "FOUND", "ITEMS", "NAME", "UNKNOWN", "Redirect", "ShellInput", "ShellState", "ShellWord",
    "SimpleCommand", "apply_builtin", "predict_output", "predict_pipeline_output",
]  # fmt: skip
NAME = "\x1a"  # stands for a number or a plain name: no slash, no space
ITEMS = "\x1d"  # separates the elements of an array
FOUND = "…"  # stands for a file below the preceding folder
_NUMBERS = frozenset({
    "RANDOM", "SRANDOM", "SECONDS", "LINENO", "UID", "EUID", "PPID", "BASHPID", "EPOCHSECONDS", "SHLVL", "HOSTTYPE",
    "OSTYPE",
})  # fmt: skip
_MAX_FOLDERS = 4
_MAX_VALUE_LENGTH = 10_000
_READS = frozenset({"read", "mapfile", "readarray", "getopts"})
_DECLARES = frozenset({"export", "declare", "typeset", "local", "readonly"})
_NAME_PRINTERS = frozenset(
    {
    "date", "wc", "nproc", "seq", "id", "whoami", "uname", "hostname", "uuidgen", "sha256sum", "md5sum", "sha1sum",
    "cksum", "arch", "tput", "expr", "logname",
}
)  # fmt: skip
_LISTS_FILES = (("git", {"ls-files", "--name-only"}), ("rg", {"-l", "--files", "--files-with-matches"}), ("fd", {"."}))
FIND_FILTERS = frozenset({
    "-name", "-iname", "-path", "-ipath", "-regex", "-mtime", "-mmin", "-empty", "-size", "-newer",
})  # fmt: skip


class ShellWord(Struct, frozen=True):
    """A word after expansion, with `UNKNOWN` for what the code doesn't determine.

    ``loose`` words may turn out to be several. ``sources`` are the programs whose output is part of it.
    """

    text: str
    quoted: bool = False
    loose: bool = False
    sources: tuple[str, ...] = ()


class ShellInput(Struct, frozen=True):
    """The standard input of a command: a pipe, a here-document or a file."""

    text: str = UNKNOWN
    sources: tuple[str, ...] = ()
    path: str = ""
    piped: bool = False


class Redirect(Struct, frozen=True):
    """A file opened for a command."""

    operator: str
    target: ShellWord


class SimpleCommand(Struct, frozen=True):
    """A program with its arguments after expansion.

    ``input`` is ``None`` if it gets no input; ``assignments`` apply to this command alone.
    """

    words: tuple[ShellWord, ...]
    redirects: tuple[Redirect, ...] = ()
    input: ShellInput | None = None
    assignments: tuple[tuple[str, str], ...] = ()

    @property
    def program(self) -> str:
        """Return the name of the program, without its folder."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments."""
        return tuple(word.text for word in self.words[1:])


class ShellState:
    """The known state of a shell at one point of its code.

    ``folders`` are all possible ones; ``None`` if unknown.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self.variables: dict[str, str] = {**environment, "IFS": " \t\n"}
        self.exported = set(environment)
        self.folders: tuple[Path, ...] | None = (folder,)
        self.functions: dict[str, tuple[Node, ...]] = {}
        self.arguments: tuple[str, ...] | None = None
        self.script = UNKNOWN
        self.input: ShellInput | None = None

    def copy(self) -> "ShellState":
        """Return an independent copy."""
        copied = ShellState({}, Path())
        copied.__dict__.update(self.__dict__)
        copied.variables, copied.exported = dict(self.variables), set(self.exported)
        copied.functions = dict(self.functions)
        return copied

    def copy_for_child(self) -> "ShellState":
        """Return the state of a child shell: it sees exported variables."""
        copied = self.copy()
        copied.variables = {name: value if name in self.exported else UNKNOWN for name, value in self.variables.items()}
        copied.variables["IFS"] = " \t\n"
        copied.arguments = None
        return copied

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
        """Change to one of some folders."""
        self.folders = folders if folders is not None and len(folders) <= _MAX_FOLDERS else None

    def get_value(self, name: str) -> str:
        """Return the value of a variable or parameter, `UNKNOWN` if the code doesn't determine it."""
        if name in ("@", "*"):
            return UNKNOWN if self.arguments is None else ITEMS.join(self.arguments)
        if name == "0":
            return self.script
        if name.isdigit():
            positional = self.arguments
            return UNKNOWN if positional is None else positional[int(name) - 1] if int(name) <= len(positional) else ""
        if name in _NUMBERS or name in tuple("#?$!-"):
            return NAME
        if name == "PWD":
            return str(self.folders[0]) if self.folders and len(self.folders) == 1 else UNKNOWN
        return self.variables.get(name, UNKNOWN)

    def assign(self, name: str, value: str) -> None:
        """Set a variable."""
        self.variables[name] = value if len(value) < _MAX_VALUE_LENGTH else UNKNOWN


def apply_builtin(state: ShellState, command: SimpleCommand, path_rules: PathRules) -> None:
    """Apply the effect of a builtin; other programs change nothing."""
    program, words = command.program, command.arguments
    if program in ("cd", "pushd"):
        _change_folder(state, words, path_rules)
    elif program == "popd":
        state.folders = None
    elif program in _READS:
        _read_variables(state, command)
    elif program in _DECLARES:
        _declare(state, words)
    elif program == "unset":
        for name in words:
            state.variables[name] = UNKNOWN
    elif program == "printf" and words[:1] == ("-v",) and len(words) > 1:
        state.assign(words[1].partition("[")[0], UNKNOWN)
    elif program == "shift":
        state.arguments = None
    elif program == "set" and "--" in words:
        loose = any(word.loose for word in command.words)
        state.arguments = None if loose else words[words.index("--") + 1 :]


def predict_output(command: SimpleCommand, state: ShellState) -> str:
    """Return the output of a command: text, a path with ``…`` for files below it, or a mark if unknown."""
    plain = [text for text in command.arguments if not text.startswith("-")]
    match command.program:
        case "echo":
            return _predict_echo(command)
        case "printf":
            return _predict_printf(command.arguments)
        case "pwd":
            return state.get_value("PWD")
        case "basename" if plain and UNKNOWN not in plain[0]:
            return Path(plain[0]).name.removesuffix(plain[1] if plain[1:] else "")
        case "dirname" if plain and UNKNOWN not in plain[0]:
            return str(Path(plain[0]).parent)
        case "cat" if not plain and command.input is not None:
            return command.input.text
        case "git" if plain[:1] == ["rev-parse"] and "--show-toplevel" not in command.arguments:
            return NAME
        case name if name in _NAME_PRINTERS:
            return NAME
    return _predict_listing(command, plain)


def predict_pipeline_output(commands: Sequence[SimpleCommand], state: ShellState) -> str:
    """Return the output of a pipeline: a name if its last command prints nothing else."""
    text = predict_output(commands[-1], state) if commands else UNKNOWN
    return text if text == NAME else UNKNOWN


def _change_folder(state: ShellState, words: tuple[str, ...], path_rules: PathRules) -> None:
    """Change the folder; if it may not exist, the shell may also stay."""
    plain = [text for text in words if not re.match(r"-[LPe@]+$|--$", text)]
    where = plain[0] if plain else state.get_value("HOME")
    if where == "-" or (state.folders is None and not where.startswith("/")):
        state.folders = None
        return
    found: list[Path] = []
    for folder in state.folders or (path_rules.folder,):
        paths = path_rules.resolve_paths(where, folder)
        if paths is None:
            state.folders = None
            return
        found.append(paths[0])
    is_sure = all(path.is_dir() for path in found)
    state.enter(tuple(dict.fromkeys((*found, *(() if is_sure else state.folders or ())))))


def _read_variables(state: ShellState, command: SimpleCommand) -> None:
    """Set the variables read from the input: files below a folder if it is a list of those."""
    stdin = command.input
    listed = stdin is not None and UNKNOWN not in stdin.text and stdin.text.endswith((FOUND, "/*"))
    text = stdin.text if stdin is not None and listed else UNKNOWN
    names = [name for name in command.arguments if re.fullmatch(r"[A-Za-z_]\w*", name)]
    for name in names or ["REPLY", "MAPFILE"]:
        state.assign(name, text if len(names) == 1 else UNKNOWN)


def _declare(state: ShellState, words: tuple[str, ...]) -> None:
    for text in words:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            state.assign(name, value)
        if name.isidentifier():
            state.exported.add(name)


def _predict_echo(command: SimpleCommand) -> str:
    words = list(command.arguments)
    while words and words[0] in ("-n", "-e", "-E", "-ne", "-en"):
        escapes = "e" in words.pop(0)
        if escapes and any("\\" in word for word in words):
            return UNKNOWN
    return UNKNOWN if any(word.loose for word in command.words) else " ".join(words)


def _predict_printf(arguments: tuple[str, ...]) -> str:
    """Return the output of printf for the simplest formats."""
    if not arguments or arguments[0] == "-v":
        return UNKNOWN
    template = arguments[0].removesuffix("\\n")
    if len(arguments) == 1 and "%" not in template and "\\" not in template:
        return template
    return arguments[1] if template == "%s" and len(arguments) == 2 else UNKNOWN


def _predict_listing(command: SimpleCommand, plain: list[str]) -> str:
    """Return what a program lists: everything in a folder, or below it."""
    program, words = command.program, command.arguments
    start = plain[0] if plain else "."
    if program == "find" and not {"-printf", "-exec", "-execdir", "-ls", "-fprintf"} & set(words):
        start = start if start[:1] not in "(!" else "."
        return f"{start}/{FOUND}" if FIND_FILTERS & set(words) else start
    if program == "ls" and len(plain) < 2 and not any(word.startswith("-") and "l" in word for word in words):
        return f"{start}/*"
    if any(program == name and needed & set(words) for name, needed in _LISTS_FILES):
        return f"./{FOUND}"
    if program == "grep" and any(word.startswith("-") and not word.startswith("--") and "l" in word for word in words):
        folder = plain[1] if plain[1:] else "."
        return UNKNOWN if len(plain) > 2 else f"{folder}/{FOUND}"
    if program == "mktemp" and not plain and not {"-p", "--tmpdir", "-t"} & set(words):
        return f"/tmp/tmp.{NAME}"  # noqa: S108 -- what mktemp prints
    return UNKNOWN
