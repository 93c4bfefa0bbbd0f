"""The state of a chat (members, messages, topics, updates), and of the bot's account, which all share."""

import itertools
import time
from collections.abc import Iterable

from talaria.testing.telegram_server.files import Files
from talaria.testing.telegram_server.messages import Message, Topic
from talaria.testing.telegram_server.parts import ChatInfo, User, Wire
from talaria.testing.telegram_server.refusals import bad_request, forbidden, upgraded
from talaria.testing.telegram_server.updates import Changes, Update, Updates
from talaria.testing.wait import LIMIT

COLOURS = (0x6FB9F0, 0xFFD67E, 0xCB86DB, 0x8EEE98, 0xFF93B2, 0xFB6F5F)


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


class ChatState:
    """The state of one chat; ``gone`` is why the bot left, ``upgraded_to`` the chat that replaced it."""

    def __init__(self, office: BotAccount, place: ChatInfo, members: Iterable[User], *, admin: bool) -> None:
        self.office = office
        self.place = place
        self.members = {user.id: user for user in members}
        self.admin = admin
        self.gone = ""
        self.upgraded_to: int | None = None
        self.log: list[Message] = []
        self.topics: dict[int, Topic] = {}
        self.actions: list[tuple[str, int | None]] = []
        # Supergroups and channels count their own messages; all other chats of an account share one count.
        self._numbers = itertools.count(1) if place.type in ("supergroup", "channel") else office.numbers

    def visible(self) -> list[Message]:
        """Return the messages that a person sees now, the oldest first."""
        return [message for message in self.log if not message.deleted]

    def find(self, message_id: int) -> Message | None:
        """Return a message that has not been deleted."""
        return next((message for message in self.log if message.id == message_id and not message.deleted), None)

    def check_writable(self) -> None:
        """Refuse the bot where it must not write."""
        if self.upgraded_to is not None:
            raise upgraded(self.upgraded_to)
        if self.gone:
            raise forbidden(self.gone)

    def topic(self, thread: int | None) -> Topic | None:
        """Return the topic that a request names, or refuse it where there is none."""
        if thread is None:
            return None
        found = self.topics.get(thread)
        if found is None or found.deleted:
            raise bad_request("message thread not found")
        if found.closed and not self.admin:
            raise bad_request("TOPIC_CLOSED")
        return found

    def add(self, sender: User | None, **content: object) -> Message:
        """Put a message into the chat, without telling the bot."""
        message = Message(
            place=self.place,
            id=next(self._numbers),
            sender=sender,
            date=self.office.now(),
            **content,  # type: ignore[arg-type]  # fields of a message, checked where they are made
        )
        self.log.append(message)
        self.office.changes.happened()
        return message

    def add_topic(self, creator: User, name: str, colour: int | None = None) -> tuple[Topic, Message]:
        """Open a topic; the message that says so has the topic's own number."""
        colour = COLOURS[len(self.topics) % len(COLOURS)] if colour is None else colour
        service = {"forum_topic_created": {"name": name, "icon_color": colour}}
        message = self.add(creator, service=service, in_topic=True)
        message.thread = message.id
        self.topics[message.id] = topic = Topic(message.id, name, colour)
        return topic, message

    def tell(self, message: Message, *, edited: bool = False) -> Update | None:
        """Tell the bot of a message, if it may see it."""
        if self.gone or not self._is_seen(message):
            return None
        kind = "channel_post" if self.place.type == "channel" else "message"
        update = self.office.updates.put(f"edited_{kind}" if edited else kind, message.wire())
        message.update = update
        return update

    def member(self, user: User) -> Wire:
        """Return the ``ChatMember`` of someone who is or was here."""
        described: Wire = {"user": user.wire()}
        if user.id == self.office.bot.id:
            if self.gone:
                return described | {"status": "left"}
            return described | (_ADMINISTRATOR if self.admin else {"status": "member"})
        if user.id not in self.members:
            return described | {"status": "left"}
        if self.place.type != "private" and user.id == next(iter(self.members)):
            return described | {"status": "creator", "is_anonymous": False}
        return described | {"status": "member"}

    def _is_seen(self, message: Message) -> bool:
        if self.place.type in ("private", "channel") or not self.office.privacy or self.admin or message.service:
            return True
        if message.reply_to is not None and message.reply_to.from_bot:
            return True
        name = f"@{self.office.bot.username}".lower()
        commands = [word.lower() for word in message.styled("bot_command")]
        if any("@" not in word or word.endswith(name) for word in commands):
            return True
        return any(word.lower() == name for word in message.styled("mention"))


_RIGHTS = (
    "can_manage_chat can_delete_messages can_manage_video_chats can_restrict_members can_change_info can_invite_users"
    " can_post_stories can_edit_stories can_delete_stories can_send_welcome_messages can_pin_messages can_manage_topics"
)
_ADMINISTRATOR: Wire = {
    "status": "administrator",
    "can_be_edited": False,
    "is_anonymous": False,
    "can_promote_members": False,
    **dict.fromkeys(_RIGHTS.split(), True),
}
