"""Events of a turn: one typed union that every surface matches on."""

from typing import Literal

from msgspec import Struct

from talaria.core.addresses import ReplyRoute
from talaria.core.ids import TurnId
from talaria.core.messages import ToolCall, ToolResult, Usage


class TurnBegan(Struct, frozen=True, tag="began"):
    """A turn starts or resumes, for the message ``text``.

    ``route`` is the destination of its reply, if any; ``items`` are the inbox items it processes.
    """

    turn_id: TurnId
    route: ReplyRoute | None = None
    text: str = ""
    items: tuple[int, ...] = ()


class TextAdded(Struct, frozen=True, tag="text"):
    """More text of the reply."""

    text: str


class ReasoningAdded(Struct, frozen=True, tag="reasoning"):
    """More of the model's reasoning."""

    text: str


class ToolCalled(Struct, frozen=True, tag="tool_called"):
    """A tool is about to run; ``summary`` describes the call in one line."""

    call: ToolCall
    summary: str


class ToolProgressed(Struct, frozen=True, tag="tool_progressed"):
    """A running tool has output to show, or reports a ``step``."""

    call_id: str
    text: str
    step: bool = False


class ToolAnswered(Struct, frozen=True, tag="tool_answered"):
    """A tool has finished; ``diff`` shows people what it changed in a file, as a unified diff."""

    result: ToolResult
    name: str
    seconds: float
    diff: str = ""


class ToolRefused(Struct, frozen=True, tag="tool_refused"):
    """A tool call was refused by the policy or by a person. ``summary`` is as in `ToolCalled`."""

    call: ToolCall
    summary: str
    reason: str


class ApprovalAsked(Struct, frozen=True, tag="approval_asked"):
    """A call needs approval by a person; answered through the session, by ``id``.

    ``diff`` is what would change in a file, as a unified diff.
    """

    id: str
    tool: str
    summary: str
    reason: str
    diff: str = ""


class QuestionAsked(Struct, frozen=True, tag="question_asked"):
    """The agent asks the person; answered through the session, by ``id``."""

    id: str
    question: str
    choices: tuple[str, ...] = ()


class PersonJoined(Struct, frozen=True, tag="person_joined"):
    """A message that a person wrote during the turn has joined it."""

    text: str


class Noticed(Struct, frozen=True, tag="noticed"):
    """A notice for people while the turn continues: a wait, another model, a summarised history.

    ``lasting`` asks for a separate message where the display of a turn is replaced by its reply. It is ``posted`` if
    that message is queued for the chat already.
    """

    text: str
    lasting: bool = False
    posted: bool = False


class StoreBlocked(Struct, frozen=True, tag="store_blocked"):
    """The session waits for a store that cannot be written to; it continues when the store is back."""


class ModelCalled(Struct, frozen=True, tag="model_called"):
    """A model call has finished; the conversation takes ``context`` tokens of ``context_limit``."""

    model: str
    usage: Usage
    context: int
    context_limit: int


class TurnAnswered(Struct, frozen=True, tag="answered"):
    """The turn ended with this reply."""

    text: str


class TurnStopped(Struct, frozen=True, tag="stopped"):
    """A person stopped the turn; completed steps are stored."""


class TurnOutOfBudget(Struct, frozen=True, tag="out_of_budget"):
    """A limit ended the turn; ``limit`` says which."""

    limit: Literal["iterations", "tokens", "money", "time"]
    text: str


class TurnFailed(Struct, frozen=True, tag="failed"):
    """The turn failed; ``text`` may be shown to anybody, ``details`` only to the owner.

    If ``passing``, repeating it may help; ``advice`` and ``owner_advice`` are for chats, where commands can be typed.
    """

    text: str
    passing: bool = False
    details: str = ""

    @property
    def advice(self) -> str:
        """Return the text, with the retry command where that may help."""
        return self._add_retry(self.text)

    @property
    def owner_text(self) -> str:
        """Return the details, or the text if there are none."""
        return self.details or self.text

    @property
    def owner_advice(self) -> str:
        """Return the owner's text, with the retry command where that may help."""
        return self._add_retry(self.owner_text)

    def _add_retry(self, text: str) -> str:
        return f"{text} `/retry` sends your last message again." if self.passing else text


TurnEnd = TurnAnswered | TurnStopped | TurnOutOfBudget | TurnFailed
TurnEvent = (
    TurnBegan
    | TextAdded
    | ReasoningAdded
    | ToolCalled
    | ToolProgressed
    | ToolAnswered
    | ToolRefused
    | ApprovalAsked
    | QuestionAsked
    | PersonJoined
    | Noticed
    | StoreBlocked
    | ModelCalled
    | TurnEnd
)
