"""The Matrix adapter: one account on a homeserver."""

import asyncio
import logging
import mimetypes
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

from talaria.contracts.platform import (
    Attachment,
    Content,
    Incoming,
    KnownChat,
    MessageRef,
    Platform,
    PlatformAccount,
    PlatformCapabilities,
    Sender,
)
from talaria.contracts.values import DurableValue, NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Refused, Rejected
from talaria.core.ids import new_id
from talaria.core.messages import File, Image
from talaria.platforms.content import safe_file_name, save_file
from talaria.platforms.matrix.account_state import (
    AcceptsInvitation,
    Invitation,
    Invitations,
    LoginFile,
    MemoryValueStore,
    ValueStore,
)
from talaria.platforms.matrix.connection import MatrixConnection
from talaria.platforms.matrix.incoming import BotIdentity, address_of, button_labels, button_reactions, own_reactions
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
from talaria.platforms.matrix.receiver import Receiver
from talaria.platforms.matrix.settings import MatrixSettings

SYNC_POSITION = NamedValue("matrix_position", str)  # by account
LEFT_INVITATIONS = NamedValue("matrix_invitations", str)  # by account
_MESSAGE = "m.room.message"
_TYPING_DURATION = timedelta(seconds=8)

log = logging.getLogger(__name__)


class Matrix:
    """One account. ``folder`` is its own: its login and its keys are stored there.

    ``position`` stores the read position, ``left_alone`` the pending invitations; ``welcome`` decides which are
    accepted, by default those of the people that the settings allow.
    """

    def __init__(
        self,
        settings: MatrixSettings,
        folder: Path,
        position: ValueStore,
        *,
        left_alone: ValueStore | None = None,
        welcome: AcceptsInvitation | None = None,
    ) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            text_unit="bytes",
            edits=True,
            typing=True,
            buttons=True,
            threads=True,
            reactions=True,
            lists_chats=True,
            servers=True,
            idempotent=True,
            exclusive=True,
            file_limit=settings.file_limit,
        )
        self._settings = settings
        self._position = position
        self._invitations = Invitations(welcome or self._is_allowed, left_alone or MemoryValueStore(), settings.poll)
        self._logins = LoginFile(folder)
        self._connection = MatrixConnection(settings, folder / "keys")
        self._identity: BotIdentity | None = None
        self._login_lock = asyncio.Lock()
        self._user_count = 0

    def connect(self) -> AbstractAsyncContextManager[AsyncIterator[Incoming]]:
        """Log in and yield updates; a batch is acknowledged when the first of the next is requested."""
        return self._connect()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a message, then its files, and its buttons as reactions; the same key posts all of it once."""
        check_text(content)
        async with self._use_connection() as connection:
            limit = await self._get_event_limit(to.chat_id)
            events = [await self._upload(to, content.reply_to, one, limit == ENCRYPTED_LIMIT) for one in content.files]
            if content.text.strip():
                parent = await connection.event(to.chat_id, content.reply_to) if content.reply_to else None
                asker = parent.sender if parent else ""
                events.insert(0, message_content(content, to, asker=asker, limit=limit))
            parts = [transaction_id(key, str(number)) for number in range(len(events))]
            posted = [await connection.post(to.chat_id, _MESSAGE, *one) for one in zip(events, parts, strict=True)]
            for number, button in enumerate(content.buttons):
                reaction = reaction_content(posted[0], button.label)
                await connection.post(to.chat_id, "m.reaction", reaction, transaction_id(key, f"button {number}"))
        return MessageRef(to, posted[0])

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text of a message of ours."""
        check_text(content)
        room = ref.address.chat_id
        async with self._use_connection() as connection:
            original = await connection.event(room, ref.message_id)
            if original is None or original.sender != connection.user_id:
                raise Rejected("there is no such message of ours in this room")
            body = edit_content(content, ref.message_id, limit=await self._get_event_limit(room))
            await connection.post(room, _MESSAGE, body, transaction_id(new_id()))
            if not content.buttons and button_labels(original):
                for event_id in button_reactions(
                    await connection.reactions.list_for(room, ref.message_id), original, connection.user_id
                ):
                    await connection.reactions.remove(room, event_id, transaction_id(new_id()))

    async def show_typing(self, to: Address) -> None:
        """Show a typing indicator for some seconds."""
        async with self._use_connection() as connection:
            await connection.show_typing(to.chat_id, _TYPING_DURATION)

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our mark on a message; reactions that stand for buttons stay."""
        room = ref.address.chat_id
        async with self._use_connection() as connection:
            found = await connection.event(room, ref.message_id)
            if found is None:
                raise Rejected("there is no such message in this room")
            marks = own_reactions(await connection.reactions.list_for(room, ref.message_id), found, connection.user_id)
            for event_id, key in marks:
                if key != emoji:
                    await connection.reactions.remove(room, event_id, transaction_id(event_id, "gone"))
            if emoji and emoji not in [key for _, key in marks]:
                reaction_event = reaction_content(ref.message_id, emoji)
                await connection.post(room, "m.reaction", reaction_event, transaction_id(new_id()))

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return its path."""
        if attachment.size > self._settings.file_limit:
            raise Rejected(f"the file is larger than {self._settings.file_limit} bytes")
        async with self._use_connection() as connection:
            data = await connection.media.download(attachment.reference)
        return await asyncio.to_thread(save_file, data, attachment.name, folder, attachment.media_type)

    async def chats(self) -> list[KnownChat]:
        """Return the rooms we are in."""
        async with self._use_connection() as connection:
            identity = await self._get_identity()
            return [KnownChat(address_of(room, identity), room.name) for room in connection.rooms()]

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Post the first message of a thread; ``None`` if we may not post."""
        chat_address = Address(self.name, parent_chat_id, "group")
        try:
            starter = await self.send(chat_address, Content(text=name), new_id())
        except Rejected as error:
            log.warning("%s: can't create a thread in %s: %s", self.name, parent_chat_id, error)
            return None
        return starter.message_id

    async def close(self) -> None:
        """Disconnect, even while in use."""
        await self._connection.close()

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        async with self._use_connection() as connection:
            await connection.check_login()
            receiver = Receiver(
                connection, await self._get_identity(), self._settings, self._position, self._invitations
            )
            await receiver.start()
            async with aclosing(receiver.updates()) as updates:
                yield updates

    @asynccontextmanager
    async def _use_connection(self) -> AsyncIterator[MatrixConnection]:
        """Lend the connection to a user of it; the last one disconnects."""
        self._user_count += 1
        try:
            await self._get_identity()
            yield self._connection
        except BadCredentials:
            self._identity = None  # the next user logs in again
            raise
        finally:
            self._user_count -= 1
            if not self._user_count:
                await self._connection.close()

    async def _get_identity(self) -> BotIdentity:
        """Log in if needed, and return our identity."""
        async with self._login_lock:
            if self._identity is None:
                await self._log_in()
                names = await self._connection.own_name()
                self._identity = BotIdentity(self.name, self._connection.user_id, (names,), self._settings.group_mode)
            return self._identity

    async def _log_in(self) -> None:
        settings = self._settings
        if settings.token:
            await self._connection.restore(settings.token)
            return
        if not settings.user:
            raise BadCredentials("Matrix needs an access token, or a user name and a password")
        stored = await asyncio.to_thread(self._logins.load, settings.homeserver, settings.user)
        if stored is not None:
            try:
                await self._connection.restore(stored.token)
            except BadCredentials:
                if not settings.password:
                    raise
                log.warning("%s: the stored login has expired; logging in again", self.name)
            else:
                return
        login = await self._connection.log_in(settings.password)
        await asyncio.to_thread(self._logins.save, login)

    async def _get_event_limit(self, room_id: str) -> int:
        """Return the maximum size of an event; refuse to post unencrypted in an encrypted room."""
        if not await self._connection.is_encrypted(room_id):
            return EVENT_LIMIT
        if not self._settings.encryption:
            raise Rejected("this room is encrypted. To write there, turn on encryption (needs the extra matrix-e2e)")
        return ENCRYPTED_LIMIT

    async def _upload(self, to: Address, reply_to: str, file: File | Image, encrypt: bool) -> dict[str, object]:
        path = Path(file.source)
        name = safe_file_name(file.name if isinstance(file, File) else path.name, file.media_type)
        try:
            size = (await asyncio.to_thread(path.stat)).st_size
        except OSError as error:
            raise Rejected(f"can't read the file: {error}") from error
        if size > self._settings.file_limit:
            raise Rejected(f"{name} is larger than {self._settings.file_limit} bytes")
        media_type = file.media_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
        uploaded = await self._connection.media.upload(path, name, media_type, encrypt=encrypt)
        return file_content(name, media_type, size, uploaded, relates_to(to.thread_id, reply_to))

    async def _is_allowed(self, invitation: Invitation) -> bool:
        direct = self._settings.invitations == "direct" and invitation.direct
        return direct or invitation.inviter in self._settings.allowed


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the stored token or password.

    Invitations are accepted from those who may speak, and from those whom the options name.
    """
    homeserver = account.secret("MATRIX_HOMESERVER")
    token, password = account.secret("MATRIX_ACCESS_TOKEN"), account.secret("MATRIX_PASSWORD")
    if not homeserver or not (token or password):
        raise Refused(
            "Matrix needs a homeserver, and a token or password for an account there. Run `talaria setup chat` "
            "to enter a token."
        )
    given: dict[str, object] = {**account.options, "homeserver": homeserver.rstrip("/"), "name": account.name}
    given["allowed"] = [one.strip() for one in account.options.get("allowed", "").split(",") if one.strip()]
    given |= {"token": token or "", "password": password or ""}
    if not token and not account.options.get("user"):
        raise Refused(f"To use a password, set `user` in platforms.{account.name}.options.")
    try:
        settings = msgspec.convert(given, MatrixSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{account.name}: {error}.") from error
    platform = Matrix(
        settings,
        account.folder,
        DurableValue(account.store, SYNC_POSITION, account.name),
        left_alone=DurableValue(account.store, LEFT_INVITATIONS, account.name),
        welcome=_InvitationPolicy(account, settings),
    )
    account.closing.push_async_callback(platform.close)
    return platform


class _InvitationPolicy:
    """The rule that decides whose invitations are accepted."""

    def __init__(self, account: PlatformAccount, settings: MatrixSettings) -> None:
        self._account = account
        self._settings = settings

    async def __call__(self, invitation: Invitation) -> bool:
        is_direct = self._settings.invitations == "direct" and invitation.direct
        if is_direct or invitation.inviter in self._settings.allowed:
            return True
        if self._account.may_join is None:
            return False
        chat_address = Address(self._account.name, invitation.room_id, "private" if invitation.direct else "group")
        return await self._account.may_join(chat_address, Sender(invitation.inviter))
