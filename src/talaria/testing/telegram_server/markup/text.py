"""Text that grows while markup is parsed, counted in Telegram's units."""

import re

from talaria.testing.telegram_server.parts import MessageEntity

_PERSON = re.compile(r"tg://user\?id=(\d+)", re.IGNORECASE)


_EMOJI = re.compile(r"tg://emoji\?id=(\d+)", re.IGNORECASE)


_ADDRESS = re.compile(r"(?:(?:https?|ftp|tg|ton|tonsite)://)?[^\s/:?#.]+[^\s]*", re.IGNORECASE)


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


def byte_offset(text: str, place: int) -> int:
    """Return how many bytes of UTF-8 stand before a place."""
    return len(text[:place].encode("utf-8", "surrogatepass"))


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
