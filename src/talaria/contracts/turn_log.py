"""The turn log: what a turn reads of its session, and stores before each next step."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from talaria.contracts.stores.messages import StoredMessage
from talaria.core.events import TurnEnd
from talaria.core.ids import SessionId
from talaria.core.messages import Message, ToolCall, ToolResult, Usage


class StartedCall(Struct, frozen=True):
    """A tool call started before the turn was interrupted; without a result its outcome is unknown.

    ``repeated`` means that it was run again after an earlier interruption.
    """

    call_id: str
    result: ToolResult | None
    repeated: bool = False


class ModelStep(Struct, frozen=True, kw_only=True):
    """The stored record of a model call; the cost of one without a price is unknown."""

    model: str
    usage: Usage
    seconds: float
    first_text_seconds: float | None = None
    context: int = 0
    has_price: bool = True


class TurnLog(Protocol):
    """The log of one turn; each call is one transaction, durable when it returns.

    Transactions keep the order of the calls.
    """

    session_id: SessionId

    async def transcript(self) -> list[StoredMessage]:
        """Return the conversation so far, oldest first."""

    async def add(self, messages: Sequence[Message], step: ModelStep | None = None) -> None:
        """Append messages, with their usage."""

    async def begin_call(self, call: ToolCall, summary: str, *, may_wait: bool = False, repeated: bool = False) -> None:
        """Record that a tool is about to run, possibly ``repeated`` after an interruption.

        With ``may_wait`` the record goes into the next transaction: enough for a call that may be repeated.
        """

    async def end_call(self, call: ToolCall, result: ToolResult, *, may_wait: bool = False) -> None:
        """Record the result of a tool, before the others of its reply."""

    async def started_calls(self) -> list[StartedCall]:
        """Return the calls that this turn had started before it was resumed."""

    async def finish(self, end: TurnEnd, reply: Message | None, step: ModelStep | None = None) -> TurnEnd:
        """End the turn, together with its reply and its listeners, and return how it ended.

        After the first end the others change nothing, and return the first.
        """
