"""The delegate_task tool: run tasks in child sessions and return their answers."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from talaria.contracts.delegation import ChildTask, DelegatedTask, Delegator
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed

_MOST_TEXT = 40_000
_LONGEST_TARGET = 60


class TaskArguments(Struct, frozen=True):
    """One task."""

    goal: Annotated[str, Meta(description="Self-contained: the subagent doesn't see this chat")]
    tools: Annotated[list[str], Meta(description="Subset of your tools")] = []
    model: str = ""
    output_schema: Annotated[dict[str, Any] | None, Meta(description="JSON schema for the answer")] = None


class DelegateArguments(Struct, frozen=True):
    """Independent tasks."""

    tasks: list[TaskArguments]
    background: Annotated[bool, Meta(description="Don't wait; results are posted here")] = False


class DelegateTask:
    """Delegates tasks. Idempotent per call: tasks already started for it are resumed, not started again."""

    name = "delegate_task"
    description = "Run independent tasks in subagents, in parallel. Answers are returned in order."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = DelegateArguments

    def __init__(self, delegator: Delegator) -> None:
        self._delegator = delegator

    def proposed_action(self, arguments: DelegateArguments) -> ProposedAction:
        """Describe the tasks."""
        goals = [" ".join(task.goal.split()) for task in arguments.tasks]
        first = goals[0] if goals else ""
        short = first if len(first) <= _LONGEST_TARGET else f"{first[: _LONGEST_TARGET - 1]}…"
        return ProposedAction("other", f"{short} (and {len(goals) - 1} more)" if len(goals) > 1 else short)

    async def run(self, arguments: DelegateArguments, call: Call) -> ToolOutput:
        """Return the answers, or the handle of the background run."""
        tasks = [
            DelegatedTask(
                goal=one.goal.strip(), tools=tuple(one.tools), model=one.model.strip(), schema=one.output_schema
            )
            for one in arguments.tasks
        ]
        if not tasks or not all(task.goal for task in tasks):
            raise ToolFailed("Give at least one task, each with a goal.")
        done = await self._delegator.delegate(tasks, call, background=arguments.background)
        if done.handle:
            return ToolOutput(
                f"{done.handle} is running in the background. Its result will be posted in this conversation; "
                "don't wait for it."
            )
        return ToolOutput("\n\n".join(filter(None, (format_results(done.children), done.note))))


def format_results(children: Sequence[ChildTask]) -> str:
    """Return the results of tasks as text, in order."""
    share = _MOST_TEXT // max(len(children), 1)
    if len(children) == 1 and children[0].state == "done":
        return _cut(children[0], share)
    return "\n\n".join(f"## {number}: {child.state}\n{_cut(child, share)}" for number, child in enumerate(children, 1))


def _cut(child: ChildTask, share: int) -> str:
    if len(child.text) <= share:
        return child.text
    return f"{child.text[:share]}\n… {len(child.text) - share} more characters, in session {child.session_id}"
