"""One account on a Matrix homeserver."""

import asyncio
import logging
import mimetypes
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from talaria.contracts.platform import Abilities, Attachment, Content, Incoming, KnownChat, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Rejected
from talaria.core.ids import new_id
from talaria.core.messages import File, Image
from talaria.platforms.files import safe_name, save
from talaria.platforms.matrix.connection import Connection
from talaria.platforms.matrix.incoming import Me, address_of, button_labels, button_marks, own_marks
from talaria.platforms.matrix.invitations import Invitation, Invitations, Welcome
from talaria.platforms.matrix.keeping import LoginFile, MemoryPosition, Position
from talaria.platforms.matrix.outgoing import (
    ENCRYPTED_LIMIT,
    EVENT_LIMIT,
    TEXT_LIMIT,
    check_text,
    edit_content,
    file_content,
    message_content,
    reaction_content,
    relates_to,
    transaction_id,
)
from talaria.platforms.matrix.receiving import Receiver
from talaria.platforms.matrix.settings import MatrixSettings

log = logging.getLogger(__name__)

_MESSAGE = "m.room.message"
_TYPING = timedelta(seconds=8)


class Matrix:
    """Implements `Platform`. ``folder`` is this account's own: its login and its keys are kept there.

    ``position`` keeps how far everything has been taken, ``left_alone`` the invitations that wait for an answer;
    ``welcome`` decides which are accepted, without it those of the people that the settings allow.
    """

    def __init__(
        self,
        settings: MatrixSettings,
        folder: Path,
        position: Position,
        *,
        left_alone: Position | None = None,
        welcome: Welcome | None = None,
    ) -> None:
        self.name = settings.name
        self.abilities = Abilities(
            text_limit=TEXT_LIMIT,
            text_unit="bytes",
            edits=True,
            typing=True,
            buttons=True,
            threads=True,
            reactions=True,
            lists_chats=True,
            idempotent=True,
            exclusive=True,
            file_limit=settings.file_limit,
        )
        self._settings = settings
        self._position = position
        self._invitations = Invitations(welcome or self._is_allowed, left_alone or MemoryPosition(), settings.poll)
        self._logins = LoginFile(folder)
        self._connection = Connection(settings, folder / "keys")
        self._me: Me | None = None
        self._entering = asyncio.Lock()
        self._users = 0

    def connect(self) -> AbstractAsyncContextManager[AsyncIterator[Incoming]]:
        """Log in and yield what people do; a batch counts as received when the first of the next is asked for."""
        return self._connected()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a message, its files behind it and its buttons as reactions to it; the same key posts all of it once."""
        check_text(content)
        async with self._line() as line:
            limit = await self._event_limit(to.chat_id)
            events = [await self._upload(to, content.reply_to, one, limit == ENCRYPTED_LIMIT) for one in content.files]
            if content.text.strip():
                answered = await line.event(to.chat_id, content.reply_to) if content.reply_to else None
                asker = answered.sender if answered else ""
                events.insert(0, message_content(content, to, asker=asker, limit=limit))
            parts = [transaction_id(key, str(number)) for number in range(len(events))]
            posted = [await line.post(to.chat_id, _MESSAGE, *one) for one in zip(events, parts, strict=True)]
            for number, button in enumerate(content.buttons):
                reaction = reaction_content(posted[0], button.label)
                await line.post(to.chat_id, "m.reaction", reaction, transaction_id(key, f"button {number}"))
        return MessageRef(to, posted[0])

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text of a message of ours."""
        check_text(content)
        room = ref.address.chat_id
        async with self._line() as line:
            before = await line.event(room, ref.message_id)
            if before is None or before.sender != line.user_id:
                raise Rejected("there is no such message of ours in this room")
            said = edit_content(content, ref.message_id, limit=await self._event_limit(room))
            await line.post(room, _MESSAGE, said, transaction_id(new_id()))
            if not content.buttons and button_labels(before):
                for event_id in button_marks(await line.marks.of(room, ref.message_id), before, line.user_id):
                    await line.marks.take_away(room, event_id, transaction_id(new_id()))

    async def show_typing(self, to: Address) -> None:
        """Show for some seconds that an answer is being written."""
        async with self._line() as line:
            await line.show_typing(to.chat_id, _TYPING)

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Mark a message in place of our mark before; the marks that stand for buttons stay."""
        room = ref.address.chat_id
        async with self._line() as line:
            found = await line.event(room, ref.message_id)
            if found is None:
                raise Rejected("there is no such message in this room")
            marks = own_marks(await line.marks.of(room, ref.message_id), found, line.user_id)
            for event_id, key in marks:
                if key != emoji:
                    await line.marks.take_away(room, event_id, transaction_id(event_id, "gone"))
            if emoji and emoji not in [key for _, key in marks]:
                mark = reaction_content(ref.message_id, emoji)
                await line.post(room, "m.reaction", mark, transaction_id(new_id()))

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name of its own and return where it is."""
        if attachment.size > self._settings.file_limit:
            raise Rejected(f"the file is larger than {self._settings.file_limit} bytes")
        async with self._line() as line:
            data = await line.media.download(attachment.reference)
        return await asyncio.to_thread(save, data, attachment.name, folder, attachment.media_type)

    async def chats(self) -> list[KnownChat]:
        """Return the rooms in which we are."""
        async with self._line() as line:
            me = await self._who()
            return [KnownChat(address_of(room, me), room.name) for room in line.rooms()]

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Post a message for a thread to begin with; ``None`` where we may not speak."""
        place = Address(self.name, parent_chat_id, "group")
        try:
            seed = await self.send(place, Content(text=name), new_id())
        except Rejected as error:
            log.warning("%s: no thread in %s: %s", self.name, parent_chat_id, error)
            return None
        return seed.message_id

    async def close(self) -> None:
        """Hang up, whoever still speaks."""
        await self._connection.close()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        async with self._line() as line:
            await line.greet()
            receiver = Receiver(line, await self._who(), self._settings, self._position, self._invitations)
            await receiver.begin()
            async with aclosing(receiver.arriving()) as arriving:
                yield arriving

    @asynccontextmanager
    async def _line(self) -> AsyncIterator[Connection]:
        """Lend the connection to a logged-in user of it; the last one hangs up."""
        self._users += 1
        try:
            await self._who()
            yield self._connection
        except BadCredentials:
            self._me = None  # the next one to ask logs in anew
            raise
        finally:
            self._users -= 1
            if not self._users:
                await self._connection.close()

    async def _who(self) -> Me:
        """Log in unless that is done, and return who we are."""
        async with self._entering:
            if self._me is None:
                await self._enter()
                names = await self._connection.own_name()
                self._me = Me(self.name, self._connection.user_id, (names,), self._settings.group_mode)
            return self._me

    async def _enter(self) -> None:
        settings = self._settings
        if settings.token:
            await self._connection.restore(settings.token)
            return
        if not settings.user:
            raise BadCredentials("Matrix needs an access token, or a user and a password")
        kept = await asyncio.to_thread(self._logins.load, settings.homeserver, settings.user)
        if kept is not None:
            try:
                await self._connection.restore(kept.token)
            except BadCredentials:
                if not settings.password:
                    raise
                log.warning("%s: the kept login has ended; logging in again", self.name)
            else:
                return
        login = await self._connection.log_in(settings.password)
        await asyncio.to_thread(self._logins.save, login)

    async def _event_limit(self, room_id: str) -> int:
        """Return how long an event may be; refuse to speak openly where people expect that nobody else can listen."""
        if not await self._connection.is_encrypted(room_id):
            return EVENT_LIMIT
        if not self._settings.encryption:
            raise Rejected("this room is encrypted: turn encryption on, with the extra matrix-e2e, to speak there")
        return ENCRYPTED_LIMIT

    async def _upload(self, to: Address, reply_to: str, file: File | Image, encrypt: bool) -> dict[str, object]:
        path = Path(file.source)
        name = safe_name(file.name if isinstance(file, File) else path.name, file.media_type)
        try:
            size = (await asyncio.to_thread(path.stat)).st_size
        except OSError as error:
            raise Rejected(f"the file cannot be read: {error}") from error
        if size > self._settings.file_limit:
            raise Rejected(f"{name} is larger than {self._settings.file_limit} bytes")
        media_type = file.media_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
        where = await self._connection.media.upload(path, name, media_type, encrypt=encrypt)
        return file_content(name, media_type, size, where, relates_to(to.thread_id, reply_to))

    async def _is_allowed(self, invitation: Invitation) -> bool:
        direct = self._settings.invitations == "direct" and invitation.direct
        return direct or invitation.inviter in self._settings.allowed
