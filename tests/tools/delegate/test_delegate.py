"""Delegate tool, with a fake `Delegator`."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.tools.tool_calls import call_from

from talaria.contracts.delegation import ChildTask, DelegatedTask, DelegationResult
from talaria.contracts.tool import Call, Effect, ProposedAction
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.tools.delegate.tool import DelegateArguments, DelegateTask, TaskArguments, format_results


class EchoDelegator:
    """Implements `Delegator`: answers each task with its goal."""

    def __init__(self) -> None:
        self.tasks: list[DelegatedTask] = []

    async def delegate(self, tasks: Sequence[DelegatedTask], call: Call, *, background: bool) -> DelegationResult:
        self.tasks += tasks
        if background:
            return DelegationResult(handle="bg-1")
        return DelegationResult(
            tuple(ChildTask(task, SessionId("s"), "done", f"did {task.goal}") for task in tasks), note="(note)"
        )

    async def run_in_background(self, prompt: str) -> str:
        return prompt


async def run(delegator: EchoDelegator, *tasks: TaskArguments, background: bool = False) -> str:
    tool = DelegateTask(delegator)
    return (await tool.run(DelegateArguments(list(tasks), background), call_from(Path()))).text


async def test_tasks_are_delegated_and_results_returned_in_order() -> None:
    delegator = EchoDelegator()
    schema = {"type": "object"}
    assert await run(delegator, TaskArguments(" one "), TaskArguments("two", ["read_file"], "m", schema)) == (
        "## 1: done\ndid one\n\n## 2: done\ndid two\n\n(note)"
    )
    assert delegator.tasks == [DelegatedTask("one"), DelegatedTask("two", ("read_file",), "m", schema)]
    assert await run(delegator, TaskArguments("one")) == "did one\n\n(note)"


async def test_background_tasks_return_their_handle() -> None:
    assert (await run(EchoDelegator(), TaskArguments("one"), background=True)).startswith(
        "bg-1 is running in the background."
    )


@pytest.mark.parametrize("goals", [[], [""], ["one", "  "]])
async def test_task_without_a_goal_is_refused(goals: list[str]) -> None:
    with pytest.raises(ToolFailed, match="each with a goal"):
        await run(EchoDelegator(), *map(TaskArguments, goals))


def test_delegate_tool_is_idempotent_and_its_action_names_the_tasks() -> None:
    tool = DelegateTask(EchoDelegator())
    assert tool.effect is Effect.IDEMPOTENT
    many = DelegateArguments([TaskArguments("look\n at it " + "x" * 80), TaskArguments("two")])
    assert tool.proposed_action(many) == ProposedAction("other", f"look at it {'x' * 48}… (and 1 more)")
    assert tool.proposed_action(DelegateArguments([])) == ProposedAction("other", "")


def test_long_results_share_the_output_limit() -> None:
    children = [
        ChildTask(DelegatedTask("t"), SessionId("long"), "done", "x" * 50_000),
        ChildTask(DelegatedTask("t"), None, "failed", "no"),
    ]
    text = format_results(children)
    assert len(text) < 21_000
    assert "30000 more characters, in session long" in text
    assert text.endswith("## 2: failed\nno")
