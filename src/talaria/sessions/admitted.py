"""A message as it waits in the inbox, and one whose files are still at the network."""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment
from talaria.core.addresses import Route
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Part, Text
from talaria.core.senders import UNKNOWN


class Admitted(Message, frozen=True, kw_only=True):
    """A message with its sender, the route of its reply and the files to fetch; the transcript stores none of these."""

    route: Route | None = None
    attachments: tuple[Attachment, ...] = ()
    sender: str = UNKNOWN


class Packed(Struct, frozen=True):
    """An item of an inbox whose files are to be fetched before its turn begins."""

    session_id: SessionId
    item: int
    message: Admitted


Unpack = Callable[[Packed], Coroutine[Any, Any, Message]]

_admitted = msgspec.json.Decoder(Admitted)
_message = msgspec.json.Decoder(Message)


def read_admitted(payload: str) -> Admitted:
    """Return what an item of the inbox says."""
    return _admitted.decode(payload)


def read_message(payload: str) -> Message:
    """Return what the transcript keeps of it."""
    return _message.decode(payload)


def unpacked(message: Admitted, *parts: Part) -> Message:
    """Return what the transcript keeps of a message, with these parts behind its own."""
    kept = {name: getattr(message, name) for name in Message.__struct_fields__}
    return Message(**{**kept, "parts": (*message.parts, *parts)})


def without_files(message: Admitted, why: str) -> Message:
    """Return it with a sentence in place of each of its files."""
    return unpacked(message, *(Text(f"({named(one)} {why}.)") for one in message.attachments))


def named(attachment: Attachment) -> str:
    """Return how a sentence begins that is about a file."""
    return f"The file {attachment.name}" if attachment.name else f"A {attachment.kind}"


async def leave_packed(packed: Packed) -> Message:
    """Fetch nothing: there is no network to fetch from."""
    return without_files(packed.message, "came along, and cannot be fetched here")
