"""Find the line of every key in a TOML text."""

import re
import tomllib

KeyPath = tuple[str | int, ...]

_NOTHING = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SEPARATORS = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*")
_KEY_PART = re.compile(r"[ \t]*(?:([A-Za-z0-9_-]+)|(\"(?:\\.|[^\"\\])*\"|'[^']*'))[ \t]*")
_SCALAR = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'"
    r"|[^,\]}\n#]*",
    re.DOTALL,
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Map each key of a valid TOML text to the line on which it first stands, counted from 1.

    A table is a key like any other; the items of a list are keys that end in their index.
    """
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counted = 0
        self._line = 1
        self._lines: dict[KeyPath, int] = {}
        self._last_index: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self._skip(_NOTHING)
        while self._at < len(self._text):
            if self._next("["):
                table = self._header()
            else:
                self._pair(table)
            self._skip(_NOTHING)
        return self._lines

    def _header(self) -> KeyPath:
        many = self._next("[")
        start = self._at
        *outer, last = self._key()
        table: KeyPath = ()
        for part in outer:
            table = self._entered((*table, part), start)
        table = (*table, last)
        if many:
            self._last_index[table] = self._last_index.get(table, -1) + 1
        self._next("]")
        self._next("]")
        return self._entered(table, start)

    def _entered(self, table: KeyPath, at: int) -> KeyPath:
        self._note(table, at)
        if table in self._last_index:
            table = (*table, self._last_index[table])
            self._note(table, at)
        return table

    def _pair(self, table: KeyPath) -> None:
        start = self._at
        for part in self._key():
            table = (*table, part)
            self._note(table, start)
        self._next("=")
        self._value(table)

    def _value(self, path: KeyPath) -> None:
        self._skip(_NOTHING)
        if self._next("["):
            self._list(path)
        elif self._next("{"):
            self._inline_table(path)
        else:
            self._skip(_SCALAR)

    def _list(self, path: KeyPath) -> None:
        self._skip(_SEPARATORS)
        index = 0
        while not self._next("]"):
            self._note((*path, index), self._at)
            self._value((*path, index))
            self._skip(_SEPARATORS)
            index += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._skip(_SEPARATORS)
        while not self._next("}"):
            self._pair(path)
            self._skip(_SEPARATORS)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while not parts or self._next("."):
            found = _KEY_PART.match(self._text, self._at)
            if found is None:
                raise ValueError(f"no key at character {self._at}")
            self._at = found.end()
            bare, quoted = found.groups()
            parts.append(bare or tomllib.loads(f"key = {quoted}")["key"])
        return parts

    def _next(self, character: str) -> bool:
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        return True

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _note(self, path: KeyPath, at: int) -> None:
        if at > self._counted:
            self._line += self._text.count("\n", self._counted, at)
            self._counted = at
        self._lines.setdefault(path, self._line)
