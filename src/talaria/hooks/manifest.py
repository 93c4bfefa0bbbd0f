"""Read HOOK.yaml: a few named values and lists in the plain part of YAML, each fault with its line."""

import difflib
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct

from talaria.contracts.hooks import (
    AGENT_END,
    AGENT_START,
    AGENT_STEP,
    COMMAND,
    GATEWAY_START,
    SESSION_END,
    SESSION_RESET,
    SESSION_START,
)
from talaria.core.errors import TalariaError

MANIFEST = "HOOK.yaml"
EVENTS = (GATEWAY_START, SESSION_START, SESSION_END, SESSION_RESET, AGENT_START, AGENT_STEP, AGENT_END)
SECONDS = 30.0
_MOST_SECONDS = 3600.0

_FIELD = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_BLOCK = re.compile(r"[|>][+-]?[ \t]*(#.*)?")
_COMMENT = re.compile(r"(?:^|(?<![ \t])[ \t]+)#.*$")
_YES, _NO = {"true", "yes", "on"}, {"false", "no", "off"}


class BrokenHook(TalariaError):
    """A hook cannot be used; the message names the file, the line and what is wrong there."""

    def __init__(self, file: Path, line: int, why: str) -> None:
        super().__init__(f"{file}, line {line}: {why}")


class Manifest(Struct, frozen=True, kw_only=True):
    """What a hook says of itself; ``run`` is a command, empty where handler.py is what handles its events."""

    name: str
    events: tuple[str, ...]
    description: str = ""
    enabled: bool = True
    timeout_seconds: float = SECONDS
    run: str = ""

    def hears(self, event: str) -> bool:
        """Tell whether this event is one of those it listens for."""
        return any(fnmatchcase(event, pattern) for pattern in self.events)


class _Field(Struct, frozen=True):
    """A value as it is written, or the items of a list, with their lines."""

    line: int
    values: list[tuple[int, str]]
    is_list: bool = False


def read_manifest(file: Path) -> Manifest:
    """Return what a HOOK.yaml says, or raise `BrokenHook`."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenHook(file, 1, f"it cannot be read: {error}.") from error
    try:
        return Manifest(**{"name": file.parent.name, **_read(text)})
    except _Fault as fault:
        raise BrokenHook(file, fault.line, fault.why) from None


class _Fault(Exception):
    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


def _read(text: str) -> dict[str, Any]:
    read = {name: _READERS[name](field) for name, field in _fields(text)}
    if "events" not in read:
        raise _Fault(1, "`events:` is missing, the list of what it listens for.")
    return read


def _fields(text: str) -> Iterator[tuple[str, _Field]]:
    """Yield each name with what stands behind and below it."""
    seen: set[str] = set()
    for name, line, value, below in _sections(text):
        if name not in _READERS:
            near = difflib.get_close_matches(name, _READERS, n=1)
            raise _Fault(line, f"`{name}` is not known; " + (f"did you mean `{near[0]}`?" if near else _KNOWN))
        if name in seen:
            raise _Fault(line, f"`{name}` stands here a second time.")
        seen.add(name)
        yield name, _field(line, value, below)


def _sections(text: str) -> Iterator[tuple[str, int, str, list[tuple[int, str]]]]:
    """Yield each name with its line, what stands behind it, and the lines below that belong to it."""
    name, begun, value, below = "", 0, "", list[tuple[int, str]]()
    for number, line in enumerate(text.splitlines(), 1):
        found = _FIELD.fullmatch(line.rstrip())
        if found:
            if name:
                yield name, begun, value, below
            name, begun, value, below = found[1], number, found[2] or "", []
        elif name and (line[:1].isspace() or _ITEM.fullmatch(line) or not line.strip()):
            below.append((number, line))
        elif line.strip() not in {"", "---"} and not line.startswith("#"):
            raise _Fault(number, "this is neither `name: value` nor an item of a list (`- item`).")
    if name:
        yield name, begun, value, below


def _field(line: int, value: str, below: list[tuple[int, str]]) -> _Field:
    if _BLOCK.fullmatch(value):
        return _Field(line, [(line, _block(value[0], [text for _, text in below]))])
    value = _bare(line, value)
    if value.startswith("["):
        if not value.endswith("]"):
            raise _Fault(line, "a list that begins with `[` ends with `]` in the same line.")
        items = [(line, _bare(line, item.strip())) for item in value[1:-1].split(",")]
        return _Field(line, [item for item in items if item[1]], is_list=True)
    rest = [(number, text) for number, text in below if _COMMENT.sub("", text).strip()]
    if not value and rest:
        return _Field(line, [(number, _item(number, text)) for number, text in rest], is_list=True)
    if rest:
        raise _Fault(rest[0][0], "this line belongs to nothing; a text of several lines stands behind `|`.")
    return _Field(line, [(line, value)])


def _item(line: int, text: str) -> str:
    found = _ITEM.fullmatch(text.rstrip())
    if found is None:
        raise _Fault(line, "this is no item of a list (`- item`).")
    return _bare(line, found[1])


def _block(mark: str, lines: list[str]) -> str:
    """Return the lines of a text below ``|`` or ``>``, without the indentation that they share."""
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return ("\n" if mark == "|" else " ").join(line[depth:].rstrip() for line in lines).strip()


def _bare(line: int, value: str) -> str:
    """Return a value without its quotes, or without the comment behind it."""
    quote = value[:1]
    if quote not in {'"', "'"}:
        return _COMMENT.sub("", value).strip()
    inside, closed, rest = value[1:].partition(quote)
    if not closed or _COMMENT.sub("", rest).strip():
        raise _Fault(line, f"a text that begins with {quote} ends with it, with none of them inside.")
    return inside


def _text(field: _Field) -> str:
    if field.is_list:
        raise _Fault(field.line, "a text was expected, not a list.")
    return field.values[0][1]


def _name(field: _Field) -> str:
    name = _text(field)
    if not _NAME.fullmatch(name):
        raise _Fault(field.line, f"`{name}` is no name: letters, digits, `-`, `_` and `.` make one, 64 at most.")
    return name


def _flag(field: _Field) -> bool:
    word = _text(field).lower()
    if word not in _YES | _NO:
        raise _Fault(field.line, f"`{word}` is neither true nor false.")
    return word in _YES


def _seconds(field: _Field) -> float:
    word = _text(field)
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise _Fault(field.line, f"`{word}` is no number of seconds between 0 and {_MOST_SECONDS:g}.")
    return seconds


def _patterns(field: _Field) -> tuple[str, ...]:
    patterns = [(line, value) for line, value in field.values if value]
    if not patterns:
        raise _Fault(field.line, "`events:` names no event.")
    for line, pattern in patterns:
        if not pattern.startswith(COMMAND) and not any(fnmatchcase(event, pattern) for event in EVENTS):
            near = difflib.get_close_matches(pattern, EVENTS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(EVENTS)} and {COMMAND}NAME."
            raise _Fault(line, f"no event is called `{pattern}`; {hint}")
    return tuple(value for _, value in patterns)


_READERS: dict[str, Callable[[_Field], Any]] = {
    "name": _name,
    "description": _text,
    "events": _patterns,
    "enabled": _flag,
    "timeout_seconds": _seconds,
    "run": _text,
}
_KNOWN = f"there are {', '.join(_READERS)}."
