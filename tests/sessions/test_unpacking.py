"""Files of a message are fetched while the lane is held and before its turn begins; on every engine."""

import asyncio

import pytest
from msgspec import structs
from tests.contracts.speech import said

from talaria.contracts.platform import Attachment
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.turn_log import TurnLog
from talaria.core.addresses import Address, Route
from talaria.core.errors import Refused, StoreBusy
from talaria.core.events import TurnAnswered, TurnEnd
from talaria.core.ids import SessionId
from talaria.core.messages import File, Message, Text
from talaria.sessions.admitted import Admitted, Packed, Unpack, unpacked
from talaria.sessions.lane import Terms, admit, arrival_of, work_off
from talaria.sessions.waiting import waiting
from talaria.testing.clock import NOON

NOTES = Attachment("f1", "document", "notes.txt")
ROUTE = Route(Address("telegram", "1"))
FILE = File("/media/notes.txt", "notes.txt")


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


async def agree(turn: TurnLog) -> TurnEnd:
    """Answer whatever was said last."""
    end = TurnAnswered(f"yes, {(await turn.transcript())[-1].message.text}")
    await turn.finish(end, Message(role="assistant", parts=(Text(end.text),), at=NOON))
    return end


async def fetch(packed: Packed) -> Message:
    return unpacked(packed.message, FILE)


async def bring(store: Store, session_id: SessionId, text: str, *, priority: int = 0) -> None:
    """Let a message with a file arrive."""
    message = Admitted(**structs.asdict(said(text)), route=ROUTE, attachments=(NOTES,))
    came = arrival_of(session_id, "test", text, message, kind="message")
    await store.write(lambda tx: tx.inbox.add(structs.replace(came, priority=priority)))


async def parts(store: Store, session_id: SessionId) -> list[object]:
    stored = await store.read(lambda tx: tx.messages.load(session_id))
    return [one.message.parts for one in stored if one.message.role == "user"]


async def test_a_turn_begins_with_what_was_fetched_and_in_order(store: Store, session_id: SessionId) -> None:
    await bring(store, session_id, "look")
    await admit(store, session_id, "test", "2", said("and?"))
    assert await work_off(store, session_id, agree, Terms(unpack=fetch)) == TurnAnswered("yes, and?")
    assert await parts(store, session_id) == [(Text("look"), FILE), (Text("and?"),)]
    assert await store.read(lambda tx: tx.inbox.unsettled(session_id)) == []


async def test_where_nothing_can_be_fetched_from_the_file_is_named(store: Store, session_id: SessionId) -> None:
    await bring(store, session_id, "look")
    await work_off(store, session_id, agree)
    note = Text("(The file notes.txt came along, and cannot be fetched here.)")
    assert await parts(store, session_id) == [(Text("look"), note)]


async def test_the_lane_is_held_while_files_are_fetched(store: Store, session_id: SessionId) -> None:
    async def interfere(packed: Packed) -> Message:
        with pytest.raises(Refused):
            await work_off(store, session_id, agree, Terms(unpack=fetch))
        assert await store.read(lambda tx: tx.turns.find(session_id)) == []
        return await fetch(packed)

    await bring(store, session_id, "look")
    assert await work_off(store, session_id, agree, Terms(unpack=interfere)) == TurnAnswered("yes, look")


async def fail(packed: Packed) -> Message:
    raise StoreBusy("the disk is slow")


async def hang(packed: Packed) -> Message:
    await asyncio.Event().wait()
    raise AssertionError("never")


@pytest.mark.parametrize("unpack", [fail, hang])
async def test_whoever_is_cut_off_leaves_it_for_the_next(store: Store, session_id: SessionId, unpack: Unpack) -> None:
    await bring(store, session_id, "look")
    begun = asyncio.Event()

    async def noticed(packed: Packed) -> Message:
        begun.set()
        return await unpack(packed)

    work = asyncio.ensure_future(work_off(store, session_id, agree, Terms(unpack=noticed)))
    await begun.wait()
    if unpack is hang:
        work.cancel()
    await asyncio.wait([work])
    assert work.cancelled() or isinstance(work.exception(), StoreBusy)
    assert await store.read(lambda tx: tx.turns.find(session_id)) == []
    assert await work_off(store, session_id, agree, Terms(unpack=fetch)) == TurnAnswered("yes, look")


async def test_what_is_more_urgent_goes_first_and_nothing_is_fetched_twice(store: Store, session_id: SessionId) -> None:
    fetched: list[str] = []

    async def while_something_urgent_arrives(packed: Packed) -> Message:
        fetched.append(packed.message.text)
        if len(fetched) == 1:
            await bring(store, session_id, "urgent", priority=5)
        return await fetch(packed)

    await bring(store, session_id, "look")
    await work_off(store, session_id, agree, Terms(unpack=while_something_urgent_arrives))
    assert fetched == ["look", "urgent"]
    assert await parts(store, session_id) == [(Text("urgent"), FILE), (Text("look"), FILE)]


async def test_what_waits_is_shown_with_its_files(store: Store, session_id: SessionId) -> None:
    await bring(store, session_id, "look")
    (message,) = await store.read(lambda tx: waiting(tx, session_id))
    assert message.text == "look\n(The file notes.txt comes along.)"
