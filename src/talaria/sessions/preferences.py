"""Preferences of one session, which override the settings."""

from typing import cast, get_args

from msgspec import Struct

from talaria.contracts.sandbox import SandboxKind
from talaria.contracts.store import Transaction
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId
from talaria.settings.model import Settings

TERMINAL = "cli"  # the surface of a person who approves what runs


class Preferences(Struct, frozen=True, omit_defaults=True):
    """Preferences; ``model`` is written as PROVIDER:MODEL, ``sandbox`` is a kind or off.

    ``persona`` is the one that the session was started with. Empty values follow the settings.
    """

    model: str = ""
    effort: str = ""
    personality: str = ""
    sandbox: str = ""
    persona: str = ""


PREFERENCES = SessionValue("preferences", Preferences)


def read_preferences(tx: Transaction, session_id: SessionId) -> Preferences:
    """Return the preferences of a session."""
    return PREFERENCES.get(tx, session_id) or Preferences()


def write_preferences(tx: Transaction, session_id: SessionId, preferences: Preferences) -> None:
    """Store the preferences of a session; they apply when it is opened next."""
    PREFERENCES.write(tx, session_id, preferences)


def choose_sandbox(settings: Settings, surface: str, choice: str = "") -> SandboxKind | None:
    """Return the sandbox for programs of a session; ``None`` if they run with the user's access.

    The choice of the session counts first, then that of its surface, then the profile's: there, ``auto`` means
    everywhere but in the terminal, where the user approves what runs.
    """
    own = settings.surfaces.get(surface)
    chosen = choice or (own.sandbox if own is not None else "")
    if chosen:
        return cast("SandboxKind", chosen) if chosen in get_args(SandboxKind) else None
    enabled = settings.sandbox.enabled
    if enabled is False or (enabled == "auto" and surface == TERMINAL):
        return None
    return settings.sandbox.kind
