"""Chat registry as an agent cache: agents are reused, evicted, and closed by a reset."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.gateway.in_process_gateway import InProcessGateway, run_gateway
from tests.tools.process.process_fixture import start_sleeping_process

from talaria.contracts.background_processes import BackgroundProcess
from talaria.contracts.platform import Incoming, PlatformCapabilities, Sender
from talaria.contracts.store import Transaction
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.messages import Message, Text
from talaria.core.os_processes import is_running
from talaria.gateway.chats.chat import Chat
from talaria.gateway.chats.registry import UpdateLock
from talaria.goals.goal import read_goal
from talaria.runtime.active_session import bind_session
from talaria.runtime.live.control import redirect_running_turn
from talaria.runtime.turns import add_to_inbox
from talaria.sessions.keys import build_session_key
from talaria.sessions.preferences import Preferences, write_preferences
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.wait import LIMIT, until

OWNED = 'owners = ["loopback:ann", "loopback:bob"]\n'
ONE_ROOM = f"{OWNED}[gateway]\nopen_sessions = 1\n"


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096, idempotent=True)) as network:
        yield network


def key_of(chat: str) -> str:
    return build_session_key(Address("loopback", chat))


def chat_of(gateway: InProcessGateway, chat: str) -> Chat:
    room = gateway.chats.find(key_of(chat))
    assert room is not None
    return room


async def say(network: LoopbackNetwork, chat: str, text: str) -> str:
    """Send a message and return the answer."""
    count = len(network.shown(chat))
    network.say(chat, text, sender=chat)
    await network.until(lambda: len(network.shown(chat)) > count)
    return network.shown(chat)[-1]


async def start_process(gateway: InProcessGateway, chat: str) -> BackgroundProcess:
    """Start a background process in the session of a chat."""
    return await start_sleeping_process(gateway.application.processes, chat_of(gateway, chat).active_session.session_id)


async def until_ended(process: BackgroundProcess) -> None:
    await until(lambda: not is_running(process.pid))


async def until_idle(gateway: InProcessGateway, chat: str) -> None:
    """Wait for the end of the turn: its answer is shown a moment before, and some commands are refused until then."""
    await until(lambda: not chat_of(gateway, chat).active_session.busy)


async def until_evicted(gateway: InProcessGateway, chat: str) -> None:
    await until(lambda: gateway.chats.find(key_of(chat)) is None)


def prompts(server: ModelServer) -> list[str]:
    return [call.json["messages"][0]["content"] for call in server.received]


async def test_next_turn_reuses_the_agent_and_its_prompt(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED) as gateway:
        await say(network, "ann", "one")
        room, chat = chat_of(gateway, "ann"), chat_of(gateway, "ann").active_session.chat
        await say(network, "ann", "two")
        assert chat_of(gateway, "ann") is room
        assert room.active_session.chat is chat
    assert len(set(prompts(server))) == 1


async def test_workspace_and_processes_survive_eviction_and_end_with_a_new_session(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    def answer(received: Received) -> Say:
        last = received.json["messages"][-1]
        if last["role"] == "tool":
            return Say(f"It said {last['content']}")
        if received.question.startswith("run "):
            return Say(calls=[Ask("terminal", {"command": received.question.removeprefix("run ")})])
        return Say("ok")

    server.answering(answer)
    async with run_gateway(tmp_path, network.platform(), server.url, settings=ONE_ROOM) as gateway:
        await say(network, "ann", "run mkdir sub && cd sub && export MINE=hush")
        process = await start_process(gateway, "ann")
        session_id, chat = (
            chat_of(gateway, "ann").active_session.session_id,
            chat_of(gateway, "ann").active_session.chat,
        )
        await say(network, "bob", "hello")
        await until_evicted(gateway, "ann")
        assert is_running(process.pid)
        assert "sub hush" in await say(network, "ann", 'run echo "$PWD $MINE"')
        assert chat_of(gateway, "ann").active_session.session_id == session_id
        assert chat_of(gateway, "ann").active_session.chat is not chat
        assert is_running(process.pid)
        await until_idle(gateway, "ann")
        await say(network, "ann", "/new")
        assert chat_of(gateway, "ann").active_session.session_id != session_id
        await until_ended(process)
    assert len({prompt for prompt in prompts(server) if str(tmp_path) in prompt}) == 1


async def test_idle_reset_ends_the_processes_of_an_evicted_chat(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    hourly = f'{ONE_ROOM}[platforms.loopback]\nreset = "idle"\nreset_idle_minutes = 60\n'
    async with run_gateway(tmp_path, network.platform(), server.url, settings=hourly) as gateway:
        await say(network, "ann", "hello")
        process = await start_process(gateway, "ann")
        session_id = chat_of(gateway, "ann").active_session.session_id
        await say(network, "bob", "hello")
        await until_evicted(gateway, "ann")
        late = Incoming(
            external_id="late",
            address=Address("loopback", "ann"),
            sender=Sender("ann", "ann"),
            at=datetime.now(UTC) + timedelta(hours=2),
            text="and now?",
        )
        await gateway.dispatcher.receive(late)
        await network.until(lambda: "re: and now?" in network.shown("ann"))
        assert chat_of(gateway, "ann").active_session.session_id != session_id
        await until_ended(process)


async def test_changed_model_setting_replaces_the_agent_and_continues_the_session(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED) as gateway:
        await say(network, "ann", "one")
        await say(network, "bob", "one")
        process = await start_process(gateway, "ann")
        session_id, chat = (
            chat_of(gateway, "ann").active_session.session_id,
            chat_of(gateway, "ann").active_session.chat,
        )
        chat_of_bob = chat_of(gateway, "bob").active_session.chat
        live = gateway.application.settings_admin
        await until_idle(gateway, "ann")
        live.replace(structs.replace(live.current, model=structs.replace(live.current.model, name="other")))
        await say(network, "ann", "two")
        assert chat_of(gateway, "ann").active_session.chat is not chat
        assert chat_of(gateway, "ann").active_session.session_id == session_id
        assert chat_of(gateway, "bob").active_session.chat is chat_of_bob
        assert is_running(process.pid)
        await until_idle(gateway, "ann")
        network.say("ann", "/new")
        await until_ended(process)
    assert [call.json["model"] for call in server.received] == ["scripted", "scripted", "other"]


async def test_agent_spec_is_checked_only_after_a_change_of_settings_or_preferences(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED) as gateway:
        await say(network, "ann", "one")
        await say(network, "ann", "two")
        chat = chat_of(gateway, "ann").active_session.chat
        session_id = chat.conversation.session_id
        assert gateway.spec_checks == []
        live = gateway.application.settings_admin
        live.replace(live.current)
        await say(network, "ann", "three")
        await say(network, "ann", "four")
        assert gateway.spec_checks == [session_id]
        assert chat_of(gateway, "ann").active_session.chat is chat
        changed = Preferences(model="mine:test-model")
        await gateway.application.store.write(lambda tx: write_preferences(tx, session_id, changed))
        await say(network, "ann", "five")
        await say(network, "ann", "six")
        assert gateway.spec_checks == [session_id] * 2
        assert chat_of(gateway, "ann").active_session.chat is not chat
    assert [call.json["model"] for call in server.received] == ["scripted"] * 4 + ["test-model"] * 2


async def test_reasoning_effort_is_changed_without_replacing_the_agent(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED) as gateway:
        await say(network, "ann", "one")
        chat = chat_of(gateway, "ann").active_session.chat
        await until_idle(gateway, "ann")
        await say(network, "ann", "/reasoning high")
        await say(network, "ann", "two")
        assert chat_of(gateway, "ann").active_session.chat is chat
    assert [call.json.get("reasoning_effort") for call in server.received] == [None, "high"]


async def test_model_chosen_in_one_chat_replaces_only_the_agent_of_that_chat(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED) as gateway:
        await say(network, "ann", "one")
        await say(network, "bob", "one")
        chat, chat_of_bob = chat_of(gateway, "ann").active_session.chat, chat_of(gateway, "bob").active_session.chat
        await until_idle(gateway, "ann")
        assert "now uses" in await say(network, "ann", "/model mine:test-model")
        await say(network, "ann", "two")
        await say(network, "bob", "two")
        assert chat_of(gateway, "ann").active_session.chat is not chat
        assert chat_of(gateway, "bob").active_session.chat is chat_of_bob
    assert [call.json["model"] for call in server.received] == ["scripted", "scripted", "test-model", "scripted"]


def is_goal_parked(tx: Transaction, gateway: InProcessGateway) -> bool:
    """Return whether the goal of Ann's chat waits for its time."""
    goal = read_goal(tx, chat_of(gateway, "ann").active_session.session_id).state
    return goal is not None and goal.parked is not None


async def test_a_chat_with_a_waiting_goal_is_not_evicted(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    def answer(received: Received) -> Say:
        if "You judge whether an agent" in received.body.decode():
            return Say('{"verdict": "wait", "reason": "The ship is at sea.", "wait_seconds": 3600}')
        return Say("The ship has left.")

    server.answering(answer)
    async with run_gateway(tmp_path, network.platform(), server.url, settings=ONE_ROOM) as gateway:
        network.say("ann", "/goal sail round the world")
        await server.arrived(2)
        async with asyncio.timeout(LIMIT):
            while not await gateway.application.store.read(lambda tx: is_goal_parked(tx, gateway)):
                continue
        await say(network, "bob", "hello")
        gateway.chats.sweep()
        assert gateway.chats.find(key_of("ann")) is not None


async def test_session_that_returns_after_its_turn_was_handed_off_answers(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    away = Address("web", "owner", thread_id="1")
    here = Address("loopback", "ann")

    async def answer(received: Received) -> Say:
        if received.question == "Wait":
            room, session_id = chat_of(gateway, "ann"), chat_of(gateway, "ann").active_session.session_id

            def hand_off(tx: Transaction) -> None:
                bind_session(tx, session_id, build_session_key(away), away)
                redirect_running_turn(tx, session_id, ReplyRoute(away))

            await room.active_session.store.write(hand_off)
        return Say(f"re: {received.question}")

    server.answering(answer)
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED) as gateway:
        await say(network, "ann", "Hello")
        session_id, store = chat_of(gateway, "ann").active_session.session_id, gateway.application.store
        chat_of(gateway, "ann").release = lambda: False  # the turn ends before the notice that it was moved arrives
        network.say("ann", "Wait", sender="ann")
        await until(lambda: store.read(lambda tx: len(tx.turns.find(session_id)) == 2))
        await until(lambda: store.read(lambda tx: not tx.turns.find(session_id, running=True)))
        await store.write(lambda tx: bind_session(tx, session_id, key_of("ann"), here))
        network.say("ann", "Back", sender="ann")
        await network.until(lambda: "re: Back" in network.shown("ann"))
        assert chat_of(gateway, "ann").active_session.session_id == session_id


async def test_message_that_was_moved_by_a_reset_waits_for_the_updates_before_it(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED) as gateway:
        await say(network, "ann", "Hello")
        store, left = gateway.application.store, chat_of(gateway, "ann").active_session.session_id
        async with gateway.chats.in_turn(key_of("ann"), Address("loopback", "ann"), left) as chat:
            message = Message(role="user", parts=(Text("Later"),), at=datetime.now(UTC))
            await add_to_inbox(store, left, "loopback", "later", message)
            session_id = (await chat.active_session.reset_session()).conversation.session_id
            for _ in range(5):
                await store.write(lambda tx: None)
            assert not await store.read(lambda tx: tx.turns.find(session_id))
        await until(lambda: any(received.question == "Later" for received in server.received))


async def test_updates_of_a_chat_are_awaited_until_the_last_is_dispatched() -> None:
    lock, order = UpdateLock(), list[str]()

    async def use(name: str) -> None:
        async with lock:
            order.append(name)

    async with asyncio.TaskGroup() as group:
        async with lock:
            users = [group.create_task(use(name)) for name in "abc"]
            waiting = group.create_task(lock.wait_for_updates())
            await asyncio.sleep(0)
            users[1].cancel()
            users.append(group.create_task(use("d")))
            await asyncio.sleep(0)
            assert (order, waiting.done()) == ([], False)
        assert await waiting
        assert order == ["a", "c", "d"]
        assert not await lock.wait_for_updates()
