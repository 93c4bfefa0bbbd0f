"""Session context: bound per task and thread, and not visible to other turns."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from tests.agent.agent_fixture import AgentSession, Echo, Word, open_agent_session
from tests.commands.command_fixture import open_chat_client

from talaria.agent.auxiliary import Auxiliary
from talaria.contracts.stores.queues import Arrival
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.tool import Call, Tool
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.events import TurnAnswered
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Message, Text
from talaria.core.session_context import FIELDS, SessionContext, bound, current_context
from talaria.runtime.runner import RunnerOptions, SessionRunner
from talaria.runtime.turns import make_arrival
from talaria.sessions.context import (
    async_delivery_supported,
    clear_session_vars,
    get_session_env,
    set_current_session_id,
    set_session_vars,
)
from talaria.settings.environment import process_environment
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received

T = TypeVar("T")
ID, CHAT, PLATFORM = "TALARIA_SESSION_ID", "TALARIA_SESSION_CHAT_ID", "TALARIA_SESSION_PLATFORM"
CRON_CHAT = "TALARIA_CRON_AUTO_DELIVER_CHAT_ID"


def in_empty_context(work: Callable[[], T]) -> T:
    """Run a function in a context in which no session is bound."""
    return Context().run(work)


def seen() -> dict[str, str]:
    return {name: get_session_env(name, "nothing") for name in FIELDS}


def test_variable_names_are_as_documented() -> None:
    session = ("PLATFORM", "SOURCE", "CHAT_ID", "CHAT_NAME", "THREAD_ID", "USER_ID", "USER_NAME", "KEY", "ID")
    cron = ("PLATFORM", "CHAT_ID", "THREAD_ID")
    assert set(FIELDS) == {f"TALARIA_SESSION_{name}" for name in (*session, "MESSAGE_ID")} | {
        f"TALARIA_CRON_AUTO_DELIVER_{name}" for name in cron
    }


def test_given_values_are_bound_and_the_rest_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FIELDS:
        monkeypatch.setenv(name, "of the environment")

    def work() -> None:
        set_session_vars(platform="telegram", chat_id=7, user_id=None, session_key="k", cron_auto_deliver_chat_id="9")
        expected = {PLATFORM: "telegram", CHAT: "7", "TALARIA_SESSION_KEY": "k", CRON_CHAT: "9"}
        assert seen() == {name: expected.get(name, "") for name in FIELDS}
        set_session_vars(chat_id="8")
        assert seen() == {name: "8" if name == CHAT else "" for name in FIELDS}

    in_empty_context(work)


def test_an_unknown_value_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        in_empty_context(lambda: set_session_vars(colour="red"))


def test_cleared_values_are_empty_despite_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FIELDS:
        monkeypatch.setenv(name, "of the environment")

    def work() -> None:
        tokens = set_session_vars(platform="api", async_delivery=False, cron_auto_deliver_chat_id="9")
        assert not async_delivery_supported()
        clear_session_vars(tokens)
        assert set(seen().values()) == {""}
        assert async_delivery_supported()

    in_empty_context(work)


def test_unbound_value_comes_from_the_environment_or_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHAT, raising=False)
    monkeypatch.setenv(ID, "outer")
    assert in_empty_context(lambda: (get_session_env(ID, "x"), get_session_env(CHAT, "x"), get_session_env(CHAT))) == (
        "outer",
        "x",
        "",
    )
    assert in_empty_context(async_delivery_supported)
    assert in_empty_context(current_context) is None


def test_setting_the_current_session_changes_context_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ID, "before")

    def work() -> tuple[str, str, str]:
        set_session_vars(session_id="one", chat_id="7")
        set_current_session_id("two")
        return get_session_env(ID), get_session_env(CHAT), process_environment()[ID]

    assert in_empty_context(work) == ("two", "7", "two")
    assert in_empty_context(lambda: get_session_env(ID)) == "two"

    def unbound() -> tuple[str, str]:
        set_current_session_id("three")
        return get_session_env(ID), get_session_env(CHAT, "none")

    assert in_empty_context(unbound) == ("three", "none")


def test_bound_block_restores_the_previous_context() -> None:
    def work() -> None:
        with bound(SessionContext(session_id="outer", thread_id="t", cron_auto_deliver_chat_id="9")):
            with bound(SessionContext(session_id="inner")):
                assert seen() == {name: "inner" if name == ID else "" for name in FIELDS}
            assert (get_session_env(ID), get_session_env("TALARIA_SESSION_THREAD_ID")) == ("outer", "t")
        assert current_context() is None

    in_empty_context(work)


async def test_interleaved_turns_and_their_threads_see_only_their_own_values() -> None:
    chance = random.Random(7)
    finished = 0

    async def let_others_run() -> None:
        for _ in range(chance.randrange(8)):
            await asyncio.sleep(0)

    async def child(own: dict[str, str]) -> None:
        await let_others_run()
        assert seen() == own

    async def turn(number: int, pool: ThreadPoolExecutor) -> None:
        nonlocal finished
        tokens = set_session_vars(
            platform=f"network-{number % 5}", chat_id=number, session_id=f"s{number}", async_delivery=bool(number % 2)
        )
        own = seen()
        assert own[ID] == f"s{number}"
        loop = asyncio.get_running_loop()
        for _ in range(4):
            await let_others_run()
            assert await asyncio.to_thread(seen) == own
            assert await loop.run_in_executor(pool, copy_context().run, seen) == own
            async with asyncio.TaskGroup() as group:
                group.create_task(child(own))
            assert async_delivery_supported() == bool(number % 2)
        clear_session_vars(tokens)
        assert set((await asyncio.to_thread(seen)).values()) == {""}
        finished += 1

    with ThreadPoolExecutor(8) as pool:
        async with asyncio.TaskGroup() as group:
            for number in range(400):
                group.create_task(turn(number, pool), context=Context())
    assert finished == 400


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        agent_session.server.answering(_one_call)
        yield agent_session


def _one_call(received: Received) -> Say:
    return Say(calls=[Ask("echo", {})]) if received.json["messages"][-1]["role"] == "user" else Say("ok")


@pytest.mark.slow
async def test_parallel_turns_of_many_sessions_have_their_own_context(agent_session: AgentSession) -> None:
    recorded: dict[str, list[dict[str, str]]] = {}

    async def record(arguments: Word, call: Call) -> str:
        here, there = seen(), await asyncio.to_thread(seen)
        assert here == there == {name: value for name, value in call.environment.items() if name in FIELDS}
        recorded.setdefault(call.session_id, []).append(here)
        return "told"

    async with asyncio.TaskGroup() as jobs:
        runners = [await _open(agent_session, Echo(does=record), jobs=jobs) for _ in range(50)]
        async with asyncio.TaskGroup() as group:
            for number, runner in enumerate(runners):
                group.create_task(_three_turns(agent_session, runner, number))
        for runner in runners:
            await runner.close()
    for number, runner in enumerate(runners):
        assert [
            (one[ID], one[CHAT], one["TALARIA_SESSION_USER_NAME"], one["TALARIA_SESSION_MESSAGE_ID"])
            for one in recorded[runner.session_id]
        ] == [(runner.session_id, str(number), f"user {count}", f"m{count}") for count in range(3)]


async def _three_turns(agent_session: AgentSession, runner: SessionRunner, number: int) -> None:
    for count in range(3):
        address = Address("telegram", str(number))
        route = ReplyRoute(address, f"m{count}", user_id=f"u{count}", user_name=f"user {count}", chat_name="Family")
        await _arrive(agent_session, make_arrival(runner.session_id, "telegram", new_id(), _message("hi"), route=route))
        assert await runner.run_pending_turns() == TurnAnswered("ok")


async def _arrive(agent_session: AgentSession, arrival: Arrival) -> None:
    await agent_session.store.write(lambda tx: tx.inbox.add(arrival))


async def test_nested_turn_does_not_inherit_the_context_of_the_outer_turn(agent_session: AgentSession) -> None:
    inner_saw: list[dict[str, str]] = []
    outer_saw: list[str] = []

    async def look(arguments: Word, call: Call) -> str:
        inner_saw.append(seen())
        return "seen"

    async with asyncio.TaskGroup() as jobs:
        inner = await _open(agent_session, Echo(does=look), jobs=jobs)

        async def nest(arguments: Word, call: Call) -> str:
            await inner.say(_message("go"), source="test", external_id=new_id())
            outer_saw.append(get_session_env(ID))
            return "nested"

        known = SessionContext(platform="telegram", chat_id="7", cron_auto_deliver_chat_id="9", async_delivery=False)
        outer = await _open(agent_session, Echo(does=nest), jobs=jobs, context=known)
        assert await outer.say(_message("go"), source="test", external_id=new_id()) == TurnAnswered("ok")
        await inner.close()
        await outer.close()
    assert inner_saw == [{name: inner.session_id if name == ID else "" for name in FIELDS}]
    assert outer_saw == [outer.session_id]


@pytest.mark.slow
async def test_terminal_commands_have_the_session_in_their_environment(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, chat=Address("telegram", "7"), key="k:7") as client,
    ):
        server.script(Say(calls=[Ask("terminal", {"command": "env | grep ^TALARIA_ | sort"})]))
        await client.say("hi")
        text = "\n".join(text for role, text in await client.transcript() if role == "tool")
        for line in (
            "CHAT_ID=7",
            f"ID={client.active_session.session_id}",
            "KEY=k:7",
            "PLATFORM=telegram",
            "THREAD_ID=",
        ):
            assert f"TALARIA_SESSION_{line}\n" in text
        assert client.active_session.chat.workspace.environment[ID] == client.active_session.session_id


async def test_active_session_of_a_terminal_is_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ID, "of whoever started us")
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        first = client.active_session.session_id
        assert process_environment()[ID] == first
        await client.say("hi")
        await client.active_session.reset_session()
        assert process_environment()[ID] == client.active_session.session_id != first
        await client.use(f"/resume {first}")
        assert process_environment()[ID] == first
        await client.use("/branch")
        assert process_environment()[ID] == client.active_session.session_id != first
    assert ID not in process_environment()


async def test_chat_session_does_not_change_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ID, "of whoever started us")
    async with ModelServer() as server, open_chat_client(tmp_path, server, chat=Address("telegram", "7"), key="k:7"):
        assert process_environment()[ID] == "of whoever started us"


async def _open(
    agent_session: AgentSession, *tools: Tool, jobs: asyncio.TaskGroup, context: SessionContext | None = None
) -> SessionRunner:
    """Open a new session on the store of another session."""
    session = await agent_session.store.write(lambda tx: tx.sessions.create(NewSession(source="test")))
    options = RunnerOptions(context=context or SessionContext(), titled=False)
    auxiliary, agent = Auxiliary(agent_session.calls), agent_session.agent(*tools, session_id=SessionId(session.id))
    return SessionRunner(
        agent_session.store,
        SessionId(session.id),
        agent,
        agent_session.environment(),
        jobs,
        auxiliary=auxiliary,
        options=options,
    )


def _message(text: str) -> Message:
    return Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
