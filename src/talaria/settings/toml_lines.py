"""Line numbers of the keys in a TOML text."""

import re
import tomllib

KeyPath = tuple[str | int, ...]

_BLANKS = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
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
    """Return the line, counted from 1, on which each key of a valid TOML text first appears.

    Tables are keys too; the items of a list have keys that end in their index.
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
        self._skip(_BLANKS)
        while self._at < len(self._text):
            if self._accept("["):
                table = self._read_header()
            else:
                self._read_pair(table)
            self._skip(_BLANKS)
        return self._lines

    def _read_header(self) -> KeyPath:
        is_array = self._accept("[")
        start = self._at
        *outer, last = self._read_key()
        table: KeyPath = ()
        for part in outer:
            table = self._enter_table((*table, part), start)
        table = (*table, last)
        if is_array:
            self._last_index[table] = self._last_index.get(table, -1) + 1
        self._accept("]")
        self._accept("]")
        return self._enter_table(table, start)

    def _enter_table(self, table: KeyPath, at: int) -> KeyPath:
        self._record_line(table, at)
        if table in self._last_index:
            table = (*table, self._last_index[table])
            self._record_line(table, at)
        return table

    def _read_pair(self, table: KeyPath) -> None:
        start = self._at
        for part in self._read_key():
            table = (*table, part)
            self._record_line(table, start)
        self._accept("=")
        self._read_value(table)

    def _read_value(self, path: KeyPath) -> None:
        self._skip(_BLANKS)
        if self._accept("["):
            self._read_list(path)
        elif self._accept("{"):
            self._read_inline_table(path)
        else:
            self._skip(_SCALAR)

    def _read_list(self, path: KeyPath) -> None:
        self._skip(_SEPARATORS)
        index = 0
        while not self._accept("]"):
            self._record_line((*path, index), self._at)
            self._read_value((*path, index))
            self._skip(_SEPARATORS)
            index += 1

    def _read_inline_table(self, path: KeyPath) -> None:
        self._skip(_SEPARATORS)
        while not self._accept("}"):
            self._read_pair(path)
            self._skip(_SEPARATORS)

    def _read_key(self) -> list[str]:
        parts: list[str] = []
        while not parts or self._accept("."):
            found = _KEY_PART.match(self._text, self._at)
            if found is None:
                raise ValueError(f"no key at character {self._at}")
            self._at = found.end()
            bare, quoted = found.groups()
            parts.append(bare or tomllib.loads(f"key = {quoted}")["key"])
        return parts

    def _accept(self, character: str) -> bool:
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        return True

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _record_line(self, path: KeyPath, at: int) -> None:
        if at > self._counted:
            self._line += self._text.count("\n", self._counted, at)
            self._counted = at
        self._lines.setdefault(path, self._line)
