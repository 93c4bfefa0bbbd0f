"""Active session of a terminal or chat: opening, switching and closing sessions."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.commands.command_fixture import open_chat_client

from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.runtime.turns import add_to_inbox
from talaria.sessions.preferences import Preferences, write_preferences
from talaria.testing.model_server import ModelServer

CHAT = Address("telegram", "7")


async def test_chat_is_bound_to_the_session_that_starts_in_it(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, chat=CHAT, key="telegram:7") as client:
        await client.say("hi")
        await client.active_session.reset_session()
        binding = await client.application.store.read(lambda tx: tx.bindings.get("telegram:7"))
        assert binding is not None
        assert binding.session_id == client.active_session.session_id
        assert binding.address == CHAT


async def test_failed_switch_leaves_the_active_session_unchanged(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("one")
        lost = client.active_session.session_id
        await client.active_session.reset_session()
        await client.say("two")
        here = client.active_session.session_id
        choice = Preferences(model="nowhere:nothing")
        await client.application.store.write(lambda tx: write_preferences(tx, lost, choice))
        with pytest.raises(TalariaError):
            await client.active_session.move_to(lost)
        with pytest.raises(TalariaError):
            await client.active_session.move_to(SessionId("unknown"))
        assert client.active_session.session_id == here
        await client.say("three")
        assert [text for role, text in await client.transcript() if role == "user"] == ["two", "three"]


async def test_session_that_cannot_be_renewed_continues_with_its_agent(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("one")
        here = client.active_session.session_id
        choice = Preferences(model="nowhere:nothing")
        await client.application.store.write(lambda tx: write_preferences(tx, here, choice))
        with pytest.raises(TalariaError):
            await client.active_session.renew()
        await client.say("two")
        assert [text for role, text in await client.transcript() if role == "user"] == ["one", "two"]


async def test_session_without_pending_messages_is_not_busy_when_opened(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        for opened in (client.active_session.renew, client.active_session.reset_session, client.active_session.renew):
            await opened()
            assert not client.active_session.busy


async def test_pending_messages_are_processed_when_the_session_is_opened(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        here = client.active_session.session_id
        message = Message(role="user", parts=(Text("still there?"),), at=datetime.now(UTC))
        await add_to_inbox(client.application.store, here, "test", "1", message)
        await client.active_session.renew()
        await client.active_session.chat.conversation.wait_until_idle()
        assert await client.transcript() == [("user", "still there?"), ("assistant", "ok")]


async def test_background_task_survives_a_reset_and_ends_when_the_active_session_closes(tmp_path: Path) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def run_alongside() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        client.active_session.start_background_task(run_alongside())
        await started.wait()
        await client.active_session.reset_session()
        assert not ended.is_set()
        await client.active_session.close()
        assert ended.is_set()


async def test_active_session_closed_while_opening_another_stays_closed(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("one")
        async with asyncio.TaskGroup() as group:
            opening = group.create_task(client.active_session.reset_session())
            await asyncio.sleep(0)  # the task has started
            group.create_task(client.active_session.close())
        assert not opening.result().conversation.busy
        assert not client.active_session.is_open
        with pytest.raises(Refused):
            await client.active_session.open()


async def test_reset_after_a_move_does_not_replace_a_session_bound_since(
    tmp_path: Path,
) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, chat=CHAT, key="telegram:7") as client:
        await client.say("one")
        store, moved = client.application.store, client.active_session.session_id
        begun = await store.write(lambda tx: tx.sessions.create(NewSession(source="telegram")))
        await store.write(lambda tx: tx.bindings.bind("telegram:7", begun.id, CHAT))
        await client.active_session.reset_session(moved_session=moved)
        binding = await store.read(lambda tx: tx.bindings.get("telegram:7"))
        assert binding is not None
        assert (binding.session_id, client.active_session.session_id) == (begun.id, moved)
        await store.write(lambda tx: tx.bindings.unbind("telegram:7"))
        await client.active_session.reset_session(moved_session=moved)
        binding = await store.read(lambda tx: tx.bindings.get("telegram:7"))
        assert binding is not None
        assert binding.session_id == client.active_session.session_id != moved
