"""What arrives at an app: envelope after envelope, each acknowledged when the next one is asked for."""

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from talaria.contracts.platform import Incoming
from talaria.platforms.slack.assistant import Assistant
from talaria.platforms.slack.directory import Directory
from talaria.platforms.slack.events import Callback, Command, Event, Interaction, read_payload
from talaria.platforms.slack.incoming import (
    Known,
    Me,
    channel_of,
    people_of,
    read_command,
    read_event,
    read_interaction,
    thread_of,
)
from talaria.platforms.slack.missed import Missed
from talaria.platforms.slack.posting import Posting
from talaria.platforms.slack.socket import Envelope, Socket
from talaria.platforms.slack.threads import OurThreads

_KNOWN = 5000

log = logging.getLogger(__name__)


class Taken:
    """What was taken lately: Slack hands it over again where it did not hear of that in time.

    It does so in an envelope of another id. The same message also comes as two events where somebody names us in it.
    """

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, external_id: str) -> bool:
        return external_id in self._ids

    def add(self, external_id: str) -> None:
        """Note one."""
        self._ids[external_id] = None
        if len(self._ids) > _KNOWN:
            self._ids.popitem(last=False)


class Desk(Struct, frozen=True, kw_only=True):
    """What a receiver asks."""

    posting: Posting
    threads: OurThreads
    directory: Directory
    assistant: Assistant
    missed: Missed


class Receiver:
    """Reads what a socket brings, and finds out what has to be known besides."""

    def __init__(self, me: Me, taken: Taken, desk: Desk) -> None:
        self._me = me
        self._taken = taken
        self._posting = desk.posting
        self._threads = desk.threads
        self._directory = desk.directory
        self._assistant = desk.assistant
        self._missed = desk.missed

    async def arriving(self, socket: Socket, missed: Sequence[Event]) -> AsyncGenerator[Incoming, None]:
        """Yield what people said meanwhile, then what they do until the connection fails."""
        for event in missed:
            incoming = await self._read_event(event)
            if incoming is not None and await self._is_news(incoming):
                yield incoming
                await self._take(incoming)
        while True:
            envelope = await socket.following()
            incoming = await self._read(envelope)
            if incoming is not None and await self._is_news(incoming):
                yield incoming
                await self._take(incoming)
            elif incoming is not None:
                log.info("%s: came again, time %d: %s", self._me.platform, envelope.attempt, incoming.external_id)
            await socket.acknowledge(envelope)
            if incoming is not None and incoming.text:
                await self._assistant.name(incoming.address, incoming.text)

    async def _is_news(self, incoming: Incoming) -> bool:
        """Tell whether something was not taken yet; a thread in which we are meant is ours before that is known."""
        if incoming.external_id in self._taken:
            return False
        if incoming.addressed and incoming.address.chat_type == "thread":
            await self._threads.join(incoming.address.chat_id, incoming.address.thread_id)
        return True

    async def _take(self, incoming: Incoming) -> None:
        self._taken.add(incoming.external_id)
        if incoming.message_id and not (incoming.edited or incoming.button or incoming.reaction):
            await self._missed.note(incoming.address.chat_id, incoming.message_id)

    async def _read(self, envelope: Envelope) -> Incoming | None:
        match envelope.kind:
            case "slash_commands":
                command = read_payload(envelope.payload, Command)
                return read_command(command, self._me, datetime.now(UTC)) if command else None
            case "interactive":
                done = read_payload(envelope.payload, Interaction)
                return read_interaction(done, self._me, datetime.now(UTC)) if done else None
            case "events_api":
                callback = read_payload(envelope.payload, Callback)
                return await self._read_event(callback.event) if callback else None
            case kind:
                log.info("%s: an envelope of a kind that is not known: %s", self._me.platform, kind)
                return None

    async def _read_event(self, event: Event) -> Incoming | None:
        if event.type == "assistant_thread_started":
            await self._assistant.greet(event.assistant_thread)
            return None
        # What nobody but us said is told of again and again while we write; nothing has to be found out for that.
        if read_event(event, self._me, Known()) is None:
            return None
        channel = channel_of(event)
        people = [one for one in people_of(event) if one != self._me.user_id]
        known = Known(
            names={self._me.user_id: self._me.name, **await self._directory.people(people)},
            chat_name=await self._directory.channel(channel),
            ours=await self._threads.has(channel, thread_of(event)),
            thread=await self._thread_of_mark(event),
        )
        return read_event(event, self._me, known)

    async def _thread_of_mark(self, event: Event) -> str:
        if event.type != "reaction_added" or event.item_user != self._me.user_id:
            return ""
        return await self._posting.thread_of(event.item.channel, event.item.ts)
