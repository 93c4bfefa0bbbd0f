"""Where a link of a markup leads: to an address, to a person, to an emoji."""

import re

from talaria.testing.telegram_server.parts import MessageEntity

_PERSON = re.compile(r"tg://user\?id=(\d+)", re.IGNORECASE)
_EMOJI = re.compile(r"tg://emoji\?id=(\d+)", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:(?:https?|ftp|tg|ton|tonsite)://)?[^\s/:?#.]+[^\s]*", re.IGNORECASE)


def linked(target: str, offset: int, length: int, *, emoji: bool = False) -> MessageEntity | None:
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
