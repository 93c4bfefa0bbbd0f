"""Live feed: another process watches and controls a running turn; without watchers no events are written."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import StreamEvent
from talaria.core.events import ApprovalAsked, TextAdded, TurnAnswered, TurnBegan, TurnEnd, TurnStopped
from talaria.core.ids import SessionId
from talaria.core.messages import Text
from talaria.runtime.live.control import (
    CONTROL_MESSAGE,
    LIVE_WATCH,
    AnswerQuestion,
    ControlMessage,
    StopTurn,
    list_watchers,
    live_stream,
    renew_watch,
    send_control_message,
)
from talaria.runtime.live.feed import SNAPSHOT, FeedEvent, QuestionClosed, decode_chunk
from talaria.runtime.live.remote import RemoteWatcher
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import LIMIT, until

SLOW = Say("one two three four five six seven eight", pause=0.05)
DANGEROUS = Say(calls=[Ask("terminal", {"command": "echo true | sh && touch done"})])


class Viewer:
    """A watcher with its own store, as another process has it."""

    def __init__(self, store: Store, session_id: SessionId) -> None:
        self.store = store
        self.session_id = session_id
        self.seen: list[FeedEvent] = []
        self._changed = asyncio.Event()

    def see(self, event: FeedEvent) -> None:
        self.seen.append(event)
        self._changed.set()

    async def until(self, done: Callable[[list[FeedEvent]], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not done(self.seen):
                self._changed.clear()
                await self._changed.wait()

    @property
    def text(self) -> str:
        return "".join(one.text for one in self.seen if isinstance(one, TextAdded))


@asynccontextmanager
async def viewed(home: Path, session_id: SessionId) -> AsyncIterator[Viewer]:
    store = open_sqlite_store(home / "home" / "profiles" / "default" / "talaria.db")
    viewer = Viewer(store, session_id)
    try:
        async with asyncio.TaskGroup() as group:
            before = await store.read(list_watchers)
            following = group.create_task(RemoteWatcher(store, session_id, viewer.see).follow())
            await until(lambda: store.read(lambda tx: list_watchers(tx) != before))
            yield viewer
            following.cancel()
    finally:
        await store.close()


def ended(seen: list[FeedEvent]) -> bool:
    return any(isinstance(one, TurnEnd) for one in seen)


def has_text(seen: list[FeedEvent]) -> bool:
    return any(isinstance(one, TextAdded) for one in seen)


async def leftover_rows(client: ChatClient) -> list[str]:
    """Return the rows of watchers, control messages and events that are left in the store."""
    stream = live_stream(client.active_session.session_id)
    return await client.application.store.read(
        lambda tx: [
            *(watcher for _, watcher, _ in LIVE_WATCH.of_all(tx)),
            *(number for _, number, _ in CONTROL_MESSAGE.of_all(tx)),
            *(event.kind for event in tx.events.after(stream, 0)),
        ]
    )


@pytest.fixture
async def client(tmp_path: Path, server: ModelServer) -> AsyncIterator[ChatClient]:
    async with open_chat_client(tmp_path, server) as client:
        yield client


async def test_watcher_gets_all_events_of_a_turn(tmp_path: Path, server: ModelServer, client: ChatClient) -> None:
    server.script(SLOW)
    async with viewed(tmp_path, client.active_session.session_id) as viewer:
        await client.say("Count.")
        await viewer.until(ended)
        first = viewer.seen[0]
        assert isinstance(first, TurnBegan)
        assert first.text == "Count."
        assert viewer.text == SLOW.text
        assert viewer.seen[-1] == TurnAnswered(SLOW.text)
    assert await leftover_rows(client) == []


async def test_late_watcher_gets_all_events_of_the_turn_once(
    tmp_path: Path, server: ModelServer, client: ChatClient
) -> None:
    is_watched = asyncio.Event()
    server.script(Say(SLOW.text, hold=(4, is_watched)))
    await client.active_session.put(Text("Count."))
    await until_text(client, "three")
    async with viewed(tmp_path, client.active_session.session_id) as early:
        await early.until(has_text)
        async with viewed(tmp_path, client.active_session.session_id) as late:
            await late.until(has_text)
            is_watched.set()
            for viewer in (early, late):
                await viewer.until(ended)
                assert viewer.text == SLOW.text
                assert len([one for one in viewer.seen if isinstance(one, TurnBegan)]) == 1


async def test_watcher_noticed_after_the_turn_ended_gets_all_its_events(
    server: ModelServer, client: ChatClient
) -> None:
    """Nothing notifies the process of the watcher: it looks for one after the turn, unless it happens to earlier."""
    is_watched = asyncio.Event()
    session_id, store = client.active_session.session_id, client.application.store
    server.script(Say(SLOW.text, hold=(4, is_watched)))
    await client.active_session.put(Text("Count."))
    await until_text(client, "three")
    await store.write(lambda tx: renew_watch(tx, session_id, "late"))
    is_watched.set()
    await client.active_session.chat.conversation.wait_until_idle()
    rows = await until(lambda: store.read(lambda tx: read_ended_stream(tx, session_id)))
    events = [event for row in rows for event in decode_chunk(row.payload).events]
    assert [row.kind for row in rows].count(SNAPSHOT) == 1
    assert rows[0].kind == SNAPSHOT
    assert isinstance(events[0], TurnBegan)
    assert "".join(event.text for event in events if isinstance(event, TextAdded)) == SLOW.text
    assert events[-1] == TurnAnswered(SLOW.text)


def read_ended_stream(tx: Transaction, session_id: SessionId) -> list[StreamEvent]:
    """Return the rows of a session's stream once they include the end of the turn."""
    rows = tx.events.after(live_stream(session_id), 0)
    return rows if rows and isinstance(decode_chunk(rows[-1].payload).events[-1], TurnEnd) else []


async def until_text(client: ChatClient, word: str) -> None:
    await until(lambda: word in "".join(one.text for one in client.events if isinstance(one, TextAdded)))


async def test_turn_without_watchers_writes_no_events(server: ModelServer, client: ChatClient) -> None:
    server.script(SLOW)
    await client.say("Count.")
    assert await leftover_rows(client) == []


async def test_watcher_can_stop_the_turn(tmp_path: Path, server: ModelServer, client: ChatClient) -> None:
    server.script(Say("word " * 400, pause=0.05))
    await client.active_session.put(Text("Go on for ever."))
    async with viewed(tmp_path, client.active_session.session_id) as viewer:
        await viewer.until(has_text)
        assert await send_control_message(viewer.store, viewer.session_id, StopTurn())
        assert await client.active_session.chat.conversation.wait_until_idle() == TurnStopped()
        await viewer.until(ended)
        assert viewer.seen[-1] == TurnStopped()
        assert not await send_control_message(viewer.store, viewer.session_id, StopTurn())


async def test_watcher_can_answer_an_approval_question(tmp_path: Path, server: ModelServer, client: ChatClient) -> None:
    server.script(DANGEROUS, Say("Done."))
    await client.active_session.put(Text("Do it."))
    async with viewed(tmp_path, client.active_session.session_id) as viewer:
        await viewer.until(lambda seen: any(isinstance(one, ApprovalAsked) for one in seen))
        (asked,) = [one for one in viewer.seen if isinstance(one, ApprovalAsked)]
        await send_control_message(viewer.store, viewer.session_id, AnswerQuestion(asked.id, "no"))
        await viewer.until(ended)
        assert QuestionClosed(asked.id) in viewer.seen
        assert viewer.text == "Done."
    assert "the user refused" in str(await client.transcript())


async def test_control_message_for_an_ended_turn_does_not_affect_the_next(
    server: ModelServer, client: ChatClient
) -> None:
    server.script(SLOW, SLOW)
    await client.active_session.put(Text("Count."))
    await until_text(client, "one")
    (turn,) = await client.application.store.read(
        lambda tx: tx.turns.find(client.active_session.session_id, running=True)
    )
    await client.active_session.chat.conversation.wait_until_idle()
    message, session_id = ControlMessage(turn.id, StopTurn()), client.active_session.session_id
    await client.application.store.write(lambda tx: CONTROL_MESSAGE.write(tx, session_id, message, "1"))
    assert await client.say("Again.") == TurnAnswered(SLOW.text)
    assert await leftover_rows(client) == []


async def test_watcher_sees_consecutive_turns_and_old_events_are_deleted(
    tmp_path: Path, server: ModelServer, client: ChatClient
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with viewed(tmp_path, client.active_session.session_id) as viewer:
        for number in range(4):
            await client.say(f"number {number}")
            await viewer.until(lambda seen: TurnAnswered(f"re: number {number}") in seen)  # noqa: B023
        stored = await client.application.store.read(
            lambda tx: tx.events.after(live_stream(client.active_session.session_id), 0)
        )
        assert "number 0" not in "".join(event.payload for event in stored)
        assert "number 3" in "".join(event.payload for event in stored)


async def test_expired_watcher_and_its_events_are_removed(
    tmp_path: Path, server: ModelServer, client: ChatClient
) -> None:
    server.script(SLOW, SLOW)
    session_id = client.active_session.session_id
    lapsed = datetime(2020, 1, 1, tzinfo=UTC)
    await client.application.store.write(lambda tx: LIVE_WATCH.write(tx, session_id, lapsed, "dead"))
    await client.application.store.write(lambda tx: tx.events.append(live_stream(session_id), [("news", "old")]))
    await client.say("Count.")
    async with viewed(tmp_path, session_id) as viewer:
        await client.say("Again.")
        await viewer.until(ended)
        assert viewer.text == SLOW.text
    assert await leftover_rows(client) == []
