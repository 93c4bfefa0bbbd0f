"""Hand tasks on, and read what came of them."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from talaria.contracts.delegation import Child, Delegator, Task
from talaria.contracts.tool import Call, Deed, Effect, ToolOutput
from talaria.core.errors import ToolFailed

_MOST_TEXT = 40_000
_LONGEST_TARGET = 60


class TaskArguments(Struct, frozen=True):
    """One task."""

    goal: Annotated[str, Meta(description="Complete: nothing said here is known there")]
    tools: Annotated[list[str], Meta(description="Only these of yours")] = []
    model: str = ""
    output_schema: Annotated[dict[str, Any] | None, Meta(description="JSON schema of the answer")] = None


class DelegateArguments(Struct, frozen=True):
    """Tasks that do not depend on each other."""

    tasks: list[TaskArguments]
    background: Annotated[bool, Meta(description="Do not wait: results are told when there")] = False


class DelegateTask:
    """Idempotent by its call: whatever was begun for it before is gone on with, not begun again."""

    name = "delegate_task"
    description = "Hand tasks on to agents of their own, side by side; answers come in order."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = DelegateArguments

    def __init__(self, delegator: Delegator) -> None:
        self._delegator = delegator

    def deed(self, arguments: DelegateArguments) -> Deed:
        """Say what is handed on."""
        goals = [" ".join(task.goal.split()) for task in arguments.tasks]
        first = goals[0] if goals else ""
        short = first if len(first) <= _LONGEST_TARGET else f"{first[: _LONGEST_TARGET - 1]}…"
        return Deed("other", f"{short} (and {len(goals) - 1} more)" if len(goals) > 1 else short)

    async def run(self, arguments: DelegateArguments, call: Call) -> ToolOutput:
        """Return the answers, or the handle of what goes on in the background."""
        tasks = [
            Task(goal=one.goal.strip(), tools=tuple(one.tools), model=one.model.strip(), schema=one.output_schema)
            for one in arguments.tasks
        ]
        if not tasks or not all(task.goal for task in tasks):
            raise ToolFailed("Give at least one task, and a goal for each.")
        done = await self._delegator.delegate(tasks, call, background=arguments.background)
        if done.handle:
            return ToolOutput(
                f"{done.handle} goes on in the background. You are told in this conversation when it is done:"
                " do not wait for it."
            )
        return ToolOutput("\n\n".join(filter(None, (told(done.children), done.note))))


def told(children: Sequence[Child]) -> str:
    """Return what became of tasks as text for the one who handed them on, in order."""
    share = _MOST_TEXT // max(len(children), 1)
    if len(children) == 1 and children[0].state == "done":
        return _cut(children[0], share)
    return "\n\n".join(f"## {number}: {child.state}\n{_cut(child, share)}" for number, child in enumerate(children, 1))


def _cut(child: Child, share: int) -> str:
    if len(child.text) <= share:
        return child.text
    return f"{child.text[:share]}\n… {len(child.text) - share} characters more, in session {child.session_id}"
