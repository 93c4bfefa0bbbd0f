"""Walk the files of a project by the rules of its .gitignore files, with expressions matched in linear time."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

ALWAYS_IGNORED = {".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv"}
_MOST_MEMORY = 8 << 20
_TRANSLATED = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class PatternInvalid(ValueError):
    """The text is not a regular expression that RE2 accepts."""


class LinearPattern:
    """A compiled expression, matched in time linear to the text; raises `PatternInvalid` for invalid text.

    Python's `re` backtracks: one pattern and a line of 40 characters can hold the interpreter lock forever. RE2 can't;
    it has neither lookaround nor backreferences, like ripgrep.
    """

    def __init__(self, pattern: str) -> None:
        import re2  # noqa: PLC0415 (a library in C, for searches only)

        options = re2.Options()
        options.log_errors, options.never_capture, options.max_mem = False, True, _MOST_MEMORY
        try:
            self._compiled: Any = re2.compile(_replace_surrogates(pattern), options)
        except re2.error as error:
            reason = error.args[0].decode("utf-8", "replace") if error.args else "it is invalid"
            raise PatternInvalid(reason) from error

    def occurs_in(self, text: str) -> bool:
        """Return whether some part of the text matches."""
        return self._compiled.search(_replace_surrogates(text)) is not None

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches."""
        return self._compiled.fullmatch(_replace_surrogates(text)) is not None


class Rule(Struct, frozen=True):
    """One line of a .gitignore file in ``folder``."""

    folder: Path
    expression: LinearPattern
    folders_only: bool
    shown: bool


def is_ignored(path: Path, rules: Sequence[Rule], *, is_folder: bool) -> bool:
    """Return whether the last matching rule ignores a path; rules of outer folders come first."""
    if path.name in ALWAYS_IGNORED:
        return True
    ignored = False
    for rule in rules:
        if rule.folders_only and not is_folder:
            continue
        if rule.expression.matches(path.relative_to(rule.folder).as_posix()):
            ignored = not rule.shown
    return ignored


def read_rules(folder: Path) -> tuple[Rule, ...]:
    """Return the rules in a folder's own .gitignore."""
    try:
        lines = (folder / ".gitignore").read_text(errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(rule for line in lines if (rule := _parse_rule(folder, line)) is not None)


def read_outer_rules(folder: Path) -> tuple[Rule, ...]:
    """Return the rules of the outer folders of the same repository, outermost first."""
    if (folder / ".git").exists():
        return ()
    outer: list[Path] = []
    for parent in folder.parents:
        outer.insert(0, parent)
        if (parent / ".git").exists():
            return tuple(rule for one in outer for rule in read_rules(one))
    return ()


def translate_glob(pattern: str) -> str:
    """Return a regular expression for a glob in which ``**`` spans folders and ``*`` does not."""
    out, index = "", 0
    while index < len(pattern):
        token = _read_token(pattern, index)
        out += _TRANSLATED.get(token) or (
            _translate_brackets(token) if token.startswith("[") else re.escape(token[-1:])
        )
        index += len(token)
    return out


def _read_token(pattern: str, index: int) -> str:
    for token in _TRANSLATED:
        if pattern.startswith(token, index):
            return token
    if pattern[index] == "[" and (end := pattern.find("]", index + 2)) > 0:
        return pattern[index : end + 1]
    return pattern[index : index + 2] if pattern[index] == "\\" else pattern[index]


def _translate_brackets(token: str) -> str:
    inside = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
    return f"[^{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"


def _parse_rule(folder: Path, line: str) -> Rule | None:
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    shown = text.startswith("!")
    text = text.removeprefix("!")
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    try:
        expression = LinearPattern(translate_glob(("" if anchored else "**/") + text.lstrip("/")))
    except ValueError:
        return None
    return Rule(folder, expression, folders_only, shown)


class Entry(Struct, frozen=True):
    """A file or folder and its depth below the start; links are not followed."""

    path: Path
    depth: int
    is_folder: bool
    size: int


def walk(folder: Path, *, depth: int | None = None) -> Iterator[Entry]:
    """Yield the content of a folder, each folder before its content, down to ``depth`` levels."""
    yield from _walk(folder, (*read_outer_rules(folder),), 1, depth)


def _walk(folder: Path, outer: tuple[Rule, ...], level: int, depth: int | None) -> Iterator[Entry]:
    rules = (*outer, *read_rules(folder))
    for found in _list_folder(folder):
        path = Path(found.path)
        is_folder = found.is_dir(follow_symlinks=False)
        if is_ignored(path, rules, is_folder=is_folder):
            continue
        yield Entry(path, level, is_folder, 0 if is_folder else _read_size(found))
        if is_folder and (depth is None or level < depth):
            yield from _walk(path, rules, level + 1, depth)


def _list_folder(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except PermissionError:
        return []


def _read_size(found: "os.DirEntry[str]") -> int:
    try:
        return found.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def _replace_surrogates(text: str) -> str:
    """Return the text without lone surrogates, which file names may contain and UTF-8 can't."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
