"""Hooks: the owner's code that is notified of events without delaying them."""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import structs

from talaria.core.events import TurnEvent
from talaria.core.session_context import SessionContext

GATEWAY_START = "gateway:start"
SESSION_START = "session:start"
SESSION_END = "session:end"
SESSION_RESET = "session:reset"
AGENT_START = "agent:start"
AGENT_STEP = "agent:step"
AGENT_END = "agent:end"
COMMAND = "command:"
TOOL_CALL = "tool:call"

Fact = str | int | float | bool | None
Facts = Mapping[str, Fact]

_SESSION_FIELDS = (
    "platform", "source", "chat_id", "chat_name", "thread_id", "user_id", "user_name", "session_key", "session_id",
    "message_id", "turn_id", "cwd",
)  # fmt: skip


class Hooks(Protocol):
    """The hooks of one process."""

    def fire(self, event: str, facts: Facts) -> None:
        """Notify every hook subscribed to this event; never waits and never raises, from any thread."""

    def turn_subscriber(self) -> Callable[[TurnEvent], None] | None:
        """Return a new subscriber for the events of one open session; ``None`` where there are no hooks."""

    async def veto(self, facts: Facts) -> str:
        """Ask the hooks of `TOOL_CALL` about a call, and return why it must not run; empty if it may.

        A hook that fails or doesn't answer within its time limit refuses the call.
        """

    async def close(self) -> None:
        """Give hooks a few seconds to finish, then end what can be ended."""


class NoHooks:
    """Implementation of `Hooks` without any hooks."""

    def fire(self, event: str, facts: Facts) -> None:
        """Do nothing."""

    def turn_subscriber(self) -> None:
        """Return nothing: no hook needs the events."""

    async def veto(self, facts: Facts) -> str:
        """Refuse nothing."""
        return ""

    async def close(self) -> None:
        """Do nothing."""


def session_facts(context: SessionContext) -> dict[str, Fact]:
    """Return the facts about chat and sender that every event of a session carries."""
    return {name: getattr(context, name) for name in _SESSION_FIELDS}


def context_from_facts(facts: Facts) -> SessionContext:
    """Return the session context for such facts, to be bound while a hook runs."""
    known = {name: str(facts[name]) for name in _SESSION_FIELDS if facts.get(name) is not None}
    return structs.replace(SessionContext(), **known)
