"""Preferences of one session, which override the settings."""

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.ids import SessionId


class Preferences(Struct, frozen=True, omit_defaults=True):
    """Preferences; ``model`` is written as PROVIDER:MODEL; empty values follow the settings."""

    model: str = ""
    effort: str = ""
    personality: str = ""


class SessionVersion(Struct, frozen=True):
    """The stored values that decide which agent a session gets.

    Under the same settings, equal versions mean the same agent. ``preferences`` counts how often the preferences were
    written.
    """

    session_id: SessionId
    owner: str
    preferences: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Preferences).decode


def read_preferences(tx: Transaction, session_id: SessionId) -> Preferences:
    """Return the preferences of a session."""
    entry = tx.state.get(_key(session_id))
    return _decode(entry.value) if entry else Preferences()


def make_session_version(tx: Transaction, session: Session) -> SessionVersion:
    """Return the version of a session that was read in this transaction."""
    entry = tx.state.get(_key(session.id))
    return SessionVersion(session.id, session.owner, entry.version if entry else 0)


def read_session_version(tx: Transaction, session_id: SessionId) -> SessionVersion | None:
    """Return the version of a session; ``None`` if it was deleted."""
    session = tx.sessions.get(session_id)
    return make_session_version(tx, session) if session else None


def write_preferences(tx: Transaction, session_id: SessionId, preferences: Preferences) -> None:
    """Store the preferences of a session; they apply when it is opened next."""
    tx.state.put(_key(session_id), _encode(preferences).decode())


def _key(session_id: SessionId) -> str:
    return f"preferences:{session_id}"
