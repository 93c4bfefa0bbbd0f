"""How a tool says something in a chat: in that of its own conversation, or in another one."""

from typing import Protocol

from msgspec import Struct

from talaria.contracts.tool import Call
from talaria.core.addresses import ChatType
from talaria.core.messages import File, Image

ORIGIN = "origin"


class Reachable(Struct, frozen=True):
    """A chat that can be sent to; ``home`` says that it is the one in which the owner is reached on its network."""

    target: str
    name: str
    kind: ChatType
    home: bool = False


class Sent(Struct, frozen=True):
    """What became of something: ``target`` is where it goes, ``served`` says that a gateway is there to deliver it."""

    target: str
    served: bool


class Courier(Protocol):
    """Brings things to chats through the outbox: durably, each once, however often it is told to."""

    async def send(self, target: str, text: str, call: Call, files: tuple[File | Image, ...] = ()) -> Sent:
        """Queue a message for a place as people write it, or for ``origin``, the place of the call's conversation.

        The same message of the same call is queued once. Raises `NotFound` or `Ambiguous` for what names no place.
        """

    async def reachable(self) -> list[Reachable]:
        """Return the chats that are known, those heard from last first."""
