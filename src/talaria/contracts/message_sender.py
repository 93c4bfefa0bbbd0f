"""Sending messages from a tool to the session's chat or to another one."""

from typing import Protocol

from msgspec import Struct

from talaria.contracts.tool import Call
from talaria.core.addresses import ChatType
from talaria.core.messages import File, Image

ORIGIN = "origin"


class ReachableChat(Struct, frozen=True):
    """A chat that messages can be sent to; ``home`` marks the owner's home chat on its network."""

    target: str
    name: str
    kind: ChatType
    home: bool = False


class SentMessage(Struct, frozen=True):
    """A queued message: ``target`` is its chat, ``served`` means that a gateway is running to deliver it."""

    target: str
    served: bool


class MessageSender(Protocol):
    """Sends messages to chats through the outbox: durably, and each exactly once."""

    async def send(self, target: str, text: str, call: Call, files: tuple[File | Image, ...] = ()) -> SentMessage:
        """Queue a message for a target as people write it, or for ``origin``, the chat of the call's session.

        The same message of the same call is queued once. Raises `NotFound` or `Ambiguous` for an unknown target.
        """

    async def reachable(self) -> list[ReachableChat]:
        """Return the known chats, most recently active first."""
