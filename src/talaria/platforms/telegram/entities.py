"""Text with marks as Telegram has it: ranges counted in UTF-16 code units."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

Kind = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]

# Telegram ignores what comes after so many; code and addresses would be missed most.
MOST_ENTITIES = 100
_DISPENSABLE = ("bold", "italic", "strikethrough")


class Style(Struct, frozen=True):
    """A mark on a piece of text; ``serial`` keeps two blocks of one kind apart."""

    kind: Kind
    value: str = ""
    serial: int = 0


class Run(Struct, frozen=True):
    """A piece of text with the marks on all of it."""

    text: str
    styles: frozenset[Style] = frozenset()


class Entity(Struct, frozen=True):
    """A mark on a range of a text; ``value`` is a link's address or a block's language."""

    kind: Kind
    offset: int
    length: int
    value: str = ""


class Formatted(Struct, frozen=True):
    """A text as Telegram takes it."""

    text: str
    entities: tuple[Entity, ...] = ()


def utf16_length(text: str) -> int:
    """Return how many UTF-16 code units a text has."""
    return len(text) + sum(character > "\uffff" for character in text)


def assemble(runs: Sequence[Run]) -> Formatted:
    """Put runs together; white space at either end of a mark is left out of it."""
    text = "".join(run.text for run in runs)
    places = _utf16_places(text)
    entities = []
    for style, start, end in _ranges(runs):
        marked = text[start:end]
        first = start if style.kind == "pre" else end - len(marked.lstrip())
        behind = start + len(marked.rstrip())
        if behind > first:
            entities.append(Entity(style.kind, places[first], places[behind] - places[first], style.value))
    return Formatted(text, tuple(sorted(_indispensable(entities), key=lambda one: (one.offset, -one.length))))


def _utf16_places(text: str) -> list[int]:
    places = [0]
    for character in text:
        places.append(places[-1] + (2 if character > "\uffff" else 1))
    return places


def _ranges(runs: Sequence[Run]) -> Iterable[tuple[Style, int, int]]:
    """Yield each mark with where it begins and ends; neighbours that share a mark are one range of it.

    A mark that began inside another ends with it, and goes on as a range of its own: Telegram wants them nested.
    """
    begun: dict[Style, int] = {}
    at = 0
    for run, following in pairwise([*runs, Run("")]):
        for style in run.styles:
            begun.setdefault(style, at)
        at += len(run.text)
        ended = {style: begun.pop(style) for style in run.styles - following.styles}
        for style, start in ended.items():
            yield style, start, at
        for style, start in begun.items():
            if any(outer < start for outer in ended.values()):
                yield style, start, at
                begun[style] = at


def _indispensable(entities: list[Entity]) -> list[Entity]:
    if len(entities) <= MOST_ENTITIES:
        return entities
    return sorted(entities, key=lambda one: (one.kind in _DISPENSABLE, one.offset))[:MOST_ENTITIES]
