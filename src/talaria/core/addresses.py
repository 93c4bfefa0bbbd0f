"""Where someone can be reached, apart from what is being said there."""

from typing import Literal

from msgspec import Struct

ChatType = Literal["private", "group", "channel", "thread"]


class Address(Struct, frozen=True, omit_defaults=True):
    """A place on a network: a chat, perhaps a thread in it, perhaps one person there."""

    platform: str
    chat_id: str
    chat_type: ChatType = "private"
    thread_id: str = ""
    user_id: str = ""


def audience_of(address: Address | None) -> str:
    """Return who reads along at a place, written ``platform/chat``; empty where it is private, or no place at all."""
    if address is None or address.chat_type == "private":
        return ""
    return f"{address.platform}/{address.chat_id}"


class Route(Struct, frozen=True, omit_defaults=True):
    """Where the reply to something goes, fixed when that was admitted; ``reply_to`` is the message that it answers.

    ``user_id`` and ``user_name`` are whom it answers, which in a group is not always the same person. ``spoken`` says
    that it answers a voice note.
    """

    address: Address
    reply_to: str = ""
    user_id: str = ""
    user_name: str = ""
    chat_name: str = ""
    spoken: bool = False
