"""A chat: its state (members, messages, topics), and the view and the actions of simulated people."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence

from talaria.testing.telegram_server.entities import add_found_entities
from talaria.testing.telegram_server.files import Files, Kind, Photo, Sent, Sticker, Voice
from talaria.testing.telegram_server.messages import Changes, Message, Topic, Update, Updates
from talaria.testing.telegram_server.parts import ChatInfo, InlineKeyboardButton, MessageEntity, User, Wire
from talaria.testing.telegram_server.refusals import bad_request, forbidden, upgraded
from talaria.testing.wait import LIMIT

COLOURS = (0x6FB9F0, 0xFFD67E, 0xCB86DB, 0x8EEE98, 0xFF93B2, 0xFB6F5F)
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
_KINDS: dict[type, Kind] = {Photo: "photo", Voice: "voice", Sticker: "sticker"}


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

    def __init__(self, query_id: str, account: BotAccount) -> None:
        self.query_id = query_id
        self.is_answered = False
        self.answer = ""
        self.alert = False
        self._account = account

    async def answered(self, *, within: float = LIMIT) -> str:
        """Wait until the bot has answered, and return the text that it showed."""
        await self._account.changes.until(lambda: self.is_answered, within=within)
        return self.answer


class ChatState:
    """The state of one chat; ``gone`` is why the bot left, ``upgraded_to`` the chat that replaced it."""

    def __init__(self, account: BotAccount, info: ChatInfo, members: Iterable[User], *, admin: bool) -> None:
        self.account = account
        self.info = info
        self.members = {user.id: user for user in members}
        self.admin = admin
        self.gone = ""
        self.upgraded_to: int | None = None
        self.log: list[Message] = []
        self.topics: dict[int, Topic] = {}
        self.actions: list[tuple[str, int | None]] = []
        # Supergroups and channels count their own messages; all other chats of an account share one count.
        self._numbers = itertools.count(1) if info.type in ("supergroup", "channel") else account.numbers

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
            info=self.info,
            id=next(self._numbers),
            sender=sender,
            date=self.account.now(),
            **content,  # type: ignore[arg-type]  # fields of a message, checked where they are made
        )
        self.log.append(message)
        self.account.changes.happened()
        return message

    def add_topic(self, creator: User, name: str, colour: int | None = None) -> tuple[Topic, Message]:
        """Open a topic; the message that says so has the topic's own number."""
        colour = COLOURS[len(self.topics) % len(COLOURS)] if colour is None else colour
        service = {"forum_topic_created": {"name": name, "icon_color": colour}}
        message = self.add(creator, service=service, in_topic=True)
        message.thread = message.id
        self.topics[message.id] = topic = Topic(message.id, name, colour)
        return topic, message

    def publish(self, message: Message, *, edited: bool = False) -> Update | None:
        """Publish the update of a message, if the bot may see it."""
        if self.gone or not self._is_seen(message):
            return None
        kind = "channel_post" if self.info.type == "channel" else "message"
        update = self.account.updates.put(f"edited_{kind}" if edited else kind, message.wire())
        message.update = update
        return update

    def member(self, user: User) -> Wire:
        """Return the ``ChatMember`` of someone who is or was here."""
        described: Wire = {"user": user.wire()}
        if user.id == self.account.bot.id:
            if self.gone:
                return described | {"status": "left"}
            return described | (_ADMINISTRATOR if self.admin else {"status": "member"})
        if user.id not in self.members:
            return described | {"status": "left"}
        if self.info.type != "private" and user.id == next(iter(self.members)):
            return described | {"status": "creator", "is_anonymous": False}
        return described | {"status": "member"}

    def _is_seen(self, message: Message) -> bool:
        if self.info.type in ("private", "channel") or not self.account.privacy or self.admin or message.service:
            return True
        if message.reply_to is not None and message.reply_to.from_bot:
            return True
        name = f"@{self.account.bot.username}".lower()
        commands = [word.lower() for word in message.styled("bot_command")]
        if any("@" not in word or word.endswith(name) for word in commands):
            return True
        return any(word.lower() == name for word in message.styled("mention"))


class Chat:
    """A chat as people see it."""

    def __init__(self, room: ChatState) -> None:
        self.id = room.info.id
        self._room = room

    @property
    def messages(self) -> list[Message]:
        """All messages that are there now, the oldest first: the bot's, people's and notices; doubles are double."""
        return self._room.visible()

    @property
    def answers(self) -> list[Message]:
        """The messages of the bot that are there now, without notices."""
        return [message for message in self.messages if message.from_bot and not message.service]

    @property
    def actions(self) -> list[tuple[str, int | None]]:
        """The bot's visible actions, for example ``("typing", None)``; the number is the thread."""
        return list(self._room.actions)

    async def says(
        self,
        user: User | None,
        text: str,
        *,
        reply_to: Message | None = None,
        thread: Topic | int | None = None,
        mention: bool = False,
        entities: Sequence[MessageEntity] = (),
    ) -> Message:
        """Write a message; ``mention`` puts the bot's name first. In a channel there is no sender."""
        if mention:
            text = f"@{self._room.account.bot.username} {text}"
        return self._write(user, reply_to, thread, text=text, entities=add_found_entities(text, entities))

    async def sends(
        self,
        user: User | None,
        file: Sent,
        *,
        caption: str = "",
        reply_to: Message | None = None,
        thread: Topic | int | None = None,
    ) -> Message:
        """Send a photo, a document, a voice message or a sticker."""
        return self._send(user, file, caption, reply_to, thread, "")

    async def sends_album(
        self, user: User | None, files: Sequence[Sent], *, caption: str = "", thread: Topic | int | None = None
    ) -> list[Message]:
        """Send several files at once; the caption belongs to the first."""
        album = f"13{len(self._room.log):015}"
        captions = [caption, *[""] * (len(files) - 1)]
        return [self._send(user, file, text, None, thread, album) for file, text in zip(files, captions, strict=True)]

    async def edits(self, message: Message, text: str) -> None:
        """Let its author change a message."""
        message.change(text, add_found_entities(text), message.markup, self._room.account.now())
        self._room.publish(message, edited=True)
        self._room.account.changes.happened()

    async def presses(self, user: User, message: Message, button: str | InlineKeyboardButton) -> Press:
        """Press a button by its label; the result includes what the bot shows for it."""
        found = next((one for one in message.buttons if button in (one, one.text)), None)
        if found is None or found.callback_data is None:
            labels = [one.text for one in message.buttons]
            raise LookupError(f"There is no such button to press; there are {labels}.")
        account = self._room.account
        query_id = f"44{len(account.presses) + 1:016}"
        account.presses[query_id] = press = Press(query_id, account)
        account.updates.put(
            "callback_query",
            {
                "id": query_id,
                "from": user.wire(),
                "message": message.wire(),
                "chat_instance": str(7_000_000_000 + abs(self.id)),
                "data": found.callback_data,
            },
        )
        return press

    async def reacts(self, user: User, message: Message, *emoji: str) -> None:
        """Put these reactions in place of the person's former ones; the bot hears of it only if it asked to."""
        before = message.reactions.get(user.id, ())
        message.reactions[user.id] = emoji
        room = self._room
        room.account.changes.happened()
        if room.gone or not (room.admin or room.info.type == "private"):
            return
        body: Wire = {"chat": room.info.wire(), "message_id": message.id, "user": user.wire()}
        body |= {
            "date": room.account.now(),
            "old_reaction": _make_reactions(before),
            "new_reaction": _make_reactions(emoji),
        }
        room.account.updates.put("message_reaction", body)

    async def opens_topic(self, user: User, name: str) -> Topic:
        """Create a topic in a forum."""
        topic, message = self._room.add_topic(user, name)
        self._room.publish(message)
        return topic

    async def closes_topic(self, topic: Topic, *, delete: bool = False) -> None:
        """Close a topic, so that only administrators write there, or delete it with all that is in it."""
        topic.closed, topic.deleted = True, delete
        for message in self._room.log if delete else ():
            message.deleted = message.deleted or message.thread == topic.id
        self._room.account.changes.happened()

    async def removes_bot(self, user: User) -> None:
        """Block the bot in a private chat, throw it out of any other."""
        kind = self._room.info.type
        leave_notice = "bot was blocked by the user" if kind == "private" else f"bot was kicked from the {kind} chat"
        self._change_bot(user, leave_notice, "kicked")

    async def readmits_bot(self, user: User) -> None:
        """Let the bot in again."""
        self._change_bot(user, "", "member")

    async def wait_for(self, matches: Callable[[Message], bool], *, within: float = LIMIT) -> Message:
        """Wait for a message of the bot that matches, and return the first."""
        await self.wait_until(lambda: any(map(matches, self.answers)), within=within)
        return next(filter(matches, self.answers))

    async def wait_until(self, holds: Callable[[], bool], *, within: float = LIMIT) -> None:
        """Wait until a condition holds; it is checked after every change on the server."""
        try:
            await self._room.account.changes.until(holds, within=within)
        except TimeoutError:
            seen = [message.text for message in self.messages]
            raise TimeoutError(f"This did not come within {within:g} s. The chat has: {seen}") from None

    def _send(
        self,
        user: User | None,
        file: Sent,
        caption: str,
        reply_to: Message | None,
        thread: Topic | int | None,
        album: str,
    ) -> Message:
        kind: Kind = _KINDS.get(type(file), "document")
        files = self._room.account.files
        media = files.media(
            kind,
            files.store(kind, file.upload()),
            duration=file.duration if isinstance(file, Voice) else 0,
            emoji=file.emoji if isinstance(file, Sticker) else "",
        )
        return self._write(
            user, reply_to, thread, text=caption, entities=add_found_entities(caption), media=media, album=album
        )

    def _write(
        self, user: User | None, reply_to: Message | None, thread: Topic | int | None, **content: object
    ) -> Message:
        number = thread.id if isinstance(thread, Topic) else thread
        if number is None and reply_to is not None:
            number = reply_to.thread
        in_topic = number in self._room.topics
        if in_topic and reply_to is None and self._room.info.is_forum:
            # What is written into a topic answers, on the wire, the notice that the topic began with.
            reply_to = next(one for one in self._room.log if one.id == number)
        if number is None and reply_to is not None and self._room.info.type == "supergroup":
            number = reply_to.id
        sender = None if self._room.info.type == "channel" else user
        message = self._room.add(sender, reply_to=reply_to, thread=number, in_topic=in_topic, **content)
        self._room.publish(message)
        return message

    def _change_bot(self, user: User, gone: str, status: str) -> None:
        room = self._room
        bot = room.account.bot
        before = room.member(bot) if not room.gone else _make_banned_member(bot)
        room.gone = gone
        after = room.member(bot) if status == "member" else _make_banned_member(bot)
        body: Wire = {"chat": room.info.wire(), "from": user.wire(), "date": room.account.now()}
        room.account.updates.put("my_chat_member", body | {"old_chat_member": before, "new_chat_member": after})


def _make_reactions(emoji: Sequence[str]) -> list[Wire]:
    return [{"type": "emoji", "emoji": one} for one in emoji]


def _make_banned_member(user: User) -> Wire:
    return {"status": "kicked", "user": user.wire(), "until_date": 0}
