"""Addresses: a chat, thread or person on a network, independent of the session there."""

from typing import Literal

from msgspec import Struct

WEB = "web"  # the web app; its conversations are threads of one chat per person
ChatType = Literal["private", "group", "channel", "thread"]


class Address(Struct, frozen=True, omit_defaults=True):
    """An address on a network: a chat, optionally a thread in it, optionally one person there."""

    platform: str
    chat_id: str
    chat_type: ChatType = "private"
    thread_id: str = ""
    user_id: str = ""


def audience_of(address: Address | None) -> str:
    """Return the audience of an address as ``platform/chat``; empty for a private chat or no chat at all."""
    if address is None or address.chat_type == "private":
        return ""
    return f"{address.platform}/{address.chat_id}"


class ReplyRoute(Struct, frozen=True, omit_defaults=True):
    """The destination of a reply, fixed when the message was admitted; ``reply_to`` is the message it answers.

    ``user_id`` and ``user_name`` are the person it answers, who in a group is not always the same. ``spoken`` means
    that it answers a voice note.
    """

    address: Address
    reply_to: str = ""
    user_id: str = ""
    user_name: str = ""
    chat_name: str = ""
    spoken: bool = False
