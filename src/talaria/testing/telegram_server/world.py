"""Everything that the bot's account can reach, and the delivery of updates by POST."""

import asyncio
from collections.abc import Iterable

import aiohttp
import msgspec
from msgspec import Struct

from talaria.testing.telegram_server.chat import BotAccount, Chat, ChatState
from talaria.testing.telegram_server.messages import DEFAULT_KINDS, Message, Update
from talaria.testing.telegram_server.parts import BotCommand, ChatInfo, User, Wire
from talaria.testing.telegram_server.refusals import bad_request

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
_PATIENCE = 10
_FIRST_PERSON = 5_000_000_001
_FIRST_GROUP = -4_000_000_001
_FIRST_SUPERGROUP = -1_002_000_000_001


class Delivered(Struct, frozen=True):
    """One attempt to deliver an update; without a status there was no answer."""

    update: Update
    status: int | None


class Webhook:
    """The webhook that updates are sent to."""

    def __init__(self, account: BotAccount) -> None:
        self.url = ""
        self.secret = ""
        self.connections = 40
        self.attempts: list[Delivered] = []
        self._account = account
        self._error: tuple[int, str] | None = None

    def point(self, url: str, secret: str, connections: int) -> None:
        """Deliver there from now on, or nowhere."""
        self.url, self.secret, self.connections = url, secret, connections
        self._error = None
        self._account.updates.webhook = bool(url)
        self._account.changes.happened()

    def wire(self) -> Wire:
        """Return the ``WebhookInfo``."""
        updates = self._account.updates
        info: Wire = {"url": self.url, "has_custom_certificate": False, "pending_update_count": len(updates.pending)}
        if self.url:
            info |= {"max_connections": self.connections, "ip_address": "127.0.0.1"}
        if self.url and self._error is not None:
            info |= {"last_error_date": self._error[0], "last_error_message": self._error[1]}
        if updates.allowed != DEFAULT_KINDS:
            info["allowed_updates"] = sorted(updates.allowed)
        return info

    async def deliver(self) -> None:
        """Deliver updates in order until cancelled; failed deliveries are retried after growing pauses."""
        pause = _FIRST_PAUSE
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PATIENCE)) as http:
            while True:
                await self._account.changes.until(self._has_work, within=float("inf"))
                update = self._account.updates.first()
                if update is not None and await self._post(http, update):
                    pause = _FIRST_PAUSE
                else:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def _has_work(self) -> bool:
        return bool(self.url) and self._account.updates.first() is not None

    async def _post(self, http: aiohttp.ClientSession, update: Update) -> bool:
        headers = {"Content-Type": "application/json"}
        if self.secret:
            headers["X-Telegram-Bot-Api-Secret-Token"] = self.secret
        status = None
        try:
            async with http.post(self.url, data=msgspec.json.encode(update.wire()), headers=headers) as response:
                status = response.status
                response_text = f"Wrong response from the webhook: {status} {response.reason}"
        except (aiohttp.ClientError, TimeoutError) as error:
            response_text = f"Connection failed: {error}" if str(error) else "Read timeout expired"
        self.attempts.append(Delivered(update, status))
        taken = status is not None and 200 <= status < 300
        if not taken:
            self._error = (self._account.now(), response_text)
        elif update in (*self._account.updates.pending, self._account.updates.first()):
            self._account.updates.delivered(update)
        self._account.changes.happened()
        return taken


class World:
    """People, chats, the webhook and the menus of commands."""

    def __init__(self, account: BotAccount) -> None:
        self.account = account
        self.people: dict[int, User] = {account.bot.id: account.bot}
        self.rooms: dict[int, ChatState] = {}
        self.webhook = Webhook(account)
        self.menus: dict[tuple[object, str], list[BotCommand]] = {}

    def person(self, name: str, username: str) -> User:
        """Return the person of that name; the first time they are made."""
        for user in self.people.values():
            if user.first_name == name and not user.is_bot:
                return user
        # Ids of people are larger than 32 bits nowadays; clients that store them must know.
        user = User(id=_FIRST_PERSON + len(self.people), first_name=name, username=username)
        self.people[user.id] = user
        return user

    def add(self, info: ChatInfo, members: Iterable[User], *, admin: bool) -> ChatState:
        """Open a chat."""
        room = self.rooms[info.id] = ChatState(self.account, info, members, admin=admin)
        return room

    def free_id(self, *, large: bool) -> int:
        """Return an id for a new group; supergroups and channels have larger ones."""
        return (_FIRST_SUPERGROUP if large else _FIRST_GROUP) - len(self.rooms)

    def upgrade(self, chat: Chat, user: User) -> Chat:
        """Turn a group into a supergroup with a new id; both chats get a service message."""
        room = self.rooms[chat.id]
        number = self.free_id(large=True)
        large = self.add(
            msgspec.structs.replace(room.info, id=number, type="supergroup"), room.members.values(), admin=room.admin
        )
        room.publish(room.add(user, service={"migrate_to_chat_id": number}))
        room.upgraded_to = number
        large.publish(large.add(None, service={"migrate_from_chat_id": room.info.id}))
        return Chat(large)

    def room(self, chat_id: int | str) -> ChatState:
        """Return the chat that a request names, by number or by ``@name``."""
        room = self.rooms.get(chat_id) if isinstance(chat_id, int) else None
        if isinstance(chat_id, str) and chat_id.startswith("@"):
            username = chat_id[1:].lower()
            room = next(
                (
                    one
                    for one in self.rooms.values()
                    if one.info.type != "private" and one.info.username.lower() == username
                ),
                None,
            )
        if room is None:
            raise bad_request("chat not found")
        return room

    def writable(self, chat_id: int | str) -> ChatState:
        """Return a chat in which the bot may write."""
        room = self.room(chat_id)
        room.check_writable()
        return room

    def message(self, room: ChatState, message_id: int, purpose: str) -> Message:
        """Return a message that a request names, or refuse it."""
        message = room.find(message_id)
        if message is None:
            raise bad_request(f"message to {purpose} not found")
        return message
