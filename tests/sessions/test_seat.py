"""A place at which conversations are opened in turn."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.commands.desk import open_desk

from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.sessions.lane import admit
from talaria.sessions.preferences import Preferences, write_preferences
from talaria.testing.model_server import ModelServer

CHAT = Address("telegram", "7")


async def test_a_chat_is_bound_to_the_conversation_that_begins_in_it(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, chat=CHAT, key="telegram:7") as desk:
        await desk.say("hi")
        await desk.seat.begin_anew()
        binding = await desk.house.store.read(lambda tx: tx.bindings.get("telegram:7"))
        assert binding is not None
        assert binding.session_id == desk.seat.session_id
        assert binding.address == CHAT


async def test_a_conversation_that_cannot_be_opened_leaves_the_place_as_it_was(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await desk.say("one")
        lost = desk.seat.session_id
        await desk.seat.begin_anew()
        await desk.say("two")
        here = desk.seat.session_id
        choice = Preferences(model="nowhere:nothing")
        await desk.house.store.write(lambda tx: write_preferences(tx, lost, choice))
        with pytest.raises(TalariaError):
            await desk.seat.move_to(lost)
        with pytest.raises(TalariaError):
            await desk.seat.move_to(SessionId("unknown"))
        assert desk.seat.session_id == here
        await desk.say("three")
        assert [text for role, text in await desk.transcript() if role == "user"] == ["two", "three"]


async def test_a_conversation_that_cannot_be_opened_anew_goes_on_as_it_was(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await desk.say("one")
        here = desk.seat.session_id
        choice = Preferences(model="nowhere:nothing")
        await desk.house.store.write(lambda tx: write_preferences(tx, here, choice))
        with pytest.raises(TalariaError):
            await desk.seat.renew()
        await desk.say("two")
        assert [text for role, text in await desk.transcript() if role == "user"] == ["one", "two"]


async def test_a_conversation_in_which_nothing_waits_is_not_busy_when_it_is_opened(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        for opened in (desk.seat.renew, desk.seat.begin_anew, desk.seat.renew):
            await opened()
            assert not desk.seat.busy


async def test_what_waits_is_worked_off_when_the_conversation_is_opened(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        here = desk.seat.session_id
        said = Message(role="user", parts=(Text("still there?"),), at=datetime.now(UTC))
        await admit(desk.house.store, here, "test", "1", said)
        await desk.seat.renew()
        await desk.seat.chat.conversation.settled()
        assert await desk.transcript() == [("user", "still there?"), ("assistant", "ok")]


async def test_what_goes_on_beside_a_conversation_outlives_it_and_ends_with_the_place(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def beside() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        desk.seat.start_beside(beside())
        await begun.wait()
        await desk.seat.begin_anew()
        assert not ended.is_set()
        await desk.seat.close()
        assert ended.is_set()


async def test_a_place_that_is_closed_while_it_opens_another_conversation_has_none_open(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await desk.say("one")
        async with asyncio.TaskGroup() as group:
            opening = group.create_task(desk.seat.begin_anew())
            await asyncio.sleep(0)  # it has begun
            group.create_task(desk.seat.close())
        assert not opening.result().conversation.busy
        assert not desk.seat.is_open
        with pytest.raises(Refused):
            await desk.seat.open()


async def test_what_has_begun_behind_a_move_is_not_begun_anew(
    tmp_path: Path,
) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, chat=CHAT, key="telegram:7") as desk:
        await desk.say("one")
        store, moved = desk.house.store, desk.seat.session_id
        begun = await store.write(lambda tx: tx.sessions.create(NewSession(source="telegram")))
        await store.write(lambda tx: tx.bindings.bind("telegram:7", begun.id, CHAT))
        await desk.seat.begin_anew(behind=moved)
        binding = await store.read(lambda tx: tx.bindings.get("telegram:7"))
        assert binding is not None
        assert (binding.session_id, desk.seat.session_id) == (begun.id, moved)
        await store.write(lambda tx: tx.bindings.unbind("telegram:7"))
        await desk.seat.begin_anew(behind=moved)
        binding = await store.read(lambda tx: tx.bindings.get("telegram:7"))
        assert binding is not None
        assert binding.session_id == desk.seat.session_id != moved
