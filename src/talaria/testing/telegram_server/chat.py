"""A chat from the perspective of simulated people: their actions, and what they see."""

from collections.abc import Callable, Sequence

from talaria.testing.telegram_server.files import Kind, Photo, Sent, Sticker, Voice
from talaria.testing.telegram_server.markup.text import add_found_entities
from talaria.testing.telegram_server.messages import Message, Topic
from talaria.testing.telegram_server.parts import InlineKeyboardButton, MessageEntity, User, Wire
from talaria.testing.telegram_server.room import ChatState, Press
from talaria.testing.wait import LIMIT


class Chat:
    """A chat as people see it."""

    def __init__(self, room: ChatState) -> None:
        self.id = room.place.id
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
            text = f"@{self._room.office.bot.username} {text}"
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
        message.change(text, add_found_entities(text), message.markup, self._room.office.now())
        self._room.tell(message, edited=True)
        self._room.office.changes.happened()

    async def presses(self, user: User, message: Message, button: str | InlineKeyboardButton) -> Press:
        """Press a button by its label; the result includes what the bot shows for it."""
        found = next((one for one in message.buttons if button in (one, one.text)), None)
        if found is None or found.callback_data is None:
            labels = [one.text for one in message.buttons]
            raise LookupError(f"There is no such button to press; there are {labels}.")
        office = self._room.office
        query_id = f"44{len(office.presses) + 1:016}"
        office.presses[query_id] = press = Press(query_id, office)
        office.updates.put(
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
        room.office.changes.happened()
        if room.gone or not (room.admin or room.place.type == "private"):
            return
        body: Wire = {"chat": room.place.wire(), "message_id": message.id, "user": user.wire()}
        body |= {"date": room.office.now(), "old_reaction": _reactions(before), "new_reaction": _reactions(emoji)}
        room.office.updates.put("message_reaction", body)

    async def opens_topic(self, user: User, name: str) -> Topic:
        """Create a topic in a forum."""
        topic, message = self._room.add_topic(user, name)
        self._room.tell(message)
        return topic

    async def closes_topic(self, topic: Topic, *, delete: bool = False) -> None:
        """Close a topic, so that only administrators write there, or delete it with all that is in it."""
        topic.closed, topic.deleted = True, delete
        for message in self._room.log if delete else ():
            message.deleted = message.deleted or message.thread == topic.id
        self._room.office.changes.happened()

    async def removes_bot(self, user: User) -> None:
        """Block the bot in a private chat, throw it out of any other."""
        kind = self._room.place.type
        leave_notice = "bot was blocked by the user" if kind == "private" else f"bot was kicked from the {kind} chat"
        self._change_bot(user, leave_notice, "kicked")

    async def readmits_bot(self, user: User) -> None:
        """Let the bot in again."""
        self._change_bot(user, "", "member")

    async def wait_for(self, wanted: Callable[[Message], bool], *, within: float = LIMIT) -> Message:
        """Wait for a message of the bot that is as wanted, and return the first such one."""
        await self.wait_until(lambda: any(map(wanted, self.answers)), within=within)
        return next(filter(wanted, self.answers))

    async def wait_until(self, holds: Callable[[], bool], *, within: float = LIMIT) -> None:
        """Wait until a condition holds; it is checked after every change on the server."""
        try:
            await self._room.office.changes.until(holds, within=within)
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
        files = self._room.office.files
        media = files.media(
            kind,
            files.keep(kind, file.upload()),
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
        if in_topic and reply_to is None and self._room.place.is_forum:
            # What is written into a topic answers, on the wire, the notice that the topic began with.
            reply_to = next(one for one in self._room.log if one.id == number)
        if number is None and reply_to is not None and self._room.place.type == "supergroup":
            number = reply_to.id
        sender = None if self._room.place.type == "channel" else user
        message = self._room.add(sender, reply_to=reply_to, thread=number, in_topic=in_topic, **content)
        self._room.tell(message)
        return message

    def _change_bot(self, user: User, gone: str, status: str) -> None:
        room = self._room
        bot = room.office.bot
        before = room.member(bot) if not room.gone else _banned(bot)
        room.gone = gone
        after = room.member(bot) if status == "member" else _banned(bot)
        body: Wire = {"chat": room.place.wire(), "from": user.wire(), "date": room.office.now()}
        room.office.updates.put("my_chat_member", body | {"old_chat_member": before, "new_chat_member": after})


_KINDS: dict[type, Kind] = {Photo: "photo", Voice: "voice", Sticker: "sticker"}


def _reactions(emoji: Sequence[str]) -> list[Wire]:
    return [{"type": "emoji", "emoji": one} for one in emoji]


def _banned(user: User) -> Wire:
    return {"status": "kicked", "user": user.wire(), "until_date": 0}
