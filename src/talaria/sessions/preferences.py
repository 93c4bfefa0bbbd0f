"""Preferences of one session, which override the settings."""

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId


class Preferences(Struct, frozen=True, omit_defaults=True):
    """Preferences; ``model`` is written as PROVIDER:MODEL; empty values follow the settings."""

    model: str = ""
    effort: str = ""
    personality: str = ""


PREFERENCES = SessionValue("preferences", Preferences)


def read_preferences(tx: Transaction, session_id: SessionId) -> Preferences:
    """Return the preferences of a session."""
    return PREFERENCES.get(tx, session_id) or Preferences()


def write_preferences(tx: Transaction, session_id: SessionId, preferences: Preferences) -> None:
    """Store the preferences of a session; they apply when it is opened next."""
    PREFERENCES.write(tx, session_id, preferences)
