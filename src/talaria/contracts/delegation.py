"""Delegated tasks: work that a session gives to child sessions, and its results."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from talaria.contracts.tool import Call
from talaria.core.ids import SessionId

ChildState = Literal["open", "done", "failed", "stopped"]


class DelegatedTask(Struct, frozen=True, omit_defaults=True):
    """A task for a child session that sees nothing but this.

    ``tools`` are the only ones it may use, empty for the default ones; ``schema`` is the JSON schema of its answer.
    """

    goal: str
    tools: tuple[str, ...] = ()
    model: str = ""
    schema: dict[str, Any] | None = None


class ChildTask(Struct, frozen=True, omit_defaults=True):
    """A task and its progress: its child session and its answer."""

    task: DelegatedTask
    session_id: SessionId | None = None
    state: ChildState = "open"
    text: str = ""


class DelegationResult(Struct, frozen=True):
    """The result of a call: all its children in order, or a ``handle`` if they run in the background.

    ``note`` is a sentence about deviations from the request.
    """

    children: tuple[ChildTask, ...] = ()
    handle: str = ""
    note: str = ""


class Delegator(Protocol):
    """Delegates tasks for one session."""

    async def delegate(self, tasks: Sequence[DelegatedTask], call: Call, *, background: bool) -> DelegationResult:
        """Run tasks in child sessions; repeating a call doesn't start its tasks again.

        Raises `ToolFailed` for tasks that can't be delegated. Cancelling interrupts them; the next call with the same
        id resumes them.
        """

    async def run_in_background(self, prompt: str) -> str:
        """Run a person's prompt in the background and return its handle.

        Raises `Refused` where the result couldn't be reported later.
        """
