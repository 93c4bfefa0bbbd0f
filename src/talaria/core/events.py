"""What happens in a turn, as one typed union that every surface matches on."""

from typing import Literal

from msgspec import Struct

from talaria.core.addresses import Route
from talaria.core.ids import TurnId
from talaria.core.messages import ToolCall, ToolResult, Usage


class TurnBegan(Struct, frozen=True, tag="began"):
    """A turn begins, or one that was cut off goes on, for what was ``said``.

    ``route`` is where its reply goes, if anywhere; ``items`` are what it works off of the inbox.
    """

    turn_id: TurnId
    route: Route | None = None
    said: str = ""
    items: tuple[int, ...] = ()


class TextAdded(Struct, frozen=True, tag="text"):
    """More of the reply."""

    text: str


class ReasoningAdded(Struct, frozen=True, tag="reasoning"):
    """More of what the model thinks aloud."""

    text: str


class ToolCalled(Struct, frozen=True, tag="tool_called"):
    """A tool is about to run; ``summary`` says in a line what it will do."""

    call: ToolCall
    summary: str


class ToolProgressed(Struct, frozen=True, tag="tool_progressed"):
    """A running tool has something to show already: what it prints, or a ``step`` that it takes."""

    call_id: str
    text: str
    step: bool = False


class ToolAnswered(Struct, frozen=True, tag="tool_answered"):
    """A tool is done; ``diff`` shows people what it changed in a file, as a unified diff."""

    result: ToolResult
    name: str
    seconds: float
    diff: str = ""


class ToolRefused(Struct, frozen=True, tag="tool_refused"):
    """A tool call was not run: the rules, or a person, did not allow it. ``summary`` is as in `ToolCalled`."""

    call: ToolCall
    summary: str
    reason: str


class ApprovalAsked(Struct, frozen=True, tag="approval_asked"):
    """Somebody must say whether this may happen; answered through the session, by ``id``.

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
    """Words of a person that were written during the turn are now part of it."""

    text: str


class Noticed(Struct, frozen=True, tag="noticed"):
    """Something a person should know, though the turn goes on: a wait, another model, a compacted past.

    ``lasting`` says that it is worth a message of its own where what is shown of a turn gives way to its reply.
    """

    text: str
    lasting: bool = False


class ModelCalled(Struct, frozen=True, tag="model_called"):
    """A model call is over; ``context`` is how many tokens the conversation takes of ``context_limit``."""

    model: str
    usage: Usage
    context: int
    context_limit: int


class TurnAnswered(Struct, frozen=True, tag="answered"):
    """The turn is over with this reply."""

    text: str


class TurnStopped(Struct, frozen=True, tag="stopped"):
    """Somebody stopped the turn; what was done so far is kept."""


class TurnOutOfBudget(Struct, frozen=True, tag="out_of_budget"):
    """A limit ended the turn; ``limit`` says which."""

    limit: Literal["iterations", "tokens", "money", "time"]
    text: str


class TurnFailed(Struct, frozen=True, tag="failed"):
    """The turn could not continue; ``text`` may be shown to anybody, ``details`` only to the owner.

    What is ``passing`` may not come again; ``advice`` and ``owner_advice`` are for chats, where commands can be typed.
    """

    text: str
    passing: bool = False
    details: str = ""

    @property
    def advice(self) -> str:
        """The text, with the command that asks again where that may help."""
        return self._with_retry(self.text)

    @property
    def owner_text(self) -> str:
        """The details, or the text where there are none."""
        return self.details or self.text

    @property
    def owner_advice(self) -> str:
        """The owner's text, with the command that asks again where that may help."""
        return self._with_retry(self.owner_text)

    def _with_retry(self, text: str) -> str:
        return f"{text} `/retry` asks the same once more." if self.passing else text


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
    | ModelCalled
    | TurnEnd
)
