"""Preferences of one session, which override the settings, and its plan mode."""

from typing import cast, get_args

from msgspec import Struct

from talaria.contracts.sandbox import SandboxKind
from talaria.contracts.store import Transaction
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId
from talaria.settings.model import Settings

TERMINAL = "cli"  # the surface of a person who approves what runs
PLAN_INSTRUCTIONS = (
    "Plan mode is on: until a plan is approved, only tools and commands that read are allowed. Investigate first. Then "
    "write the plan: the goal, the steps, the files to change, and how to check the result. When it is complete, start "
    "with its first step: the user is asked to approve the plan at that moment, and if they do, carry it out."
)


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


class PlanMode(Struct, frozen=True):
    """State of plan mode; once ``announced``, the model has got the instructions."""

    is_on: bool
    announced: bool = False


PLAN_MODE = SessionValue("plan_mode", PlanMode)


def start_planning(tx: Transaction, session_id: SessionId, *, announced: bool = False) -> None:
    """Switch plan mode on."""
    PLAN_MODE.write(tx, session_id, PlanMode(is_on=True, announced=announced))


def stop_planning(tx: Transaction, session_id: SessionId) -> None:
    """Switch plan mode off: the plan is approved, or no longer needed."""
    PLAN_MODE.delete(tx, session_id)


def read_plan_mode(tx: Transaction, session_id: SessionId) -> PlanMode:
    """Return the state of plan mode."""
    return PLAN_MODE.get(tx, session_id) or PlanMode(is_on=False)
