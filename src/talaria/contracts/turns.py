"""The turn log, stored before each next step, and turn listeners, notified when a turn ends."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import StoredMessage
from talaria.core.addresses import ReplyRoute
from talaria.core.events import TurnEnd
from talaria.core.ids import SessionId, TurnId
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


class Summary(Struct, frozen=True):
    """A summary of the messages up to and including ``upto``."""

    upto: int
    text: str


class HistoryPage(Struct, frozen=True):
    """The current summary of a session, and the messages after both ``after`` and its end."""

    after: int
    summary: Summary | None
    messages: list[StoredMessage]


class TurnOpening(Struct, frozen=True):
    """Data that was read in the transaction that began a turn; ``history`` is ``None`` if it was long."""

    history: HistoryPage | None
    has_caps: bool


class TurnLog(Protocol):
    """The log of one turn; each call is one transaction, durable when it returns.

    Transactions keep the order of the calls. ``opening`` is what was read when the turn began, if anything was.
    """

    session_id: SessionId
    opening: TurnOpening | None

    async def read_transcript(self) -> list[StoredMessage]:
        """Return the conversation so far, oldest first."""

    async def add(self, messages: Sequence[Message], step: ModelStep | None = None) -> None:
        """Append messages, with their usage."""

    async def begin_call(self, call: ToolCall, summary: str, *, may_wait: bool = False, repeated: bool = False) -> None:
        """Record that a tool is about to run, possibly ``repeated`` after an interruption.

        With ``may_wait`` the record goes into the next transaction: enough for a call that may be repeated.
        """

    async def end_call(self, call: ToolCall, result: ToolResult, *, may_wait: bool = False) -> None:
        """Record the result of a tool, before the others of its reply."""

    async def read_started_calls(self) -> list[StartedCall]:
        """Return the calls that this turn had started before it was resumed."""

    async def finish(self, end: TurnEnd, reply: Message | None, step: ModelStep | None = None) -> TurnEnd:
        """End the turn, together with its reply and its listeners, and return how it ended.

        After the first end the others change nothing, and return the first.
        """


class TurnResult(Struct, frozen=True):
    """The result of a turn; ``reply`` is its last text, if any, and ``route`` the destination.

    ``used_tools`` is false if it is certain that no tool was called.
    """

    session_id: SessionId
    turn_id: TurnId
    end: TurnEnd
    reply: Message | None
    route: ReplyRoute | None = None
    used_tools: bool = True


AfterCommit = Callable[[], None]


class TurnListener(Protocol):
    """A listener for the turns of one session."""

    def turn_ended(self, tx: Transaction, result: TurnResult) -> AfterCommit | None:
        """Handle the end of a turn, in the transaction that ends it: all of it happens or nothing.

        The transaction may run again, so this changes nothing but the store. It returns what is to be done in this
        process after the commit, if anything.
        """


class TurnFollowUp(TurnListener, Protocol):
    """A turn listener that also has work to do after the reply.

    ``resumable`` means that `follow_up` may be cancelled at any time, because the next start repeats it.
    """

    resumable: ClassVar[bool]

    @property
    def has_follow_up(self) -> bool:
        """Return whether the turn that has just ended leaves work for `follow_up`; without any, it is not called."""

    async def follow_up(self) -> bool:
        """Do the work after the reply; return ``True`` if the inbox has a new message.

        It is always called when a session is opened; a resumable one is cancelled when it is called again.
        """
