"""The todo tool: the plan of a session as a list of steps."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.contracts.values import SessionValue
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId

Status = Literal["open", "doing", "done", "dropped"]
_MARKS: dict[Status, str] = {"open": "[ ]", "doing": "[>]", "done": "[x]", "dropped": "[-]"}
_MOST_STEPS = 100
_LONGEST_STEP = 500


class Step(Struct, frozen=True, omit_defaults=True):
    """One thing to do."""

    text: str = ""
    id: str = ""
    status: Status = "open"


PLAN = SessionValue("todo", tuple[Step, ...])


class TodoArguments(Struct, frozen=True):
    """The list, or changes to it."""

    steps: Annotated[list[Step], Meta(description="Omit to read the list")] = []
    merge: Annotated[bool, Meta(description="Change these by id, keep the others")] = False


class Todo:
    """The plan of each session, in the store."""

    name = "todo"
    description = "Plan longer work. Keep the list current."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = TodoArguments

    def __init__(self, store: Store) -> None:
        self._store = store

    def proposed_action(self, arguments: TodoArguments) -> ProposedAction:
        """Describe the change of the list."""
        return ProposedAction("other", f"{len(arguments.steps)} steps" if arguments.steps else "show the list")

    async def run(self, arguments: TodoArguments, call: Call) -> ToolOutput:
        """Write the list, or a part of it, and return all of it."""
        if arguments.steps:
            steps = await self._write(call.session_id, arguments)
        else:
            steps = await read_steps(self._store, call.session_id)
        lines = [f"{_MARKS[step.status]} {step.id}. {step.text}" for step in steps]
        return ToolOutput("\n".join(lines) or "The list is empty.")

    async def _write(self, session_id: SessionId, arguments: TodoArguments) -> tuple[Step, ...]:
        """Write, and repeat after a concurrent change; each round one writer succeeds."""
        writing = _make_write(session_id, arguments.steps, merge=arguments.merge)
        while (steps := await self._store.write(writing)) is None:
            continue
        return steps


async def read_steps(store: Store, session_id: SessionId) -> tuple[Step, ...]:
    """Return the list of a session."""
    return await store.read(lambda tx: PLAN.get(tx, session_id)) or ()


def _make_write(
    session_id: SessionId, steps: Sequence[Step], *, merge: bool
) -> Callable[[Transaction], tuple[Step, ...] | None]:
    def write(tx: Transaction) -> tuple[Step, ...] | None:
        stored = PLAN.read(tx, session_id)
        before = stored.value or ()
        after = _check_steps(_merge_steps(before if merge else (), steps, known=before))
        written = PLAN.replace(tx, session_id, after, version=stored.version)
        return after if written else None

    return write


def _merge_steps(stored: Sequence[Step], changes: Sequence[Step], *, known: Sequence[Step]) -> tuple[Step, ...]:
    """Return the stored steps with these changes.

    A step is identified by its id or, without one, by its text; a known one without text keeps its text.
    """
    texts = {step.id: step.text for step in known}
    merged = {step.id: step for step in stored}
    for change in changes:
        own = change.id or _find_id(change.text, merged) or _choose_free_id(merged)
        merged[own] = Step(" ".join(change.text.split()) or texts.get(own, ""), own, change.status)
    return tuple(merged.values())


def _find_id(text: str, steps: dict[str, Step]) -> str:
    words = " ".join(text.split())
    return next((step.id for step in steps.values() if words and step.text == words), "")


def _choose_free_id(steps: dict[str, Step]) -> str:
    number = len(steps) + 1
    while str(number) in steps:
        number += 1
    return str(number)


def _check_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    if nameless := [step.id for step in steps if not step.text]:
        raise ToolFailed(f"there is no step {nameless[0]!r} yet; give its `text`")
    if len(steps) > _MOST_STEPS or any(len(step.text) > _LONGEST_STEP for step in steps):
        raise ToolFailed(f"at most {_MOST_STEPS} steps of {_LONGEST_STEP} characters each")
    return steps
