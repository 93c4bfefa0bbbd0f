"""Preferences of one session, which override the settings."""

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.contracts.values import SessionValue
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


PREFERENCES = SessionValue("preferences", Preferences)


def read_preferences(tx: Transaction, session_id: SessionId) -> Preferences:
    """Return the preferences of a session."""
    return PREFERENCES.get(tx, session_id) or Preferences()


def make_session_version(tx: Transaction, session: Session) -> SessionVersion:
    """Return the version of a session that was read in this transaction."""
    return SessionVersion(session.id, session.owner, PREFERENCES.version(tx, session.id))


def read_session_version(tx: Transaction, session_id: SessionId) -> SessionVersion | None:
    """Return the version of a session; ``None`` if it was deleted."""
    session = tx.sessions.get(session_id)
    return make_session_version(tx, session) if session else None


def write_preferences(tx: Transaction, session_id: SessionId, preferences: Preferences) -> None:
    """Store the preferences of a session; they apply when it is opened next."""
    PREFERENCES.write(tx, session_id, preferences)
