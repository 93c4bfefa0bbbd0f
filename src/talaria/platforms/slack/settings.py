"""What the Slack adapter has to know of an app."""

from datetime import timedelta
from typing import Literal

from msgspec import Struct

GroupMode = Literal["mention", "reply", "free"]
ChannelReplies = Literal["thread", "channel"]


class SlackSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One app in one workspace: ``token`` speaks, ``app_token`` hears.

    In channels the app is meant when it is named (``mention``), also in threads in which it takes part (``reply``),
    or always (``free``). What it is asked in a channel it answers in a ``thread`` of the question, or in the
    ``channel``. ``command`` is the slash command behind which anything can be said. The far end is asked for a sign of
    life every ``ping``; a call takes ``patience`` at most, those with files ``file_patience``. Who was ``away`` for
    longer looks for what was said meanwhile. ``file_limit`` is the size in bytes of the largest file, in both
    directions.
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
