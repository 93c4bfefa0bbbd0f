"""State shared by all chats of the bot: account, updates, files, counters and the clock."""

import itertools
import time

from talaria.testing.telegram_server.files import Files
from talaria.testing.telegram_server.places import User, Wire
from talaria.testing.telegram_server.updates import Changes, Updates
from talaria.testing.wait import LIMIT


class BotAccount:
    """The bot's account at Telegram.

    ``privacy`` hides messages in groups that are not addressed to it; ``topics`` allows topics in private chats.
    """

    def __init__(self, bot: User, *, privacy: bool, topics: bool) -> None:
        self.bot = bot
        self.privacy = privacy
        self.topics = topics
        self.changes = Changes()
        self.updates = Updates(self.changes)
        self.files = Files()
        self.presses: dict[str, Press] = {}
        self.numbers = itertools.count(1)

    def now(self) -> int:
        """Return the time as Telegram dates things."""
        return int(time.time())

    def me(self) -> Wire:
        """Return the ``User`` that getMe gives."""
        return self.bot.wire() | {
            "can_join_groups": True,
            "can_read_all_group_messages": not self.privacy,
            "supports_inline_queries": False,
            "can_connect_to_business": False,
            "has_main_web_app": False,
            "has_topics_enabled": self.topics,
        }


class Press:
    """A pressed button; ``answer`` and ``alert`` are what the bot showed for it."""

    def __init__(self, query_id: str, office: BotAccount) -> None:
        self.query_id = query_id
        self.is_answered = False
        self.answer = ""
        self.alert = False
        self._office = office

    async def answered(self, *, within: float = LIMIT) -> str:
        """Wait until the bot has answered, and return the text that it showed."""
        await self._office.changes.until(lambda: self.is_answered, within=within)
        return self.answer
