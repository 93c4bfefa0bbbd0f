"""A small language for texts about an event: places in its body and its headers, and nothing that runs.

``{{ commits.0.message }}`` is a place in the body, ``{{ headers.X-GitHub-Event }}`` a header, ``{{ body }}`` all of it.
Behind a bar stand ``default "text"`` for what is missing or null, and ``cut 80`` for what is too long.
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
    """What arrived: headers by their names in small letters, and the body as it could be read."""

    headers: Mapping[str, str]
    body: Any

    def find(self, path: str) -> str | None:
        """Return what stands at a place, as text; ``None`` where there is nothing."""
        first, _, rest = path.partition(".")
        if first.lower() == "headers" and rest:
            return self.headers.get(rest.lower())
        if first == "body":
            return _text(_walk(self.body, rest))
        return _text(_walk(self.body, path))


class Rendered(Struct, frozen=True):
    """A text, and the places that it wanted and did not find."""

    text: str
    missing: tuple[str, ...] = ()


class _Field(Struct, frozen=True):
    path: str
    default: str | None = None
    longest: int = 0

    def shown(self, event: Event) -> str | None:
        found = event.find(self.path)
        if found is None:
            return self.default
        return f"{found[: self.longest]}…" if 0 < self.longest < len(found) else found


class Template(Struct, frozen=True):
    """A text with places in it."""

    pieces: tuple[str | _Field, ...]

    def render(self, event: Event) -> Rendered:
        """Fill in what the event has; what is missing is left out, and told."""
        texts, missing = [], []
        for piece in self.pieces:
            text = piece if isinstance(piece, str) else piece.shown(event)
            if text is None and isinstance(piece, _Field):
                missing.append(piece.path)
            texts.append(text or "")
        return Rendered("".join(texts), tuple(missing))


def read_template(source: str) -> Template:
    """Take a template apart; raises `Refused` with what is not understood in it."""
    pieces: list[str | _Field] = []
    end = 0
    for found in _FIELD.finditer(source):
        pieces += [source[end : found.start()], _field(found[1])]
        end = found.end()
    pieces.append(source[end:])
    return Template(tuple(piece for piece in pieces if piece != ""))


def _field(words: str) -> _Field:
    found = _PIECE.fullmatch(words)
    if found is None or not _PATH.fullmatch(found[1]):
        raise Refused(f"`{{{{{words}}}}}` names no place; write it such as `{{{{ repository.name }}}}`")
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
        raise Refused(f'in `{{{{{words}}}}}` only `| default "text"` and `| cut 80` may stand behind the place')
    return _Field(found[1], default, longest)


def _walk(value: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(part, _MISSING)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _MISSING
    return value


def _text(value: Any) -> str | None:
    if value is _MISSING or value is None:
        return None
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
