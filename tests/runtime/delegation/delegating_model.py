"""A scripted model that delegates tasks and works on them, and conditions that tests of delegation wait for."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tests.commands.command_fixture import ChatClient

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


class DelegatingModel:
    """Answer each task by its text, one scripted answer after the other; tasks with a gate wait until it is opened.

    ``asked`` has the tasks in the order in which the model was called.
    """

    def __init__(self, server: ModelServer, script: Script, *, gates: tuple[str, ...] = ()) -> None:
        self._script: dict[str, list[Say]] = {
            task_text: list(says) if isinstance(says, list) else [says] for task_text, says in script.items()
        }
        self.gates = {task_text: asyncio.Event() for task_text in gates}
        self.tasks: list[str] = []
        self.running = self.most_running = 0
        server.answering(self._answer)

    async def _answer(self, request: Received) -> Say:
        task = request.question.partition("\n")[0]
        self.tasks.append(task)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if task in self.gates:
                await self.gates[task].wait()
        finally:
            self.running -= 1
        says = self._script.get(task) or [Say("ok")]
        return says.pop(0) if len(says) > 1 else says[0]


def delegate_tasks(*goals: str | Mapping[str, Any], background: bool = False) -> Say:
    """Return a reply that delegates tasks."""
    tasks = [{"goal": goal} if isinstance(goal, str) else goal for goal in goals]
    more: dict[str, object] = {"background": True} if background else {}
    return Say(calls=[Ask("delegate_task", {"tasks": tasks, **more})])


def tools_of(request: Received) -> set[str]:
    """Return the names of the tools that a model was offered."""
    return {tool["function"]["name"] for tool in request.json.get("tools", ())}


def model_calls_for(server: ModelServer, task: str) -> list[Received]:
    """Return the model calls for a task."""
    return [one for one in server.received if one.question.partition("\n")[0] == task]


async def result(client: ChatClient) -> str:
    """Return the result of the last tool call of the session."""
    return next(text for role, text in reversed(await client.transcript()) if role == "tool")


async def children(client: ChatClient, parent: SessionId | None = None) -> list[SessionId]:
    """Return the child sessions in which tasks of this session run, oldest first."""
    here = parent or client.active_session.session_id

    def find(tx: Transaction) -> list[SessionId]:
        turns = dict.fromkeys(turn.session_id for turn in tx.turns.find())
        sessions = [session for one in turns if (session := tx.sessions.get(one)) is not None]
        return [session.id for session in sessions if (session.parent_id, session.source) == (here, SOURCE)]

    return await client.application.store.read(find)


async def until_stored(client: ChatClient, holds: Callable[[Transaction], bool]) -> None:
    """Wait until a condition holds in the store."""
    await until(lambda: client.application.store.read(holds))


async def run_report_turn(client: ChatClient) -> str:
    """Wait for a report to the open session, run its turn, and return the text."""
    here = client.active_session.session_id

    async def is_reported() -> bool:
        if await queue_pending_reports(client.application.store, here):
            client.active_session.chat.conversation.wake()
        return bool(await _reports(client))

    await until(is_reported)
    await client.active_session.chat.conversation.wait_until_idle()
    return "\n".join(await _reports(client))


async def _reports(client: ChatClient) -> list[str]:
    here = client.active_session.session_id
    stored = await client.application.store.read(lambda tx: tx.messages.load(here))
    return [one.message.text for one in stored if one.message.author == PROGRAM]
