"""Builtins of the shell that change its state: folder, variables, parameters."""

import re
from pathlib import Path

from talaria.agent.approval.places import Places
from talaria.agent.approval.shell_state import FOUND, UNKNOWN, ShellState, SimpleCommand

_READS = frozenset({"read", "mapfile", "readarray", "getopts"})
_DECLARES = frozenset({"export", "declare", "typeset", "local", "readonly"})


def apply_builtin(state: ShellState, command: SimpleCommand, places: Places) -> None:
    """Change the state as a builtin does; other programs change nothing."""
    program, words = command.program, command.arguments
    if program in ("cd", "pushd"):
        _move(state, words, places)
    elif program == "popd":
        state.folders = None
    elif program in _READS:
        _fill(state, command)
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


def _move(state: ShellState, words: tuple[str, ...], places: Places) -> None:
    """Go to a folder; where it may not be there, the shell may as well stay."""
    plain = [text for text in words if not re.match(r"-[LPe@]+$|--$", text)]
    where = plain[0] if plain else state.value("HOME")
    if where == "-" or (state.folders is None and not where.startswith("/")):
        state.folders = None
        return
    found: list[Path] = []
    for folder in state.folders or (places.folder,):
        paths = places.paths(where, folder)
        if paths is None:
            state.folders = None
            return
        found.append(paths[0])
    is_sure = all(path.is_dir() for path in found)
    state.enter(tuple(dict.fromkeys((*found, *(() if is_sure else state.folders or ())))))


def _fill(state: ShellState, command: SimpleCommand) -> None:
    """Set the variables that are read from the input: files below a folder where it is a list of those."""
    fed = command.input
    listed = fed is not None and UNKNOWN not in fed.text and fed.text.endswith((FOUND, "/*"))
    text = fed.text if fed is not None and listed else UNKNOWN
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
