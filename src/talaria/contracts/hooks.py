"""Who else is told what happens: hooks of the owner, which nobody waits for."""

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

Fact = str | int | float | bool | None
Facts = Mapping[str, Fact]
Emit = Callable[[TurnEvent], None]

_OF_A_SESSION = (
    "platform", "source", "chat_id", "chat_name", "thread_id", "user_id", "user_name", "session_key", "session_id",
    "message_id", "turn_id", "cwd",
)  # fmt: skip


class Hooks(Protocol):
    """The hooks of one process."""

    def fire(self, event: str, facts: Facts) -> None:
        """Tell every hook that listens for this; never waits and never raises, from any thread."""

    def overhear(self, emit: Emit) -> Emit:
        """Return the same ``emit``, with hooks that hear of the turns of one conversation."""

    async def close(self) -> None:
        """Give hooks a few seconds to finish, then end what can be ended."""


class NoHooks:
    """Implements `Hooks` where there are none."""

    def fire(self, event: str, facts: Facts) -> None:
        """Tell nobody."""

    def overhear(self, emit: Emit) -> Emit:
        """Return what was given."""
        return emit

    async def close(self) -> None:
        """Do nothing."""


def session_facts(context: SessionContext) -> dict[str, Fact]:
    """Return what every event of a conversation says of where it is and who speaks there."""
    return {name: getattr(context, name) for name in _OF_A_SESSION}


def context_of(facts: Facts) -> SessionContext:
    """Return the same the other way round, to be bound while a hook runs."""
    known = {name: str(facts[name]) for name in _OF_A_SESSION if facts.get(name) is not None}
    return structs.replace(SessionContext(), **known)
