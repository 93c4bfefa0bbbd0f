"""Whole turns of an agent with the default tools: real store, real provider, a model at the far end of a socket."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.loop import Agent, Manner
from talaria.agent.model_calls import ModelCalls, ModelChoice
from talaria.agent.prompt import Tiers, instructions
from talaria.agent.surroundings import Limits, Surroundings, Verdict
from talaria.agent.toolbox import Toolbox
from talaria.agent.window import Window
from talaria.app.stores import open_store
from talaria.app.toolsets import Workbench, make_tools
from talaria.contracts.models import ModelInfo
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.tool import Call, Deed, Effect, Tool, ToolOutput
from talaria.contracts.turn_log import TurnLog
from talaria.core.events import TextAdded, TurnAnswered, TurnEnd, TurnEvent
from talaria.core.ids import SessionId, new_id, new_session_id
from talaria.core.messages import Message, Text
from talaria.providers.http import HttpPool
from talaria.providers.openai_chat.adapter import OpenAIChat
from talaria.providers.openai_chat.settings import OpenAIChatSettings
from talaria.sessions.lane import admit, work_off
from talaria.sessions.summaries import StoredHistory
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profile, Profiles
from talaria.tools.workspace import LocalWorkspace

_INFO = ModelInfo(name="bench", context_limit=128_000)
_TIERS = Tiers(surface="You are talking in a terminal.")


class Note(Struct, frozen=True):
    """The arguments of the tool that the bench adds."""

    text: str = ""


class Noted:
    """A tool that costs nothing itself."""

    name = "noted"
    description = "Take note."
    effect = Effect.READS
    arguments = Note

    def deed(self, arguments: Note) -> Deed:
        return Deed("other", arguments.text)

    async def run(self, arguments: Note, call: Call) -> ToolOutput:
        return ToolOutput(arguments.text)


class Everything:
    """Implements `Approver` and `Person`: allows all, answers nothing."""

    async def decide(self, tool: str, effect: Effect, deed: Deed) -> tuple[Verdict, str]:
        return "allow", ""

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


class Turns:
    """Takes turns, each in a new conversation."""

    def __init__(self, url: str, model: str, store: Store, http: HttpPool, tools: list[Tool]) -> None:
        account = OpenAIChatSettings(name="bench", base_url=f"{url}/v1", api_key="sk-bench")
        self._calls = ModelCalls([ModelChoice(OpenAIChat(account, http), model, _INFO)])
        self._store = store
        self._toolbox = Toolbox(tools)
        self._workspace = LocalWorkspace(Path.cwd(), {})
        self._sessions: list[SessionId] = []

    async def prepare(self, count: int) -> None:
        """Make so many conversations to take turns in."""

        def create(tx: Transaction) -> list[SessionId]:
            return [tx.sessions.create(NewSession(source="bench")).id for _ in range(count)]

        self._sessions += await self._store.write(create)

    async def take(self) -> float:
        """Say hi, and return the seconds from the turn's beginning to its first words."""
        session_id, message = self._sessions.pop(), Message(role="user", parts=(Text("hi"),), at=datetime.now(UTC))
        await admit(self._store, session_id, "bench", new_id(), message)
        agent, times = self._agent(session_id), list[float]()

        def emit(event: TurnEvent) -> None:
            if isinstance(event, TextAdded) and len(times) == 1:
                times.append(perf_counter())

        async def take_turn(turn: TurnLog) -> TurnEnd:
            times.append(perf_counter())
            return await agent.take_turn(turn, self._around(emit), Limits())

        end = await work_off(self._store, session_id, take_turn)
        assert isinstance(end, TurnAnswered), end
        return times[1] - times[0]

    def _agent(self, session_id: SessionId) -> Agent:
        window = Window(_INFO, StoredHistory(self._store, session_id), Auxiliary(self._calls))
        return Agent(self._calls, _INFO, self._toolbox, Manner(instructions=instructions(_TIERS)), window)

    def _around(self, emit: Callable[[TurnEvent], None]) -> Surroundings:
        return Surroundings(emit=emit, person=Everything(), approver=Everything(), workspace=self._workspace)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Callable[[str, str], Turns]]:
    """Open a store in a folder, and yield what makes `Turns` with a server's address and a model."""
    profile = Profiles(folder).active()
    profile.prepare()
    async with AsyncExitStack() as stack:
        store, _ = open_store(load_settings(profile, {}), profile)
        stack.push_async_callback(store.close)
        http = HttpPool()
        stack.push_async_callback(http.close)
        tools = default_tools(profile, store, stack)

        def make(url: str, model: str) -> Turns:
            return Turns(url, model, store, http, tools if model == "words" else [*tools, Noted()])

        yield make


def default_tools(profile: Profile, store: Store, closing: AsyncExitStack) -> list[Tool]:
    """Return the tools that the program gives a new agent when nothing is set."""
    settings = load_settings(profile, {})
    return make_tools(
        Workbench(
            settings=settings,
            profile=profile,
            store=store,
            session_id=new_session_id(),
            folder=profile.folder,
            closing=closing,
            model=_INFO,
        )
    )
