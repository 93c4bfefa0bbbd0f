"""Fan-out of live events: one watcher per conversation and process, one stream per browser."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection

import msgspec
from msgspec import structs

from talaria.contracts.store import Store
from talaria.core.events import (
    ApprovalAsked,
    QuestionAsked,
    TextAdded,
    ToolProgressed,
    TurnBegan,
    TurnEnd,
    TurnFailed,
)
from talaria.core.ids import SessionId, TurnId
from talaria.http.fan_out import Channel, Follower
from talaria.http.routing import format_sse
from talaria.runtime.live.feed import FeedBuffer, FeedEvent, QuestionClosed
from talaria.runtime.live.remote import RemoteWatcher
from talaria.web.front_door import WebCaller
from talaria.web.wire import DeliveredMessage, SessionMessage, StreamMessage

_TICK = 0.015  # seconds in which events are joined before they are sent; the first piece of text is sent at once
_REMEMBERED_TURNS = 16
_encode = msgspec.json.Encoder().encode


class BrowserStream(Follower[bytes]):
    """The stream of one browser; implements `ReplyStream`.

    ``seen`` are the conversations on visible pages; of a page without one, its name.
    """

    __slots__ = ("_lagging", "_on_close", "caller", "id", "seen", "topics")

    def __init__(self, stream_id: str, caller: WebCaller, on_close: Callable[["BrowserStream"], None]) -> None:
        super().__init__()
        self.id = stream_id
        self.caller = caller
        self.topics: tuple[str, ...] = ()
        self.seen: tuple[str, ...] = ()
        self._on_close = on_close
        self._lagging: dict[SessionId, SessionChannel] = {}

    @property
    def is_visible(self) -> bool:
        """Return whether a page of this browser is visible."""
        return bool(self.seen)

    def set_seen(self, seen: tuple[str, ...]) -> list[str]:
        """Set what is on visible pages, and return what was not there before."""
        before, self.seen = self.seen, seen
        return [one for one in seen if one not in before]

    def add_topic(self, topic: str) -> None:
        """Add what it is about."""
        if topic not in self.topics:
            self.topics += (topic,)

    def remove_topic(self, topic: str) -> None:
        """Remove what it is no longer about."""
        self.topics = tuple(one for one in self.topics if one != topic)

    @property
    def is_whole(self) -> bool:
        """Return whether it has ended by itself; a stream of events never does."""
        return self.has_ended

    def send(self, message: StreamMessage) -> None:
        """Queue a message."""
        data = encode_message(message)
        self.push(data, len(data))

    def send_encoded(self, data: bytes, channel: "SessionChannel") -> None:
        """Queue an encoded message of a channel; a reader that is too slow gets a snapshot instead."""
        if channel.session_id in self._lagging or self.is_slow:
            self._lagging[channel.session_id] = channel
        else:
            self.push(data, len(data))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while pieces := await self.take():
            yield b"".join(pieces)
            lagging, self._lagging = self._lagging, {}
            for channel in lagging.values():
                channel.send_snapshot(self)

    async def close(self) -> None:
        """Leave all topics."""
        self._on_close(self)


class SessionChannel(Channel[BrowserStream]):
    """Live events of one conversation, from this process or through the store from another.

    A turn of this process is published directly. Its events come back through the store as well, and are ignored there.
    So are those of a turn that has ended: a watcher that was away for too long gets its last turn once more.
    """

    def __init__(self, session_id: SessionId, store: Store, jobs: asyncio.TaskGroup) -> None:
        super().__init__(jobs)
        self.session_id = session_id
        self._store = store
        self._snapshot = FeedBuffer()
        self._asked: dict[str, FeedEvent] = {}
        self._pending = FeedBuffer()
        self._timer: asyncio.TimerHandle | None = None
        self._flushed_at = self._text_sent_at = 0.0
        self._own_turns: deque[TurnId] = deque(maxlen=_REMEMBERED_TURNS)
        self._ended_turns: deque[TurnId] = deque(maxlen=_REMEMBERED_TURNS)
        self._remote_turn: TurnId | None = None
        self._is_running = False

    @property
    def is_unused(self) -> bool:
        """Return whether nobody listens and no turn of this process is running."""
        return not self.followers and not self._is_running

    def join(self, follower: BrowserStream) -> None:
        """Send the turn so far to a stream, and everything from now on."""
        self.send_snapshot(follower)
        super().join(follower)

    async def watch(self) -> None:
        """Publish what another process reports."""
        await RemoteWatcher(self._store, self.session_id, self._on_remote_event).follow()

    def send_snapshot(self, stream: BrowserStream) -> None:
        """Send the turn so far; empty if none is running."""
        self._flush()  # what the snapshot has must not follow it
        events = (*self._snapshot.collect(), *self._asked.values())
        if not stream.caller.is_owner:
            events = tuple(map(_remove_details, events))
        stream.send(SessionMessage(self.session_id, snapshot=True, events=tuple(events)))

    def publish(self, event: FeedEvent) -> None:
        """Publish an event of a turn that runs in this process."""
        if isinstance(event, TurnBegan):
            self._own_turns.append(event.turn_id)
            self._is_running = True
        elif isinstance(event, TurnEnd):
            self._is_running = False
        self._publish(event)

    def _on_remote_event(self, event: FeedEvent) -> None:
        if isinstance(event, TurnBegan):
            self._remote_turn = event.turn_id
        is_repeated = self._remote_turn in self._own_turns or self._remote_turn in self._ended_turns
        if not is_repeated and not self._is_running:
            self._publish(event)
        if isinstance(event, TurnEnd) and self._remote_turn is not None:
            self._ended_turns.append(self._remote_turn)
            if self._remote_turn not in self._own_turns:
                self._remote_turn = None  # a question outside of turns may follow

    def _publish(self, event: FeedEvent) -> None:
        if isinstance(event, TurnBegan):
            self._snapshot, self._asked = FeedBuffer(), {}
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._asked[event.id] = event
        elif isinstance(event, QuestionClosed):
            self._asked.pop(event.id, None)
        elif isinstance(event, TurnEnd):  # the transcript has it now
            self._snapshot, self._asked = FeedBuffer(), {}
        elif not isinstance(event, ToolProgressed):
            self._snapshot.add(event)
        if self.followers:
            self._pending.add(event)
            self._schedule(self._text_sent_at if isinstance(event, TextAdded) else self._flushed_at)

    def _schedule(self, last: float) -> None:
        """Send what is pending, at the earliest one tick after ``last``."""
        loop = asyncio.get_running_loop()
        wait = last + _TICK - loop.time()
        if wait <= 0:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(wait, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flushed_at = asyncio.get_running_loop().time()
        events = tuple(self._pending.collect())
        self._pending = FeedBuffer()
        if not events:
            return
        if any(isinstance(event, TextAdded) for event in events):
            self._text_sent_at = self._flushed_at
        encoded = encode_message(SessionMessage(self.session_id, snapshot=False, events=events))
        for_guests = b""
        for stream in self.followers:
            if stream.caller.is_owner:
                stream.send_encoded(encoded, self)
            else:
                for_guests = for_guests or encode_message(
                    SessionMessage(self.session_id, snapshot=False, events=tuple(map(_remove_details, events)))
                )
                stream.send_encoded(for_guests, self)

    def close(self) -> None:
        """Stop watching."""
        super().close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LiveHub:
    """The channels and streams of one process."""

    def __init__(self, store: Store, jobs: asyncio.TaskGroup) -> None:
        self._store = store
        self._jobs = jobs
        self._channels: dict[SessionId, SessionChannel] = {}
        self._streams: dict[str, BrowserStream] = {}
        self._close_hooks: list[Callable[[BrowserStream], None]] = []

    @property
    def streams(self) -> Collection[BrowserStream]:
        """The open streams."""
        return tuple(self._streams.values())

    def on_close(self, hook: Callable[[BrowserStream], None]) -> None:
        """Call a function with every stream that is closed."""
        self._close_hooks.append(hook)

    def get_channel(self, session_id: SessionId) -> SessionChannel:
        """Return the channel of a conversation."""
        for unused in [one for one in self._channels.values() if one.is_unused and one.session_id != session_id]:
            del self._channels[unused.session_id]
        channel = self._channels.get(session_id)
        if channel is None:
            channel = self._channels[session_id] = SessionChannel(session_id, self._store, self._jobs)
        return channel

    def open_stream(self, stream_id: str, caller: WebCaller) -> BrowserStream:
        """Return a new stream; one with the same id of the same browser ends."""
        if (before := self.find_stream(stream_id, caller)) is not None:
            before.end()
        stream = self._streams[self._build_key(stream_id, caller)] = BrowserStream(stream_id, caller, self._forget)
        return stream

    def find_stream(self, stream_id: str, caller: WebCaller) -> BrowserStream | None:
        """Return the stream with this id, if it is this browser's."""
        return self._streams.get(self._build_key(stream_id, caller))

    def set_sessions(
        self, stream: BrowserStream, session_ids: Collection[SessionId], again: Collection[SessionId]
    ) -> None:
        """Set the conversations of a stream; new ones, and those of ``again``, get a snapshot."""
        topics = {f"session:{one}" for one in session_ids}
        for topic in [one for one in stream.topics if one.startswith("session:") and one not in topics]:
            stream.remove_topic(topic)
            self.get_channel(SessionId(topic.removeprefix("session:"))).leave(stream)
        for session_id in session_ids:
            if f"session:{session_id}" not in stream.topics:
                stream.add_topic(f"session:{session_id}")
                self.get_channel(session_id).join(stream)
            elif session_id in again:
                self.get_channel(session_id).send_snapshot(stream)

    def add_session(self, stream_id: str, caller: WebCaller, session_id: SessionId) -> None:
        """Add a conversation that has just begun to a stream, unless there is no such stream."""
        stream, topic = self.find_stream(stream_id, caller), f"session:{session_id}"
        if stream is not None and topic not in stream.topics:
            stream.add_topic(topic)
            self.get_channel(session_id).join(stream)

    def send_delivered(self, session_id: SessionId) -> None:
        """Let pages that show a conversation read the end of its transcript again."""
        for stream in self.streams:
            if f"session:{session_id}" in stream.topics:
                stream.send(DeliveredMessage(session_id))

    def end_streams(self) -> None:
        """End all streams."""
        for stream in self.streams:
            stream.end()

    def close(self) -> None:
        """End all streams and stop watching."""
        self.end_streams()
        for channel in self._channels.values():
            channel.close()

    def _forget(self, stream: BrowserStream) -> None:
        self.set_sessions(stream, (), ())
        for hook in self._close_hooks:
            hook(stream)
        key = self._build_key(stream.id, stream.caller)
        if self._streams.get(key) is stream:
            del self._streams[key]

    @staticmethod
    def _build_key(stream_id: str, caller: WebCaller) -> str:
        return f"{caller.name}:{stream_id}"


def encode_message(message: StreamMessage) -> bytes:
    """Return a message as a server-sent event."""
    return format_sse(_encode(message))


def _remove_details(event: FeedEvent) -> FeedEvent:
    """Return an event without what only the owner may read."""
    return structs.replace(event, details="") if isinstance(event, TurnFailed) else event
