"""Parser for HOOK.yaml: scalars and lists in a subset of YAML; errors name the line."""

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
DEFAULT_TIMEOUT = 30.0
_MAX_SECONDS = 3600.0

_FIELD = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_BLOCK = re.compile(r"[|>][+-]?[ \t]*(#.*)?")
_COMMENT = re.compile(r"(?:^|(?<![ \t])[ \t]+)#.*$")
_TRUE_WORDS, _FALSE_WORDS = {"true", "yes", "on"}, {"false", "no", "off"}


class BrokenHook(TalariaError):
    """Error of an invalid hook; the message names the file, the line and the problem."""

    def __init__(self, file: Path, line: int, why: str) -> None:
        super().__init__(f"{file}, line {line}: {why}")


class HookManifest(Struct, frozen=True, kw_only=True):
    """Content of HOOK.yaml; ``run`` is a command, empty if handler.py handles the events."""

    name: str
    events: tuple[str, ...]
    description: str = ""
    enabled: bool = True
    timeout_seconds: float = DEFAULT_TIMEOUT
    run: str = ""

    def hears(self, event: str) -> bool:
        """Return whether the hook listens for this event."""
        return any(fnmatchcase(event, pattern) for pattern in self.events)


class _Field(Struct, frozen=True):
    """A raw value, or the items of a list, with their lines."""

    line: int
    values: list[tuple[int, str]]
    is_list: bool = False


def read_manifest(file: Path) -> HookManifest:
    """Parse a HOOK.yaml, or raise `BrokenHook`."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenHook(file, 1, f"it can't be read: {error}.") from error
    try:
        return HookManifest(**{"name": file.parent.name, **_parse(text)})
    except _ManifestError as fault:
        raise BrokenHook(file, fault.line, fault.why) from None


class _ManifestError(Exception):
    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


def _parse(text: str) -> dict[str, Any]:
    read = {name: _PARSERS[name](field) for name, field in _iterate_fields(text)}
    if "events" not in read:
        raise _ManifestError(1, "`events:` is missing: list the events it listens for.")
    return read


def _iterate_fields(text: str) -> Iterator[tuple[str, _Field]]:
    """Yield each field name with its parsed value."""
    seen: set[str] = set()
    for name, line, value, block_lines in _split_sections(text):
        if name not in _PARSERS:
            suggestions = difflib.get_close_matches(name, _PARSERS, n=1)
            raise _ManifestError(
                line,
                f"unknown field `{name}`; " + (f"did you mean `{suggestions[0]}`?" if suggestions else _KNOWN_FIELDS),
            )
        if name in seen:
            raise _ManifestError(line, f"`{name}` appears twice.")
        seen.add(name)
        yield name, _parse_field(line, value, block_lines)


def _split_sections(text: str) -> Iterator[tuple[str, int, str, list[tuple[int, str]]]]:
    """Yield each field name with its line number, the value on that line, and the lines below it."""
    name, start_line, value, block_lines = "", 0, "", list[tuple[int, str]]()
    for number, line in enumerate(text.splitlines(), 1):
        found = _FIELD.fullmatch(line.rstrip())
        if found:
            if name:
                yield name, start_line, value, block_lines
            name, start_line, value, block_lines = found[1], number, found[2] or "", []
        elif name and (line[:1].isspace() or _ITEM.fullmatch(line) or not line.strip()):
            block_lines.append((number, line))
        elif line.strip() not in {"", "---"} and not line.startswith("#"):
            raise _ManifestError(number, "this is neither `name: value` nor a list item (`- item`).")
    if name:
        yield name, start_line, value, block_lines


def _parse_field(line: int, value: str, block_lines: list[tuple[int, str]]) -> _Field:
    if _BLOCK.fullmatch(value):
        return _Field(line, [(line, _join_block(value[0], [text for _, text in block_lines]))])
    value = _unquote(line, value)
    if value.startswith("["):
        if not value.endswith("]"):
            raise _ManifestError(line, "a list that starts with `[` must end with `]` on the same line.")
        items = [(line, _unquote(line, item.strip())) for item in value[1:-1].split(",")]
        return _Field(line, [item for item in items if item[1]], is_list=True)
    rest = [(number, text) for number, text in block_lines if _COMMENT.sub("", text).strip()]
    if not value and rest:
        return _Field(line, [(number, _parse_item(number, text)) for number, text in rest], is_list=True)
    if rest:
        raise _ManifestError(rest[0][0], "this line belongs to no field; start text of several lines with `|`.")
    return _Field(line, [(line, value)])


def _parse_item(line: int, text: str) -> str:
    found = _ITEM.fullmatch(text.rstrip())
    if found is None:
        raise _ManifestError(line, "this isn't a list item (`- item`).")
    return _unquote(line, found[1])


def _join_block(mark: str, lines: list[str]) -> str:
    """Join the lines of a block scalar (``|`` or ``>``), without their common indentation."""
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return ("\n" if mark == "|" else " ").join(line[depth:].rstrip() for line in lines).strip()


def _unquote(line: int, value: str) -> str:
    """Return a value without its quotes or its trailing comment."""
    quote = value[:1]
    if quote not in {'"', "'"}:
        return _COMMENT.sub("", value).strip()
    inside, closed, rest = value[1:].partition(quote)
    if not closed or _COMMENT.sub("", rest).strip():
        raise _ManifestError(line, f"text that starts with {quote} must end with it and contain no other.")
    return inside


def _parse_text(field: _Field) -> str:
    if field.is_list:
        raise _ManifestError(field.line, "this must be text, not a list.")
    return field.values[0][1]


def _parse_name(field: _Field) -> str:
    name = _parse_text(field)
    if not _NAME.fullmatch(name):
        raise _ManifestError(
            field.line, f"`{name}` isn't a valid name: use at most 64 letters, digits, `-`, `_` and `.`."
        )
    return name


def _parse_flag(field: _Field) -> bool:
    word = _parse_text(field).lower()
    if word not in _TRUE_WORDS | _FALSE_WORDS:
        raise _ManifestError(field.line, f"`{word}` is neither `true` nor `false`.")
    return word in _TRUE_WORDS


def _parse_seconds(field: _Field) -> float:
    word = _parse_text(field)
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_SECONDS:
        raise _ManifestError(field.line, f"`{word}` isn't a number of seconds between 0 and {_MAX_SECONDS:g}.")
    return seconds


def _parse_patterns(field: _Field) -> tuple[str, ...]:
    patterns = [(line, value) for line, value in field.values if value]
    if not patterns:
        raise _ManifestError(field.line, "`events:` is empty.")
    for line, pattern in patterns:
        if not pattern.startswith(COMMAND) and not any(fnmatchcase(event, pattern) for event in EVENTS):
            suggestions = difflib.get_close_matches(pattern, EVENTS, n=1)
            hint = (
                f"did you mean `{suggestions[0]}`?"
                if suggestions
                else f"available: {', '.join(EVENTS)} and {COMMAND}NAME."
            )
            raise _ManifestError(line, f"there is no event `{pattern}`; {hint}")
    return tuple(value for _, value in patterns)


_PARSERS: dict[str, Callable[[_Field], Any]] = {
    "name": _parse_name,
    "description": _parse_text,
    "events": _parse_patterns,
    "enabled": _parse_flag,
    "timeout_seconds": _parse_seconds,
    "run": _parse_text,
}
_KNOWN_FIELDS = f"there are {', '.join(_PARSERS)}."
