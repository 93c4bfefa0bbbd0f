"""Threads for conversations that move to Discord."""

import logging
from contextlib import suppress
from typing import Literal

from discord.http import MultipartParameters

from talaria.core.errors import PlatformError, Rejected
from talaria.platforms.discord.calls import Calls
from talaria.platforms.discord.outgoing import Payload, thread_name
from talaria.platforms.discord.wire import ANNOUNCEMENTS, DIRECT, FORUMS, Channel, read

_A_WEEK: Literal[10080] = 10080
_NOBODY: Payload = {"parse": []}

log = logging.getLogger(__name__)


async def open_thread(calls: Calls, channel_id: str, name: str) -> str | None:
    """Return the id of a new thread in a channel or of a new post in a forum.

    Where threads may not be opened just so, one hangs on a message of ours. ``None`` in private chats, and where
    Discord refuses both.
    """
    name = thread_name(name)
    try:
        channel = read(await calls.ask(lambda api: api.get_channel(channel_id)), Channel)
        if channel.type == DIRECT or channel.is_thread:
            return None
        if channel.type in FORUMS:
            return await _post(calls, channel_id, name)
        try:
            return await _bare(calls, channel, name)
        except Rejected as error:
            log.info("no thread in channel %s but on a message: %s", channel_id, error)
            return await _on_a_message(calls, channel_id, name)
    except Rejected as error:
        log.info("no thread in channel %s: %s", channel_id, error)
        return None


async def _bare(calls: Calls, channel: Channel, name: str) -> str:
    kind: Literal[10, 11] = 10 if channel.type == ANNOUNCEMENTS else 11
    made = await calls.ask(
        lambda api: api.start_thread_without_message(channel.id, name=name, auto_archive_duration=_A_WEEK, type=kind)
    )
    return str(made["id"])


async def _on_a_message(calls: Calls, channel_id: str, name: str) -> str:
    payload: Payload = {"content": name, "allowed_mentions": _NOBODY}
    params = MultipartParameters(payload=payload, multipart=None, files=None)
    seed = str((await calls.ask(lambda api: api.send_message(channel_id, params=params)))["id"])
    try:
        made = await calls.ask(
            lambda api: api.start_thread_with_message(channel_id, seed, name=name, auto_archive_duration=_A_WEEK)
        )
    except PlatformError:
        with suppress(PlatformError):
            await calls.ask(lambda api: api.delete_message(channel_id, seed))
        raise
    return str(made["id"])


async def _post(calls: Calls, channel_id: str, name: str) -> str:
    message: Payload = {"content": name, "allowed_mentions": _NOBODY}
    payload: Payload = {"name": name, "auto_archive_duration": _A_WEEK, "message": message}
    params = MultipartParameters(payload=payload, multipart=None, files=None)
    made = await calls.ask(lambda api: api.start_thread_in_forum(channel_id, params=params))
    return str(made["id"])
