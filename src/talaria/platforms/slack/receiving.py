"""Receive updates of an app, one envelope at a time, each acknowledged when the next is requested."""

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from talaria.contracts.platform import Incoming
from talaria.platforms.slack.assistant import Assistant
from talaria.platforms.slack.backfill import Backfill
from talaria.platforms.slack.directory import NameDirectory
from talaria.platforms.slack.events import Callback, Event, Interaction, SlashCommand, read_payload
from talaria.platforms.slack.incoming import (
    BotIdentity,
    EventContext,
    event_channel,
    event_people,
    event_thread,
    read_command,
    read_event,
    read_interaction,
)
from talaria.platforms.slack.sending import MessagePoster
from talaria.platforms.slack.socket import Envelope, Socket
from talaria.platforms.slack.threads import JoinedThreads

_MOST_IDS = 5000

log = logging.getLogger(__name__)


class SeenIds:
    """Recently taken messages: Slack sends them again if the acknowledgement was late.

    It does so in an envelope with another id. A message that mentions us also comes as two events.
    """

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, external_id: str) -> bool:
        return external_id in self._ids

    def add(self, external_id: str) -> None:
        """Add one."""
        self._ids[external_id] = None
        if len(self._ids) > _MOST_IDS:
            self._ids.popitem(last=False)


class ReceiverServices(Struct, frozen=True, kw_only=True):
    """Services of a receiver."""

    poster: MessagePoster
    threads: JoinedThreads
    directory: NameDirectory
    assistant: Assistant
    missed: Backfill


class Receiver:
    """Reads envelopes from a socket, and looks up the context."""

    def __init__(self, identity: BotIdentity, seen_ids: SeenIds, services: ReceiverServices) -> None:
        self._identity = identity
        self._seen_ids = seen_ids
        self._poster = services.poster
        self._threads = services.threads
        self._directory = services.directory
        self._assistant = services.assistant
        self._backfill = services.missed

    async def receive(self, socket: Socket, missed: Sequence[Event]) -> AsyncGenerator[Incoming, None]:
        """Yield missed messages, then updates until the connection fails."""
        for event in missed:
            incoming = await self._read_event(event)
            if incoming is not None and await self._is_unseen(incoming):
                yield incoming
                await self._mark_taken(incoming)
        while True:
            envelope = await socket.next_envelope()
            incoming = await self._read(envelope)
            if incoming is not None and await self._is_unseen(incoming):
                yield incoming
                await self._mark_taken(incoming)
            elif incoming is not None:
                log.info(
                    "%s: delivered again, attempt %d: %s",
                    self._identity.platform,
                    envelope.attempt,
                    incoming.external_id,
                )
            await socket.acknowledge(envelope)
            if incoming is not None and incoming.text:
                await self._assistant.name(incoming.address, incoming.text)

    async def _is_unseen(self, incoming: Incoming) -> bool:
        """Return whether a message wasn't taken yet; a thread that mentions us is joined before that."""
        if incoming.external_id in self._seen_ids:
            return False
        if incoming.addressed and incoming.address.chat_type == "thread":
            await self._threads.join(incoming.address.chat_id, incoming.address.thread_id)
        return True

    async def _mark_taken(self, incoming: Incoming) -> None:
        self._seen_ids.add(incoming.external_id)
        if incoming.message_id and not (incoming.edited or incoming.button or incoming.reaction):
            await self._backfill.record_position(incoming.address.chat_id, incoming.message_id)

    async def _read(self, envelope: Envelope) -> Incoming | None:
        match envelope.kind:
            case "slash_commands":
                command = read_payload(envelope.payload, SlashCommand)
                return read_command(command, self._identity, datetime.now(UTC)) if command else None
            case "interactive":
                interaction = read_payload(envelope.payload, Interaction)
                return read_interaction(interaction, self._identity, datetime.now(UTC)) if interaction else None
            case "events_api":
                callback = read_payload(envelope.payload, Callback)
                return await self._read_event(callback.event) if callback else None
            case kind:
                log.info("%s: unknown kind of envelope: %s", self._identity.platform, kind)
                return None

    async def _read_event(self, event: Event) -> Incoming | None:
        if event.type == "assistant_thread_started":
            await self._assistant.greet(event.assistant_thread)
            return None
        # Our own messages are reported repeatedly while we write; they need no lookups.
        if read_event(event, self._identity, EventContext()) is None:
            return None
        channel = event_channel(event)
        people = [one for one in event_people(event) if one != self._identity.user_id]
        context = EventContext(
            names={self._identity.user_id: self._identity.name, **await self._directory.people(people)},
            chat_name=await self._directory.channel(channel),
            ours=await self._threads.has(channel, event_thread(event)),
            thread=await self._find_reaction_thread(event),
        )
        return read_event(event, self._identity, context)

    async def _find_reaction_thread(self, event: Event) -> str:
        if event.type != "reaction_added" or event.item_user != self._identity.user_id:
            return ""
        return await self._poster.thread_of(event.item.channel, event.item.ts)
