"""Complete agent turns with the default tools, a real store and provider, and a scripted model server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.context_window import ContextWindow
from talaria.agent.environment import TurnEnvironment, Verdict
from talaria.agent.loop import AgentLoop, ModelOptions
from talaria.agent.model_calls import ModelCalls, ModelChoice
from talaria.agent.toolbox import Toolbox
from talaria.app.session.agent_spec import PromptTiers, build_instructions
from talaria.app.session.toolsets import ToolContext, make_tools
from talaria.app.store import open_store
from talaria.contracts.provider import ModelInfo
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.tool import Call, Effect, ProposedAction, Tool, ToolOutput
from talaria.core.events import TextAdded, TurnAnswered, TurnBegan, TurnEvent
from talaria.core.ids import SessionId, new_id, new_session_id
from talaria.core.messages import Message, Text
from talaria.http_client.client import HttpPool
from talaria.providers.openai_chat.adapter import OpenAIChat
from talaria.providers.settings import OpenAIChatSettings
from talaria.runtime.runner import RunnerOptions, SessionRunner
from talaria.runtime.turns import add_to_inbox
from talaria.sessions.model_context import StoredHistory
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profile, Profiles
from talaria.tools.workspace import LocalWorkspace

_INFO = ModelInfo(name="bench", context_limit=128_000)
_TIERS = PromptTiers(surface="You are talking in a terminal.")


class NoteArguments(Struct, frozen=True):
    """Arguments of the tool that the benchmark adds."""

    text: str = ""


class NoteTool:
    """Tool that returns its argument, at no cost of its own."""

    name = "noted"
    description = "Take note."
    effect = Effect.READS
    arguments = NoteArguments

    def proposed_action(self, arguments: NoteArguments) -> ProposedAction:
        return ProposedAction("other", arguments.text)

    async def run(self, arguments: NoteArguments, call: Call) -> ToolOutput:
        return ToolOutput(arguments.text)


class AllowAll:
    """Approver that allows every call, and person who answers no question."""

    async def decide(self, tool: str, effect: Effect, proposed_action: ProposedAction) -> tuple[Verdict, str]:
        return "allow", ""

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


class TurnRunner:
    """Runs agent turns, each in a new session."""

    def __init__(self, url: str, model: str, store: Store, http: HttpPool, tools: list[Tool]) -> None:
        account = OpenAIChatSettings(name="bench", base_url=f"{url}/v1", api_key="sk-bench")
        self._calls = ModelCalls([ModelChoice(OpenAIChat(account, http), model, _INFO)])
        self._store = store
        self._toolbox = Toolbox(tools)
        self._workspace = LocalWorkspace(Path.cwd(), {})
        self._sessions: list[SessionId] = []

    async def create_sessions(self, count: int) -> None:
        """Create sessions for as many turns."""

        def create(tx: Transaction) -> list[SessionId]:
            return [tx.sessions.create(NewSession(source="bench")).id for _ in range(count)]

        self._sessions += await self._store.write(create)

    async def run_turn(self) -> float:
        """Run a turn for the message "hi"; return the seconds from its start to its first text."""
        session_id, message = self._sessions.pop(), Message(role="user", parts=(Text("hi"),), at=datetime.now(UTC))
        await add_to_inbox(self._store, session_id, "bench", new_id(), message)
        agent, times = self._make_agent(session_id), list[float]()

        def emit(event: TurnEvent) -> None:
            if isinstance(event, TurnBegan if not times else TextAdded) and len(times) < 2:
                times.append(perf_counter())

        async with asyncio.TaskGroup() as jobs:
            runner = SessionRunner(
                self._store,
                session_id,
                agent,
                self._make_environment(emit),
                jobs,
                auxiliary=Auxiliary(self._calls),
                options=RunnerOptions(titled=False),
            )
            end = await runner.run_pending_turns()
        assert isinstance(end, TurnAnswered), end
        return times[1] - times[0]

    def _make_agent(self, session_id: SessionId) -> AgentLoop:
        window = ContextWindow(_INFO, StoredHistory(self._store, session_id), Auxiliary(self._calls))
        return AgentLoop(
            self._calls, _INFO, self._toolbox, ModelOptions(instructions=build_instructions(_TIERS)), window
        )

    def _make_environment(self, emit: Callable[[TurnEvent], None]) -> TurnEnvironment:
        return TurnEnvironment(publish=emit, person=AllowAll(), approver=AllowAll(), workspace=self._workspace)


@asynccontextmanager
async def open_turn_runners(folder: Path) -> AsyncIterator[Callable[[str, str], TurnRunner]]:
    """Open a store in a folder; yield a function from server address and model to `TurnRunner`."""
    profile = Profiles(folder).active()
    profile.prepare()
    async with AsyncExitStack() as stack:
        store, _ = open_store(load_settings(profile, {}), profile)
        stack.push_async_callback(store.close)
        http = HttpPool()
        stack.push_async_callback(http.close)
        tools = default_tools(profile, store, stack)

        def make(url: str, model: str) -> TurnRunner:
            return TurnRunner(url, model, store, http, tools if model == "short" else [*tools, NoteTool()])

        yield make


def default_tools(profile: Profile, store: Store, closing: AsyncExitStack) -> list[Tool]:
    """Return the tools of a new agent with default settings."""
    settings = load_settings(profile, {})
    return make_tools(
        ToolContext(
            settings=settings,
            profile=profile,
            store=store,
            session_id=new_session_id(),
            folder=profile.folder,
            closing=closing,
            model=_INFO,
        )
    )
