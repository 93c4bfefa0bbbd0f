"""Bindings: which conversation goes on at which place."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from talaria.core.addresses import Address
from talaria.core.ids import SessionId


class Binding(Struct, frozen=True):
    """The place that builds ``key`` speaks in conversation ``session_id``."""

    key: str
    session_id: SessionId
    address: Address
    bound_at: datetime


class Bindings(Protocol):
    """Places and the conversations they are joined to; a place has one at a time."""

    def bind(self, key: str, session_id: SessionId, address: Address) -> Binding | None:
        """Join a place to a conversation and return the binding that this replaces.

        The conversation has the audience of that place from now on.
        """

    def get(self, key: str) -> Binding | None:
        """Return the binding of a place."""

    def of_session(self, session_id: SessionId) -> list[Binding]:
        """Return every place of a conversation, last bound first."""

    def under(self, prefix: str) -> list[Binding]:
        """Return every place whose key begins so, last bound first."""

    def unbind(self, key: str) -> bool:
        """Part a place from its conversation."""
