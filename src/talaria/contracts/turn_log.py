"""How a turn remembers: what it reads of the conversation, and what it saves before it goes on."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from talaria.contracts.stores.messages import StoredMessage
from talaria.core.events import TurnEnd
from talaria.core.ids import SessionId
from talaria.core.messages import Message, ToolCall, ToolResult, Usage


class BegunCall(Struct, frozen=True):
    """A tool call that had begun before the turn was cut off; without a result its outcome is unknown.

    ``repeated`` says that it had been run again after an earlier interruption.
    """

    call_id: str
    result: ToolResult | None
    repeated: bool = False


class ModelStep(Struct, frozen=True, kw_only=True):
    """What is kept of a model call for the record."""

    model: str
    usage: Usage
    seconds: float
    first_text_seconds: float | None = None
    context: int = 0


class TurnLog(Protocol):
    """The log of one turn of one conversation; each call is one transaction, durable when it returns.

    Transactions keep the order of the calls.
    """

    session_id: SessionId

    async def transcript(self) -> list[StoredMessage]:
        """Return the conversation so far, oldest first."""

    async def add(self, messages: Sequence[Message], step: ModelStep | None = None) -> None:
        """Append what was said, with what it took to say it."""

    async def begin_call(self, call: ToolCall, summary: str, *, may_wait: bool = False, repeated: bool = False) -> None:
        """Record that a tool is about to run, perhaps ``repeated`` after the turn was cut off.

        With ``may_wait`` the record goes into the next transaction: enough for a call that may be run again.
        """

    async def end_call(self, call: ToolCall, result: ToolResult, *, may_wait: bool = False) -> None:
        """Record what a tool answered, ahead of the others of its reply."""

    async def begun_calls(self) -> list[BegunCall]:
        """Return the calls of this turn that had begun before it was resumed."""

    async def finish(self, end: TurnEnd, reply: Message | None, step: ModelStep | None = None) -> None:
        """End the turn, together with its reply and with whatever waits for it."""
