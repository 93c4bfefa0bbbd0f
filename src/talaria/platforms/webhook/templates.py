"""Templates for event texts: fields of the body and the headers, and no code.

``{{ commits.0.message }}`` is a field of the body, ``{{ headers.X-GitHub-Event }}`` a header, ``{{ body }}`` all of it.
After a bar, ``default "text"`` replaces missing values or null, and ``cut 80`` shortens long ones.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from talaria.core.errors import Refused

_FIELD = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PATH = re.compile(r"[\w@$-]+(?:\.[\w@$-]+)*")
_FILTER = re.compile(r"\|\s*(default|cut)\s*:?\s*(\"[^\"]*\"|\d+)\s*")
_PIECE = re.compile(r"\s*(\S+?)\s*((?:\|.*)?)", re.DOTALL)
_MISSING = object()


class Event(Struct, frozen=True):
    """A received event: headers by lower-case name, and the decoded body."""

    headers: Mapping[str, str]
    body: Any

    def find(self, path: str) -> str | None:
        """Return the value of a field, as text; ``None`` if there is none."""
        first, _, rest = path.partition(".")
        if first.lower() == "headers" and rest:
            return self.headers.get(rest.lower())
        if first == "body":
            return _format_value(_find_value(self.body, rest))
        return _format_value(_find_value(self.body, path))


class Rendered(Struct, frozen=True):
    """A text, and the fields that were missing."""

    text: str
    missing: tuple[str, ...] = ()


class _Field(Struct, frozen=True):
    path: str
    default: str | None = None
    longest: int = 0

    def render_value(self, event: Event) -> str | None:
        found = event.find(self.path)
        if found is None:
            return self.default
        return f"{found[: self.longest]}…" if 0 < self.longest < len(found) else found


class Template(Struct, frozen=True):
    """A text with fields in it."""

    pieces: tuple[str | _Field, ...]

    def render(self, event: Event) -> Rendered:
        """Fill in the event's values; missing ones are left out and reported."""
        texts, missing = [], []
        for piece in self.pieces:
            text = piece if isinstance(piece, str) else piece.render_value(event)
            if text is None and isinstance(piece, _Field):
                missing.append(piece.path)
            texts.append(text or "")
        return Rendered("".join(texts), tuple(missing))


def parse_template(source: str) -> Template:
    """Parse a template; raises `Refused` for invalid syntax."""
    pieces: list[str | _Field] = []
    end = 0
    for found in _FIELD.finditer(source):
        pieces += [source[end : found.start()], _parse_field(found[1])]
        end = found.end()
    pieces.append(source[end:])
    return Template(tuple(piece for piece in pieces if piece != ""))


def _parse_field(expression: str) -> _Field:
    found = _PIECE.fullmatch(expression)
    if found is None or not _PATH.fullmatch(found[1]):
        raise Refused(f"`{{{{{expression}}}}}` is not a field; write for example `{{{{ repository.name }}}}`")
    default, longest, end = None, 0, 0
    for one in _FILTER.finditer(found[2]):
        if one.start() != end or one[2].isdecimal() is (one[1] == "default"):
            break
        end = one.end()
        if one[1] == "default":
            default = one[2][1:-1]
        else:
            longest = int(one[2])
    if end != len(found[2]):
        raise Refused(f'in `{{{{{expression}}}}}` only `| default "text"` and `| cut 80` may follow the field')
    return _Field(found[1], default, longest)


def _find_value(value: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(part, _MISSING)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _MISSING
    return value


def _format_value(value: Any) -> str | None:
    if value is _MISSING or value is None:
        return None
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
