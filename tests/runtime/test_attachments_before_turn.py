"""Attachments are fetched under the lease of the session and before the turn starts; on every engine."""

import asyncio

import pytest
from msgspec import structs
from tests.contracts.sample_messages import text_message
from tests.runtime.scripted_runner import run_pending_turns

from talaria.contracts.platform import Attachment
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.turns import TurnLog
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import Refused, StoreBusy
from talaria.core.events import TurnAnswered, TurnEnd
from talaria.core.ids import SessionId
from talaria.core.messages import File, Message, Text
from talaria.runtime.turns import (
    FetchAttachments,
    InboxMessage,
    PendingAttachments,
    add_to_inbox,
    list_pending_messages,
    make_inbox_arrival,
    to_transcript_message,
)
from talaria.testing.clock import NOON

NOTES = Attachment("f1", "document", "notes.txt")
ROUTE = ReplyRoute(Address("telegram", "1"))
FILE = File("/media/notes.txt", "notes.txt")


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


async def agree(turn: TurnLog) -> TurnEnd:
    """Answer the last message."""
    end = TurnAnswered(f"yes, {(await turn.read_transcript())[-1].message.text}")
    await turn.finish(end, Message(role="assistant", parts=(Text(end.text),), at=NOON))
    return end


async def fetch(packed: PendingAttachments) -> Message:
    return to_transcript_message(packed.message, FILE)


async def add_message_with_file(store: Store, session_id: SessionId, text: str, *, priority: int = 0) -> None:
    """Add a message with a file to the inbox."""
    message = InboxMessage(**structs.asdict(text_message(text)), route=ROUTE, attachments=(NOTES,))
    arrival = make_inbox_arrival(session_id, "test", text, message, kind="message")
    await store.write(lambda tx: tx.inbox.add(structs.replace(arrival, priority=priority)))


async def parts(store: Store, session_id: SessionId) -> list[object]:
    stored = await store.read(lambda tx: tx.messages.load(session_id))
    return [one.message.parts for one in stored if one.message.role == "user"]


async def test_turn_starts_with_the_fetched_file_in_message_order(store: Store, session_id: SessionId) -> None:
    await add_message_with_file(store, session_id, "look")
    await add_to_inbox(store, session_id, "test", "2", text_message("and?"))
    assert await run_pending_turns(store, session_id, agree, unpack=fetch) == TurnAnswered("yes, and?")
    assert await parts(store, session_id) == [(Text("look"), FILE), (Text("and?"),)]
    assert await store.read(lambda tx: tx.inbox.list_unsettled(session_id)) == []


async def test_file_that_cannot_be_fetched_is_named_in_the_message(store: Store, session_id: SessionId) -> None:
    await add_message_with_file(store, session_id, "look")
    await run_pending_turns(store, session_id, agree)
    note = Text("(The file notes.txt can't be downloaded here.)")
    assert await parts(store, session_id) == [(Text("look"), note)]


async def test_session_is_leased_while_files_are_fetched(store: Store, session_id: SessionId) -> None:
    async def interfere(packed: PendingAttachments) -> Message:
        with pytest.raises(Refused):
            await run_pending_turns(store, session_id, agree, unpack=fetch)
        assert await store.read(lambda tx: tx.turns.find(session_id)) == []
        return await fetch(packed)

    await add_message_with_file(store, session_id, "look")
    assert await run_pending_turns(store, session_id, agree, unpack=interfere) == TurnAnswered("yes, look")


async def fail(packed: PendingAttachments) -> Message:
    raise StoreBusy("the disk is slow")


async def hang(packed: PendingAttachments) -> Message:
    await asyncio.Event().wait()
    raise AssertionError("never")


@pytest.mark.parametrize("unpack", [fail, hang])
async def test_a_cancelled_turn_leaves_attachments_for_the_next(
    store: Store, session_id: SessionId, unpack: FetchAttachments
) -> None:
    await add_message_with_file(store, session_id, "look")
    started = asyncio.Event()

    async def fetch_and_signal(packed: PendingAttachments) -> Message:
        started.set()
        return await unpack(packed)

    work = asyncio.ensure_future(run_pending_turns(store, session_id, agree, unpack=fetch_and_signal))
    await started.wait()
    if unpack is hang:
        work.cancel()
    await asyncio.wait([work])
    assert work.cancelled() or isinstance(work.exception(), StoreBusy)
    assert await store.read(lambda tx: tx.turns.find(session_id)) == []
    assert await run_pending_turns(store, session_id, agree, unpack=fetch) == TurnAnswered("yes, look")


async def test_urgent_message_runs_first_and_no_file_is_fetched_twice(store: Store, session_id: SessionId) -> None:
    fetched: list[str] = []

    async def fetch_while_urgent_message_arrives(packed: PendingAttachments) -> Message:
        fetched.append(packed.message.text)
        if len(fetched) == 1:
            await add_message_with_file(store, session_id, "urgent", priority=5)
        return await fetch(packed)

    await add_message_with_file(store, session_id, "look")
    await run_pending_turns(store, session_id, agree, unpack=fetch_while_urgent_message_arrives)
    assert fetched == ["look", "urgent"]
    assert await parts(store, session_id) == [(Text("urgent"), FILE), (Text("look"), FILE)]


async def test_pending_messages_are_shown_with_their_files(store: Store, session_id: SessionId) -> None:
    await add_message_with_file(store, session_id, "look")
    (message,) = await store.read(lambda tx: list_pending_messages(tx, session_id))
    assert message.text == "look\n(The file notes.txt is attached.)"
