"""Each request begins with the bytes of the one before, unless a reason is recorded; with random histories."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.agent_fixture import QUICK, Allow, Echo, SilentPerson
from tests.runtime.scripted_runner import run_pending_turns

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.context_window import ContextWindow
from talaria.agent.environment import TurnEnvironment
from talaria.agent.loop import AgentLoop, ModelOptions
from talaria.agent.model_calls import ModelCalls, ModelChoice
from talaria.agent.toolbox import Toolbox
from talaria.app.session.agent_spec import PromptTiers, build_instructions
from talaria.contracts.provider import ModelInfo
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.turns import TurnLog
from talaria.core.events import TurnEnd
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Message, Text
from talaria.http_client.client import HttpPool
from talaria.providers.openai_chat.adapter import OpenAIChat
from talaria.providers.settings import OpenAIChatSettings
from talaria.runtime.turns import add_to_inbox
from talaria.sessions.model_context import PREFIX_BREAK, Prefix, StoredHistory, choose_prefix, read_prefix, save_prefix
from talaria.storage.sqlite.open import SqliteOptions
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import Answer, Ask, ModelServer, Received, Say, context_too_long
from talaria.tools.workspace import LocalWorkspace

SUMMARISER = "scribe"
SUMMARY = "Goal: to try many histories. Decisions: none so far. Facts: the person writes numbers and wants answers. {}"


@dataclass(frozen=True)
class Turn:
    """The person sends a message; the model calls tools ``steps`` times before it answers."""

    length: int
    steps: int = 0


@dataclass(frozen=True)
class Restart:
    """The program ends, and another one continues the session."""


@dataclass(frozen=True)
class Remember:
    """Memory or a file of the project is changed."""


@dataclass(frozen=True)
class Midnight:
    """The next day begins."""


@dataclass(frozen=True)
class OtherModel:
    """The person picks another model."""


@dataclass(frozen=True)
class OtherTools:
    """A tool is switched on or off."""


@dataclass(frozen=True)
class TooLong:
    """The next request is too long for the model, so that earlier messages are summarised."""


@dataclass(frozen=True)
class Compact:
    """Earlier messages are summarised after a turn, by the program that ran it."""


Action = Turn | Restart | Remember | Midnight | OtherModel | OtherTools | TooLong | Compact
TURNS = st.builds(Turn, length=st.integers(1, 3_000), steps=st.integers(0, 3))
OTHERS = st.sampled_from([Restart(), Remember(), Midnight(), OtherModel(), OtherTools(), TooLong(), Compact()])


@dataclass(frozen=True)
class Sent:
    """A request as it reached the model, and how many breaks of the prefix had been recorded by then."""

    body: bytes
    breaks: int


class History:
    """A session whose program performs the actions of a test."""

    def __init__(self, server: ModelServer, store: Store, http: HttpPool, session_id: SessionId) -> None:
        self.sent: list[Sent] = []
        self._server = server
        self._store = store
        self._http = http
        self._session_id = session_id
        self._clock = SettableClock(datetime.now(UTC))
        self._model, self._memory, self._summaries = "first", 0, 0
        self._tools = [Echo("look"), Echo("peek")]
        self._steps = 0
        self._is_too_long = False
        self._agent: AgentLoop | None = None
        server.answering(self._answer)

    async def perform(self, action: Action) -> None:
        match action:
            case Turn():
                await self._take_turn(action)
            case Restart():
                self._agent = None
            case Remember():
                self._memory += 1
            case Midnight():
                self._clock.advance(timedelta(days=1))
            case OtherModel():
                self._model = "second" if self._model == "first" else "first"
                self._agent = None
            case OtherTools():
                self._tools = self._tools[:1] if len(self._tools) == 2 else [Echo("look"), Echo("peek")]
                self._agent = None
            case TooLong():
                self._is_too_long = True
            case Compact() if self._agent:
                await self._agent.window.compact(lambda event: None)

    async def reasons(self) -> list[str]:
        events = await self._store.read(lambda tx: tx.events.after(f"session:{self._session_id}", 0))
        return [event.payload for event in events if event.kind == PREFIX_BREAK]

    async def _answer(self, received: Received) -> Answer:
        if received.json["model"] == SUMMARISER:
            self._summaries += 1
            return Say(SUMMARY.format(self._summaries))
        self.sent.append(Sent(received.body, len(await self.reasons())))
        if self._is_too_long:
            self._is_too_long = False
            return context_too_long()
        if self._steps == 0:
            return Say("an answer, " * 20)
        self._steps -= 1
        return Say(calls=[Ask("look", {"word": "x" * 300}), Ask("look", {"word": "y"})])

    async def _take_turn(self, turn: Turn) -> None:
        self._steps = turn.steps
        agent = await self._open_agent()
        environment = TurnEnvironment(
            publish=lambda event: None,
            person=SilentPerson(),
            approver=Allow(),
            workspace=LocalWorkspace(Path.cwd(), {}),
        )

        async def take(log: TurnLog) -> TurnEnd:
            return await agent.take_turn(log, environment)

        message = Message(role="user", parts=(Text("7" * turn.length),), at=self._clock.now())
        await add_to_inbox(self._store, self._session_id, "test", new_id(), message)
        await run_pending_turns(self._store, self._session_id, take)
        self._is_too_long = False

    async def _open_agent(self) -> AgentLoop:
        """Return the agent of this program, built again after a restart as the program does."""
        if self._agent is None:
            self._agent = await self._make_agent()
        return self._agent

    async def _make_agent(self) -> AgentLoop:
        toolbox = Toolbox(self._tools)
        digest = hashlib.sha256(msgspec.json.encode(toolbox.specs)).hexdigest()
        tiers = PromptTiers(memory=f"entry {self._memory}", surface=f"Today is {self._clock.now():%A}.")
        current = Prefix(build_instructions(tiers), digest, self._model)
        found = await self._store.read(lambda tx: read_prefix(tx, self._session_id))
        chosen = choose_prefix(found, current, lambda: current.instructions)
        await self._store.write(lambda tx: save_prefix(tx, self._session_id, chosen))
        info = ModelInfo(name=self._model, context_limit=3_000)
        window = ContextWindow(info, StoredHistory(self._store, self._session_id), Auxiliary(self._calls(SUMMARISER)))
        return AgentLoop(
            self._calls(self._model),
            info,
            toolbox,
            ModelOptions(instructions=chosen.instructions),
            window,
            clock=self._clock,
        )

    def _calls(self, model: str) -> ModelCalls:
        account = OpenAIChatSettings(name="scripted", base_url=f"{self._server.url}/v1", api_key="sk-test")
        return ModelCalls([ModelChoice(OpenAIChat(account, self._http), model)], QUICK)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.one_of(TURNS, OTHERS), max_size=14).map(lambda actions: [Turn(5), *actions, Turn(5, steps=1)]))
def test_each_request_extends_the_one_before_unless_one_reason_is_recorded(actions: list[Action]) -> None:
    sent, reasons = asyncio.run(_perform_all(actions))
    for earlier, later in pairwise(sent):
        recorded = reasons[earlier.breaks : later.breaks]
        if _begins_as(later.body, earlier.body):
            assert recorded == []
        else:
            assert recorded
            assert len(recorded) == len({_cause(reason) for reason in recorded})


async def _perform_all(actions: Sequence[Action]) -> tuple[list[Sent], list[str]]:
    with TemporaryDirectory() as folder:
        store = open_sqlite_store(Path(folder) / "talaria.db", SqliteOptions())
        http = HttpPool()
        async with ModelServer() as server:
            session = await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))
            history = History(server, store, http, session.id)
            for action in actions:
                await history.perform(action)
            reasons = await history.reasons()
        await http.close()
        await store.close()
    return history.sent, reasons


def _begins_as(later: bytes, earlier: bytes) -> bool:
    """Return whether a request equals another one or extends its messages, which come last."""
    assert earlier.endswith(b"]}")
    return later == earlier or later.startswith(earlier.removesuffix(b"]}") + b",")


def _cause(reason: str) -> str:
    """Return the cause of a prefix break that a reason names; two causes may coincide."""
    return next(cause for cause in ("summarised", "model", "tool set") if cause in reason)
