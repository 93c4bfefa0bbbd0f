"""Handoff targets by network: a thread if possible, else the home chat itself."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.system.handoff_fixture import GREETING, Terminal, answer, start_session
from tests.system.test_gateway_process import running

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.discord_server import DiscordServer
from talaria.testing.discord_server.world import Room
from talaria.testing.model_server import ModelServer
from talaria.testing.telegram_server import Chat, TelegramServer, User


async def hand_off(program: Program, platform: str) -> Address:
    """Hand a terminal session off to the home chat of a network, and return its address there."""
    store = open_sqlite_store(program.home / "profiles" / "default" / "talaria.db")
    try:
        terminal = Terminal(store)
        session_id = await terminal.ask(lambda tx: request_handoff(tx, platform))
        over = await terminal.until_over(session_id)
        assert over["state"] == "completed", over["error"]
        (binding,) = await terminal.bindings(session_id)
        return binding.address
    finally:
        await store.close()


def request_handoff(tx: Transaction, platform: str) -> SessionId:
    session_id = start_session(tx)
    assert tx.handoffs.request_handoff(session_id, platform)
    return session_id


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as telegram:
        yield telegram


@pytest.fixture
async def discord() -> AsyncIterator[DiscordServer]:
    async with DiscordServer(heartbeat=1) as discord:
        yield discord


def chat_on_telegram(telegram: TelegramServer, ann: User, kind: str) -> Chat:
    match kind:
        case "forum" | "closed forum":
            return telegram.forum("Workshop", ann, admin=kind == "forum")
        case "group":
            return telegram.group("Workshop", ann)
        case _:
            return telegram.private(ann)


@pytest.mark.parametrize(
    ("kind", "threaded"), [("forum", True), ("private", True), ("group", False), ("closed forum", False)]
)
async def test_handoff_to_telegram_uses_a_topic_or_else_the_chat(
    tmp_path: Path, server: ModelServer, telegram: TelegramServer, kind: str, threaded: bool
) -> None:
    server.answering(answer)
    ann = telegram.user("Ann")
    program = scripted_program(
        tmp_path,
        server,
        f'[access]\nowners = ["telegram:{ann.id}"]\n'
        f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\nbase_file_url = "{telegram.base_file_url}"\n',
        f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
    )
    chat, shared = chat_on_telegram(telegram, ann, kind), kind != "private"
    async with running(program):
        await chat.says(ann, "/sethome", mention=shared)
        await chat.wait_for(lambda one: "my home chat on Telegram" in one.text)
        address = await hand_off(program, "telegram")
        greeting = await chat.wait_for(lambda one: one.text == GREETING)
        thread = greeting.thread if threaded else None
        await chat.says(ann, "and now?", thread=thread, mention=shared and not threaded)
        question = "[Ann] and now?" if shared and threaded else "and now?"
        last = await chat.wait_for(lambda one: one.text == f"re: {question}")
    assert (address.chat_id, address.thread_id) == (str(chat.id), str(thread or ""))
    assert not threaded or last.thread == greeting.thread
    assert "Build a boat." in server.received[-1].body.decode()


def room_on_discord(discord: DiscordServer, kind: str) -> Room:
    if kind == "private":
        return discord.private(discord.user("Ann"))
    room = discord.channel("workshop")
    room.channel.forbids |= {"forbidden": {"threads"}, "refused": {"threads", "all threads"}}.get(kind, set())
    return room


@pytest.mark.parametrize(
    ("kind", "threaded"), [("text", True), ("forbidden", True), ("refused", False), ("private", False)]
)
async def test_handoff_to_discord_uses_a_thread_or_else_the_channel(
    tmp_path: Path, server: ModelServer, discord: DiscordServer, kind: str, threaded: bool
) -> None:
    server.answering(answer)
    ann = discord.user("Ann")
    program = scripted_program(
        tmp_path,
        server,
        f'[access]\nowners = ["discord:{ann.id}"]\n[platforms.discord.options]\napi_url = "{discord.api_url}"\n',
        f"DISCORD_BOT_TOKEN={discord.token}\n",
    )
    home = room_on_discord(discord, kind)
    async with running(program):
        await discord.world.until(lambda: len(discord.gateway.logins) >= 1)
        await home.uses(ann, "sethome")
        await home.wait_for(lambda post: "my home chat on Discord" in post.text)
        address = await hand_off(program, "discord")
        room = discord.room(address.thread_id) if threaded else home
        await room.wait_for(lambda post: post.text == GREETING)
        await room.says(ann, "and now?", mention=kind == "refused")
        question = "[Ann] and now?" if threaded else "and now?"
        await room.wait_for(lambda post: post.text == f"re: {question}")
    seeds = [post.id for post in home.answers if post.text == "The boat"]
    assert (address.chat_id, bool(address.thread_id)) == (home.id, threaded)
    assert seeds == ([address.thread_id] if kind == "forbidden" else [])
    assert "Build a boat." in server.received[-1].body.decode()
