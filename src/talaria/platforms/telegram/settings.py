"""Settings of the Telegram adapter."""

from datetime import timedelta
from typing import Literal

from msgspec import Struct

GroupMode = Literal["mention", "reply", "free"]


class Webhook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The webhook that Telegram calls: ``public_url`` leads to ``host`` and ``port``, including the path.

    Without a ``secret`` one is derived from the bot's token, the same for every process.
    """

    public_url: str
    host: str = "127.0.0.1"
    port: int = 8443
    secret: str = ""


class TelegramSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bot. Without a webhook it polls.

    In groups a bot is addressed when it is mentioned (``mention``), also when one of its messages is answered
    (``reply``), or always (``free``). The URLs are those of another Bot API server, up to where the token follows. A
    poll takes ``poll`` at most; any other call ``patience``, those with files ``file_patience``. The last parts of an
    album are waited for in steps of ``album_pause``.
    """

    token: str
    name: str = "telegram"
    group_mode: GroupMode = "reply"
    webhook: Webhook | None = None
    base_url: str = "https://api.telegram.org/bot"
    base_file_url: str = "https://api.telegram.org/file/bot"
    poll: timedelta = timedelta(seconds=25)
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)
    album_pause: timedelta = timedelta(milliseconds=500)
