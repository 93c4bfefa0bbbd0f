"""Text that grows while markup is parsed, counted in Telegram's units, and its entities."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from talaria.testing.telegram_server.parts import EntityType, MessageEntity
from talaria.testing.telegram_server.refusals import bad_request

_PERSON = re.compile(r"tg://user\?id=(\d+)", re.IGNORECASE)
_EMOJI = re.compile(r"tg://emoji\?id=(\d+)", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:(?:https?|ftp|tg|ton|tonsite)://)?[^\s/:?#.]+[^\s]*", re.IGNORECASE)
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


def make_link_entity(target: str, offset: int, length: int, *, emoji: bool = False) -> MessageEntity | None:
    """Return the entity for a target, or nothing where it is not an address."""
    if emoji:
        found = _EMOJI.fullmatch(target)
        return (
            MessageEntity(type="custom_emoji", offset=offset, length=length, custom_emoji_id=found[1])
            if found
            else None
        )
    person = _PERSON.fullmatch(target)
    if person:
        user: dict[str, object] = {"id": int(person[1]), "is_bot": False, "first_name": "Somebody"}
        return MessageEntity(type="text_mention", offset=offset, length=length, user=user)
    if not _ADDRESS.fullmatch(target) or ("://" not in target and "." not in target):
        return None
    address = target if "://" in target else f"http://{target}"
    if re.fullmatch(r"\w+://[^/?#]+", address) and not address.startswith("tg:"):
        address += "/"
    return MessageEntity(type="text_link", offset=offset, length=length, url=address)


class MarkupError(Exception):
    """Invalid markup; the sentence is Telegram's."""


def units(text: str) -> int:
    """Return how many UTF-16 code units a text has."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def byte_offset(text: str, position: int) -> int:
    """Return how many bytes of UTF-8 are before a position."""
    return len(text[:position].encode("utf-8", "surrogatepass"))


class ParsedText:
    """The text and finished entities parsed so far."""

    def __init__(self) -> None:
        self.entities: list[MessageEntity] = []
        self.length = 0
        self._pieces: list[str] = []

    def write(self, piece: str) -> None:
        """Add plain text."""
        self._pieces.append(piece)
        self.length += units(piece)

    def close(self, entity: MessageEntity) -> None:
        """Add an entity, unless it is empty."""
        if entity.length > 0:
            self.entities.append(entity)

    @property
    def text(self) -> str:
        """The plain text."""
        return "".join(self._pieces)

    def since(self, offset: int) -> str:
        """Return the plain text from an offset in UTF-16 code units on."""
        return self.text.encode("utf-16-le", "surrogatepass")[2 * offset :].decode("utf-16-le", "surrogatepass")


def check_entities(text: str, entities: Sequence[MessageEntity]) -> list[MessageEntity]:
    """Return the entities of a request, or refuse those that do not lie on the text's characters."""
    boundaries = {}
    position = 0
    for index, character in enumerate(text):
        boundaries[position] = index
        position += units(character)
    boundaries[position] = len(text)
    for one in entities:
        if one.offset < 0 or one.length < 0:
            raise bad_request(f"receive an entity with incorrect offset {one.offset} or length {one.length}")
        for word, at in (("begins", one.offset), ("ends", one.end)):
            if at > position:
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
    trimmed = []
    for one in entities:
        start, stop = max(one.offset - shift, 0), min(one.end - shift, end)
        if stop > start:
            trimmed.append(msgspec.structs.replace(one, offset=start, length=stop - start))
    return text, sorted(trimmed, key=lambda one: (one.offset, -one.length))


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
