"""Runner of a session whose turns call a function of the test instead of a model."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.context_window import ContextWindow
from talaria.agent.environment import TurnControl, TurnEnvironment, Verdict
from talaria.agent.loop import AgentLoop, ModelOptions
from talaria.agent.model_calls import ModelCalls, ModelChoice
from talaria.agent.toolbox import Toolbox
from talaria.contracts.provider import ListedModel, ModelEvent, ModelInfo, ModelRequest
from talaria.contracts.store import Store, Transaction
from talaria.contracts.tool import Effect, ProposedAction
from talaria.contracts.turns import AfterCommit, TurnLog, TurnResult
from talaria.core.aio import first_error
from talaria.core.events import TurnEnd
from talaria.core.ids import SessionId
from talaria.runtime.runner import RunnerOptions, SessionRunner
from talaria.runtime.turn_environment import TurnEvents
from talaria.runtime.turn_log import TurnRecorder
from talaria.runtime.turns import LEASE, FetchAttachments, skip_attachments
from talaria.sessions.model_context import StoredHistory
from talaria.tools.workspace import LocalWorkspace

INFO = ModelInfo(name="none", context_limit=8_000)
TakeTurn = Callable[[TurnRecorder], Awaitable[TurnEnd]]
Ended = Callable[[Transaction, TurnResult], AfterCommit | None]


class NoModel:
    """A provider that is not to be called; implements `Provider`."""

    name = "none"

    def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        raise AssertionError("there is no model")

    async def models(self) -> list[ListedModel]:
        return []

    async def close(self) -> None:
        """Close nothing."""


class ScriptedAgent(AgentLoop):
    """An agent that takes its turns by calling a function."""

    def __init__(self, take_turn: TakeTurn, history: StoredHistory) -> None:
        calls = ModelCalls([ModelChoice(NoModel(), INFO.name, INFO)])
        super().__init__(calls, INFO, Toolbox(()), ModelOptions(), ContextWindow(INFO, history, Auxiliary(calls)))
        self._take = take_turn

    async def take_turn(
        self, turn: TurnLog, environment: TurnEnvironment, control: TurnControl | None = None
    ) -> TurnEnd:
        assert isinstance(turn, TurnRecorder)
        return await self._take(turn)


class SilentPerson:
    """A person and an approver who must not be asked."""

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        raise AssertionError("no person is there")

    async def decide(self, tool: str, effect: Effect, proposed_action: ProposedAction) -> tuple[Verdict, str]:
        raise AssertionError("there are no tools")


class _Listener:
    def __init__(self, ended: Ended) -> None:
        self.turn_ended = ended


@asynccontextmanager
async def open_runner(
    store: Store, session_id: SessionId, take_turn: TakeTurn, options: RunnerOptions
) -> AsyncIterator[SessionRunner]:
    """Open a runner of the session that takes its turns by calling ``take_turn``."""
    environment = TurnEnvironment(
        publish=TurnEvents().publish,
        person=SilentPerson(),
        approver=SilentPerson(),
        workspace=LocalWorkspace(Path.cwd(), {}),
    )
    agent = ScriptedAgent(take_turn, StoredHistory(store, session_id))
    auxiliary = Auxiliary(agent.calls)
    try:
        async with asyncio.TaskGroup() as jobs:
            yield SessionRunner(store, session_id, agent, environment, jobs, auxiliary=auxiliary, options=options)
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def run_pending_turns(
    store: Store,
    session_id: SessionId,
    take_turn: TakeTurn,
    *,
    lease: timedelta = LEASE,
    unpack: FetchAttachments = skip_attachments,
    ended: Ended | None = None,
) -> TurnEnd | None:
    """Run the pending turns of the session by calling ``take_turn``, and return how the last one ended."""
    options = RunnerOptions(
        lease=lease, unpack=unpack, titled=False, listeners=(_Listener(ended),) if ended is not None else ()
    )
    async with open_runner(store, session_id, take_turn, options) as runner:
        return await runner.run_pending_turns()
