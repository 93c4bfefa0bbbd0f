"""An agent to test with: a real store, a real provider, and a scripted model behind a socket."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from tests.runtime.scripted_runner import run_pending_turns
from tests.storage.engines import create_empty_store

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.context_window import ContextWindow
from talaria.agent.environment import TurnControl, TurnEnvironment, Verdict
from talaria.agent.loop import AgentLoop, ModelOptions
from talaria.agent.model_calls import ModelCalls, ModelChoice, RetryPolicy
from talaria.agent.toolbox import Toolbox
from talaria.contracts.provider import ModelInfo
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession, StoredMessage
from talaria.contracts.tool import Call, Effect, ProposedAction, Tool, ToolOutput
from talaria.contracts.turns import TurnLog
from talaria.core.events import TurnEnd, TurnEvent
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Message, Text
from talaria.http_client.client import HttpPool
from talaria.providers.openai_chat.adapter import OpenAIChat
from talaria.providers.settings import OpenAIChatSettings
from talaria.runtime.turns import add_to_inbox
from talaria.sessions.model_context import StoredHistory
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.model_server import ModelServer
from talaria.tools.workspace import LocalWorkspace

INFO = ModelInfo(name="scripted", context_limit=8_000, input_price=3_000_000, output_price=15_000_000)
QUICK = RetryPolicy(first_wait=timedelta(milliseconds=1), longest_wait=timedelta(milliseconds=20))


class Word(Struct, frozen=True):
    """The arguments of the tools here."""

    word: Annotated[str, Meta(description="any word")] = ""


class Echo:
    """A tool whose result a test defines."""

    def __init__(
        self,
        name: str = "echo",
        effect: Effect = Effect.READS,
        does: Callable[[Word, Call], Any] = lambda arguments, call: arguments.word.upper(),
    ) -> None:
        self.name = name
        self.description = f"Say a word in capitals ({name})."
        self.effect = effect
        self.arguments = Word
        self._does = does
        self.ran: list[str] = []

    def proposed_action(self, arguments: Word) -> ProposedAction:
        return ProposedAction("other", arguments.word)

    async def run(self, arguments: Word, call: Call) -> ToolOutput:
        self.ran.append(arguments.word)
        done = self._does(arguments, call)
        return ToolOutput(str(await done if asyncio.iscoroutine(done) else done))


class Allow:
    """Allows everything, or nothing."""

    def __init__(self, verdict: Verdict = "allow") -> None:
        self._verdict = verdict

    async def decide(self, tool: str, effect: Effect, proposed_action: ProposedAction) -> tuple[Verdict, str]:
        return self._verdict, "the house rules"


class SilentPerson:
    """A person who never answers."""

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


class AgentSession:
    """One session with one scripted model."""

    def __init__(self, server: ModelServer, store: Store, http: HttpPool, session_id: SessionId, folder: Path) -> None:
        self.server = server
        self.store = store
        self.session_id = session_id
        self.events: list[TurnEvent] = []
        self.folder = folder
        settings = OpenAIChatSettings(
            name="scripted",
            base_url=f"{server.url}/v1",
            api_key="sk-test",
        )
        self.calls = ModelCalls([ModelChoice(OpenAIChat(settings, http), "scripted", INFO)], QUICK)

    def agent(self, *tools: Tool, instructions: str = "Be brief.", session_id: SessionId | None = None) -> AgentLoop:
        history = StoredHistory(self.store, session_id or self.session_id)
        window = ContextWindow(INFO, history, Auxiliary(self.calls))
        return AgentLoop(self.calls, INFO, Toolbox(tools), ModelOptions(instructions=instructions), window)

    def environment(self, **changes: Any) -> TurnEnvironment:
        values: dict[str, Any] = {
            "publish": self.events.append,
            "person": SilentPerson(),
            "approver": Allow(),
            "workspace": LocalWorkspace(self.folder, {}),
        }
        return TurnEnvironment(**{**values, **changes})

    async def say(
        self, text: str, *tools: Tool, environment: TurnEnvironment | None = None, control: TurnControl | None = None
    ) -> TurnEnd | None:
        """Send a message, run its turn and return how the turn ended."""
        message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
        await add_to_inbox(self.store, self.session_id, "test", new_id(), message)
        return await self.run_pending_turns(*tools, environment=environment, control=control)

    async def run_pending_turns(
        self, *tools: Tool, environment: TurnEnvironment | None = None, control: TurnControl | None = None
    ) -> TurnEnd | None:
        agent = self.agent(*tools)

        async def take_turn(turn: TurnLog) -> TurnEnd:
            return await agent.take_turn(turn, environment or self.environment(), control or TurnControl())

        return await run_pending_turns(self.store, self.session_id, take_turn)

    async def transcript(self) -> list[StoredMessage]:
        return await self.store.read(lambda tx: tx.messages.load(self.session_id))

    async def transcript_texts(self) -> list[tuple[str, str]]:
        """Return role and text of each message in the transcript."""
        return [(stored.message.role, stored.message.text) for stored in await self.transcript()]

    def events_of(self, kind: type[Any]) -> Sequence[Any]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def open_agent_session(folder: Path) -> AsyncIterator[AgentSession]:
    """Open a session with its store in a folder."""
    http = HttpPool()
    create_empty_store(folder / "talaria.db")
    store = open_sqlite_store(folder / "talaria.db")
    try:
        async with ModelServer() as server:
            session = await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))
            yield AgentSession(server, store, http, session.id, folder)
    finally:
        await http.close()
        await store.close()
