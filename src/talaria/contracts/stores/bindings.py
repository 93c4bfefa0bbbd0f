"""Bindings: which session is bound to which chat."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from talaria.core.addresses import Address
from talaria.core.ids import SessionId


class Binding(Struct, frozen=True):
    """The chat with this ``key`` is bound to session ``session_id``."""

    key: str
    session_id: SessionId
    address: Address
    bound_at: datetime


class Bindings(Protocol):
    """Chats and the sessions they are bound to; a chat has one at a time."""

    def bind(self, key: str, session_id: SessionId, address: Address) -> Binding | None:
        """Bind a chat to a session and return the binding that this replaces.

        The session takes over the audience of that chat.
        """

    def get(self, key: str) -> Binding | None:
        """Return the binding of a chat."""

    def of_session(self, session_id: SessionId) -> list[Binding]:
        """Return all bindings of a session, last bound first."""

    def under(self, prefix: str) -> list[Binding]:
        """Return all bindings whose key has this prefix, last bound first."""

    def unbind(self, key: str) -> bool:
        """Remove the binding of a chat."""
