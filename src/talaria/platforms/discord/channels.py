"""Discord channels and threads: names, roles, and new threads for handoffs."""

import logging
from collections import OrderedDict
from contextlib import suppress
from typing import Literal

import msgspec
from discord.http import MultipartParameters

from talaria.core.errors import PlatformError, Rejected
from talaria.platforms.discord.client import ApiClient
from talaria.platforms.discord.outgoing import Payload, make_thread_name
from talaria.platforms.discord.receiver import Event
from talaria.platforms.discord.wire import ANNOUNCEMENTS, DIRECT, FORUMS, Channel, Guild, Role, parse

_MOST_CHANNELS = 5000
_CHANNEL_EVENTS = frozenset({"CHANNEL_CREATE", "CHANNEL_UPDATE", "THREAD_CREATE", "THREAD_UPDATE"})


class ChannelDirectory:
    """Channels and threads by id, and our role in each server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._channels: OrderedDict[str, Channel] = OrderedDict()
        self._roles: dict[str, str] = {}

    def on_event(self, event: Event) -> None:
        """Learn from events about channels."""
        try:
            if event.name == "GUILD_CREATE":
                guild = msgspec.json.decode(event.data, type=Guild)
                for channel in (*guild.channels, *guild.threads):
                    self._add(msgspec.structs.replace(channel, guild_id=guild.id))
            elif event.name in _CHANNEL_EVENTS:
                self._add(msgspec.json.decode(event.data, type=Channel))
        except msgspec.DecodeError:  # fetched when needed
            return

    async def find(self, channel_id: str, guild_id: str = "") -> Channel:
        """Return a channel; an inaccessible one counts as a channel of its server."""
        if channel_id not in self._channels:
            try:
                found = parse(await self._client.ask(lambda api: api.get_channel(channel_id)), Channel)
            except Rejected:
                return Channel(channel_id, guild_id=guild_id)
            self._add(found)
        self._channels.move_to_end(channel_id)
        return self._channels[channel_id]

    async def own_role(self, guild_id: str) -> str:
        """Return the role that stands for us in a server; mentioning it mentions us."""
        if guild_id not in self._roles:
            me = await self._client.me()
            try:
                answer = await self._client.ask(lambda api: api.get_roles(guild_id))
            except Rejected:
                return ""
            roles = [parse(one, Role) for one in answer]
            self._roles[guild_id] = next((role.id for role in roles if role.tags.bot_id == me.id), "")
        return self._roles[guild_id]

    def _add(self, channel: Channel) -> None:
        self._channels[channel.id] = channel
        if len(self._channels) > _MOST_CHANNELS:
            self._channels.popitem(last=False)


_ARCHIVE_AFTER_MINUTES: Literal[10080] = 10080
_NO_MENTIONS: Payload = {"parse": []}
log = logging.getLogger(__name__)


async def open_thread(client: ApiClient, channel_id: str, name: str) -> str | None:
    """Return the id of a new thread in a channel or of a new post in a forum.

    Where threads can't be opened directly, one is attached to a message of ours. ``None`` in private chats, and if
    Discord refuses both.
    """
    name = make_thread_name(name)
    try:
        channel = parse(await client.ask(lambda api: api.get_channel(channel_id)), Channel)
        if channel.type == DIRECT or channel.is_thread:
            return None
        if channel.type in FORUMS:
            return await _start_forum_post(client, channel_id, name)
        try:
            return await _start_plain_thread(client, channel, name)
        except Rejected as error:
            log.info("can't create a thread in channel %s without a message: %s", channel_id, error)
            return await _start_thread_on_message(client, channel_id, name)
    except Rejected as error:
        log.info("can't create a thread in channel %s: %s", channel_id, error)
        return None


async def _start_plain_thread(client: ApiClient, channel: Channel, name: str) -> str:
    kind: Literal[10, 11] = 10 if channel.type == ANNOUNCEMENTS else 11
    created = await client.ask(
        lambda api: api.start_thread_without_message(
            channel.id, name=name, auto_archive_duration=_ARCHIVE_AFTER_MINUTES, type=kind
        )
    )
    return str(created["id"])


async def _start_thread_on_message(client: ApiClient, channel_id: str, name: str) -> str:
    payload: Payload = {"content": name, "allowed_mentions": _NO_MENTIONS}
    params = MultipartParameters(payload=payload, multipart=None, files=None)
    starter_id = str((await client.ask(lambda api: api.send_message(channel_id, params=params)))["id"])
    try:
        created = await client.ask(
            lambda api: api.start_thread_with_message(
                channel_id, starter_id, name=name, auto_archive_duration=_ARCHIVE_AFTER_MINUTES
            )
        )
    except PlatformError:
        with suppress(PlatformError):
            await client.ask(lambda api: api.delete_message(channel_id, starter_id))
        raise
    return str(created["id"])


async def _start_forum_post(client: ApiClient, channel_id: str, name: str) -> str:
    message: Payload = {"content": name, "allowed_mentions": _NO_MENTIONS}
    payload: Payload = {"name": name, "auto_archive_duration": _ARCHIVE_AFTER_MINUTES, "message": message}
    params = MultipartParameters(payload=payload, multipart=None, files=None)
    created = await client.ask(lambda api: api.start_thread_in_forum(channel_id, params=params))
    return str(created["id"])
