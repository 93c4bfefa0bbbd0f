"""Entities: validate those in a request, detect those in a text."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from talaria.testing.telegram_server.markup.text import byte_offset, units
from talaria.testing.telegram_server.parts import EntityType, MessageEntity
from talaria.testing.telegram_server.refusals import bad_request

_FOUND: tuple[tuple[EntityType, re.Pattern[str]], ...] = (
    ("url", re.compile(r"https?://[^\s<>\"]*[^\s<>\".,;:!?)\]]")),
    ("email", re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[a-zA-Z]{2,}")),
    ("bot_command", re.compile(r"(?<![\w/@<>])/[a-zA-Z0-9_]{1,64}(?:@[a-zA-Z0-9_]{3,32})?(?![\w/@])")),
    ("mention", re.compile(r"(?<![\w@/])@[a-zA-Z0-9_]{2,32}(?!\w)")),
    ("hashtag", re.compile(r"(?<!\w)#\w*[^\W\d]\w*")),
)
_LITERAL = {"code", "pre", "text_link", "text_mention"}
_SETTABLE = {
    "bold", "italic", "underline", "strikethrough", "spoiler", "blockquote", "expandable_blockquote", "code", "pre",
    "text_link", "text_mention", "custom_emoji", "date_time",
}  # fmt: skip
_REQUIRED_FIELDS = {
    "text_link": "url",
    "text_mention": "user",
    "custom_emoji": "custom_emoji_id",
    "date_time": "unix_time",
}


def check_entities(text: str, entities: Sequence[MessageEntity]) -> list[MessageEntity]:
    """Return the entities of a request, or refuse those that do not lie on the text's characters."""
    boundaries = {}
    place = 0
    for index, character in enumerate(text):
        boundaries[place] = index
        place += units(character)
    boundaries[place] = len(text)
    for one in entities:
        if one.offset < 0 or one.length < 0:
            raise bad_request(f"receive an entity with incorrect offset {one.offset} or length {one.length}")
        for word, at in (("begins", one.offset), ("ends", one.end)):
            if at > place:
                raise bad_request(f"entity {word} after the end of the text at byte offset {byte_offset(text, at)}")
            if at not in boundaries:
                before = byte_offset(text, boundaries[at - 1])
                raise bad_request(f"entity {word} in a middle of a UTF-16 symbol at byte offset {before}")
        needed = _REQUIRED_FIELDS.get(one.type)
        if needed and getattr(one, needed) is None:
            raise bad_request(f"can't parse MessageEntity: Can't find field \"{needed}\"")
    return [one for one in entities if one.type in _SETTABLE and one.length]


def trim_text(text: str, entities: Iterable[MessageEntity]) -> tuple[str, list[MessageEntity]]:
    """Cut white space around the text, as Telegram does, and move the entities along."""
    left = len(text) - len(text.lstrip())
    shift = units(text[:left])
    text = text.strip()
    end = units(text)
    kept = []
    for one in entities:
        start, stop = max(one.offset - shift, 0), min(one.end - shift, end)
        if stop > start:
            kept.append(msgspec.structs.replace(one, offset=start, length=stop - start))
    return text, sorted(kept, key=lambda one: (one.offset, -one.length))


def add_found_entities(text: str, entities: Iterable[MessageEntity] = ()) -> tuple[MessageEntity, ...]:
    """Return the entities together with links, mentions, commands and so on that stand in the text by themselves."""
    explicit = [*entities]
    solid = [one for one in explicit if one.type in _LITERAL]
    for one in _find_entities(text):
        if not any(one.offset < other.end and other.offset < one.end for other in solid):
            explicit.append(one)
            solid.append(one)
    return tuple(sorted(explicit, key=lambda one: (one.offset, -one.length)))


def _find_entities(text: str) -> Iterator[MessageEntity]:
    for kind, pattern in _FOUND:
        for match in pattern.finditer(text):
            yield MessageEntity(type=kind, offset=units(text[: match.start()]), length=units(match[0]))
