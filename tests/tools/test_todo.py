"""Todo tool: the list of steps of a session."""

import asyncio
from pathlib import Path

import pytest
from tests.tools.tool_calls import call_from

from talaria.contracts.store import Store
from talaria.contracts.tool import Tool
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.tools.todo import Step, Todo, TodoArguments, read_steps


async def write(store: Store, *steps: Step, merge: bool = False, session: str = "one") -> str:
    tool: Tool = Todo(store)
    call = call_from(Path(), session_id=session)
    return (await tool.run(TodoArguments(list(steps), merge), call)).text


async def test_list_is_replaced_and_stored_per_session(store: Store) -> None:
    assert await write(store, Step("look"), Step("cut", status="doing")) == "[ ] 1. look\n[>] 2. cut"
    assert await write(store, session="two") == "The list is empty."
    assert (await Todo(store).run(TodoArguments(), call_from(Path(), session_id="one"))).text.endswith("2. cut")
    assert await write(store, Step("only")) == "[ ] 1. only"


async def test_steps_are_changed_added_and_completed_by_id(store: Store) -> None:
    await write(store, Step("look"), Step("cut"))
    assert await write(store, Step(id="1", status="done"), Step("glue"), merge=True) == (
        "[x] 1. look\n[ ] 2. cut\n[ ] 3. glue"
    )
    assert await write(store, Step("cut twice", id="2", status="dropped"), merge=True) == (
        "[x] 1. look\n[-] 2. cut twice\n[ ] 3. glue"
    )
    assert await write(store, Step(id="3", status="done"), Step(id="1")) == "[x] 3. glue\n[ ] 1. look"


async def test_repeated_step_updates_the_existing_one(store: Store) -> None:
    await write(store, Step("look"))
    assert await write(store, Step(" look", status="done"), merge=True) == "[x] 1. look"


async def test_invalid_steps_are_refused_without_changes(store: Store) -> None:
    await write(store, Step("look"))
    with pytest.raises(ToolFailed, match="no step '7'"):
        await write(store, Step(id="7", status="done"), merge=True)
    with pytest.raises(ToolFailed, match="at most 100 steps"):
        await write(store, *[Step(f"step {number}") for number in range(101)])
    assert await read_steps(store, SessionId("one")) == (Step("look", "1"),)


async def test_parallel_changes_are_all_stored(store: Store) -> None:
    await asyncio.gather(*(write(store, Step(f"step {number}"), merge=True) for number in range(10)))
    assert len(await read_steps(store, SessionId("one"))) == 10
