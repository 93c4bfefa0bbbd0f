"""The tool that hands tasks on, with somebody behind it who does them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.tools.tool_calls import call_from

from talaria.contracts.delegation import ChildTask, DelegatedTask, DelegationResult
from talaria.contracts.tool import Call, Effect, ProposedAction
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.tools.delegate.tool import DelegateArguments, DelegateTask, TaskArguments, format_results


class Busy:
    """Implements `Delegator`: answers each task with its words."""

    def __init__(self) -> None:
        self.tasks: list[DelegatedTask] = []

    async def delegate(self, tasks: Sequence[DelegatedTask], call: Call, *, background: bool) -> DelegationResult:
        self.tasks += tasks
        if background:
            return DelegationResult(handle="bg-1")
        return DelegationResult(
            tuple(ChildTask(task, SessionId("s"), "done", f"did {task.goal}") for task in tasks), note="(note)"
        )

    async def run_in_background(self, words: str) -> str:
        return words


async def run(busy: Busy, *tasks: TaskArguments, background: bool = False) -> str:
    tool = DelegateTask(busy)
    return (await tool.run(DelegateArguments(list(tasks), background), call_from(Path()))).text


async def test_tasks_go_out_as_they_are_and_answers_come_back_in_order() -> None:
    busy = Busy()
    schema = {"type": "object"}
    assert await run(busy, TaskArguments(" one "), TaskArguments("two", ["read_file"], "m", schema)) == (
        "## 1: done\ndid one\n\n## 2: done\ndid two\n\n(note)"
    )
    assert busy.tasks == [DelegatedTask("one"), DelegatedTask("two", ("read_file",), "m", schema)]
    assert await run(busy, TaskArguments("one")) == "did one\n\n(note)"


async def test_what_is_running_in_the_background_has_a_name() -> None:
    assert (await run(Busy(), TaskArguments("one"), background=True)).startswith("bg-1 is running in the background.")


@pytest.mark.parametrize("goals", [[], [""], ["one", "  "]])
async def test_a_task_has_a_goal(goals: list[str]) -> None:
    with pytest.raises(ToolFailed, match="each with a goal"):
        await run(Busy(), *map(TaskArguments, goals))


def test_it_may_be_called_again_and_says_what_it_hands_on() -> None:
    tool = DelegateTask(Busy())
    assert tool.effect is Effect.IDEMPOTENT
    many = DelegateArguments([TaskArguments("look\n at it " + "x" * 80), TaskArguments("two")])
    assert tool.proposed_action(many) == ProposedAction("other", f"look at it {'x' * 48}… (and 1 more)")
    assert tool.proposed_action(DelegateArguments([])) == ProposedAction("other", "")


def test_long_answers_share_the_room_there_is() -> None:
    children = [
        ChildTask(DelegatedTask("t"), SessionId("long"), "done", "x" * 50_000),
        ChildTask(DelegatedTask("t"), None, "failed", "no"),
    ]
    text = format_results(children)
    assert len(text) < 21_000
    assert "30000 more characters, in session long" in text
    assert text.endswith("## 2: failed\nno")
