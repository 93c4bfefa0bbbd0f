"""Settings of the Slack adapter."""

from datetime import timedelta
from typing import Literal

from msgspec import Struct

GroupMode = Literal["mention", "reply", "free"]
ChannelReplies = Literal["thread", "channel"]


class SlackSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One app in one workspace: ``token`` sends, ``app_token`` receives.

    In channels the app is addressed when it is mentioned (``mention``), also in threads in which it takes part
    (``reply``), or always (``free``). Questions in a channel are answered in a ``thread``, or in the ``channel``.
    ``command`` is the slash command that accepts any text. The connection is pinged every ``ping``; a call takes
    ``patience`` at most, those with files ``file_patience``. After an absence longer than ``away`` missed messages are
    fetched. ``file_limit`` is the size in bytes of the largest file, in both directions.
    """

    token: str
    app_token: str
    name: str = "slack"
    group_mode: GroupMode = "reply"
    channel_replies: ChannelReplies = "thread"
    command: str = "talaria"
    base_url: str = "https://slack.com/api/"
    file_limit: int = 50_000_000
    ping: timedelta = timedelta(seconds=5)
    away: timedelta = timedelta(minutes=1)
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)
