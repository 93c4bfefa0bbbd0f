"""Settings of the Discord adapter."""

from datetime import timedelta
from typing import Literal

from msgspec import Struct

GroupMode = Literal["mention", "reply", "free"]


class DiscordSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bot.

    In servers it is addressed when it is mentioned (``mention``), also when one of its messages is answered or in its
    own threads (``reply``), or always (``free``); in ``free_channels`` and their threads always. Without
    ``message_content`` it sees only messages addressed to it. ``file_limit`` is the size in bytes of the largest file.
    A call takes ``patience`` at most, those with files ``file_patience``; a connection without data for ``silence`` is
    dead. ``api_url`` and ``cdn_url`` are those of another server.
    """

    token: str
    name: str = "discord"
    group_mode: GroupMode = "reply"
    free_channels: frozenset[str] = frozenset()
    message_content: bool = True
    file_limit: int = 10 * 1024 * 1024
    api_url: str = "https://discord.com/api/v10"
    cdn_url: str = "https://cdn.discordapp.com"
    patience: timedelta = timedelta(seconds=20)
    file_patience: timedelta = timedelta(seconds=120)
    silence: timedelta = timedelta(seconds=60)
