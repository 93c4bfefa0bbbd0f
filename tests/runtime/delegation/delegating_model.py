"""A scripted model that delegates tasks and works on them, and conditions that tests of delegation wait for."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tests.commands.command_fixture import Desk

from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.core.messages import PROGRAM
from talaria.runtime.completions import queue_pending_reports
from talaria.runtime.delegation.task_store import SOURCE
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.wait import until

_PATIENCE = 60.0
_POLL_INTERVAL = 0.02
Script = Mapping[str, Any]


class Company:
    """Answer each task by its text, one scripted answer after the other; tasks with a gate wait until it is opened.

    ``asked`` has the tasks in the order in which the model was called.
    """

    def __init__(self, server: ModelServer, script: Script, *, gates: tuple[str, ...] = ()) -> None:
        self._script: dict[str, list[Say]] = {
            task_text: list(says) if isinstance(says, list) else [says] for task_text, says in script.items()
        }
        self.gates = {task_text: asyncio.Event() for task_text in gates}
        self.asked: list[str] = []
        self.at_work = self.most_at_work = 0
        server.answering(self._answer)

    async def _answer(self, request: Received) -> Say:
        task = request.question.partition("\n")[0]
        self.asked.append(task)
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            if task in self.gates:
                await self.gates[task].wait()
        finally:
            self.at_work -= 1
        says = self._script.get(task) or [Say("ok")]
        return says.pop(0) if len(says) > 1 else says[0]


def hand_on(*goals: str | Mapping[str, Any], background: bool = False) -> Say:
    """Return a reply that delegates tasks."""
    tasks = [{"goal": goal} if isinstance(goal, str) else goal for goal in goals]
    more: dict[str, object] = {"background": True} if background else {}
    return Say(calls=[Ask("delegate_task", {"tasks": tasks, **more})])


def tools_of(request: Received) -> set[str]:
    """Return the names of the tools that a model was offered."""
    return {tool["function"]["name"] for tool in request.json.get("tools", ())}


def asked_for(server: ModelServer, task: str) -> list[Received]:
    """Return the model calls for a task."""
    return [one for one in server.received if one.question.partition("\n")[0] == task]


async def result(desk: Desk) -> str:
    """Return the result of the last tool call of the session."""
    return next(text for role, text in reversed(await desk.transcript()) if role == "tool")


async def children(desk: Desk, parent: SessionId | None = None) -> list[SessionId]:
    """Return the child sessions in which tasks of this session run, oldest first."""
    here = parent or desk.active_session.session_id

    def find(tx: Transaction) -> list[SessionId]:
        turns = dict.fromkeys(turn.session_id for turn in tx.turns.find())
        sessions = [session for one in turns if (session := tx.sessions.get(one)) is not None]
        return [session.id for session in sessions if (session.parent_id, session.source) == (here, SOURCE)]

    return await desk.application.store.read(find)


async def until_stored(desk: Desk, holds: Callable[[Transaction], bool]) -> None:
    """Wait until a condition holds in the store."""
    await until(lambda: desk.application.store.read(holds))


async def woken(desk: Desk) -> str:
    """Wait for a report to the open session, run its turn, and return the text."""
    here = desk.active_session.session_id

    async def is_reported() -> bool:
        if await queue_pending_reports(desk.application.store, here):
            desk.active_session.chat.conversation.wake()
        return bool(await _reports(desk))

    await until(is_reported)
    await desk.active_session.chat.conversation.settled()
    return "\n".join(await _reports(desk))


async def _reports(desk: Desk) -> list[str]:
    here = desk.active_session.session_id
    stored = await desk.application.store.read(lambda tx: tx.messages.load(here))
    return [one.message.text for one in stored if one.message.author == PROGRAM]
