"""Work that a conversation hands on to others of its own: tasks, and what became of them."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from talaria.contracts.tool import Call
from talaria.core.ids import SessionId

ChildState = Literal["open", "done", "failed", "stopped"]


class Task(Struct, frozen=True, omit_defaults=True):
    """What is to be done by somebody who knows nothing but these words.

    ``tools`` are the only ones that it may use, empty for the usual ones; ``schema`` is what its answer has to fit.
    """

    goal: str
    tools: tuple[str, ...] = ()
    model: str = ""
    schema: dict[str, Any] | None = None


class Child(Struct, frozen=True, omit_defaults=True):
    """A task and how far it has come: the conversation in which it is worked on, and its answer."""

    task: Task
    session_id: SessionId | None = None
    state: ChildState = "open"
    text: str = ""


class Delegated(Struct, frozen=True):
    """What became of a call: all of its children in order, or a ``handle`` where they go on in the background.

    ``note`` is a sentence about what is otherwise than it was asked for.
    """

    children: tuple[Child, ...] = ()
    handle: str = ""
    note: str = ""


class Delegator(Protocol):
    """Hands tasks on for one conversation."""

    async def delegate(self, tasks: Sequence[Task], call: Call, *, background: bool) -> Delegated:
        """Have tasks worked on, those of the same call once, however often it is made.

        Raises `ToolFailed` for tasks that cannot be handed on. Cancelling cuts them off, to go on with the next call
        of the same id.
        """

    async def see_to(self, words: str) -> str:
        """Have words of a person seen to in the background, and return the handle of that.

        Raises `Refused` where nothing could be told later.
        """
