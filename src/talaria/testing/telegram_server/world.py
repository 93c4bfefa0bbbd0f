"""Everything that the bot's account can reach."""

from collections.abc import Iterable

import msgspec

from talaria.testing.telegram_server.chat import Chat
from talaria.testing.telegram_server.messages import Message
from talaria.testing.telegram_server.parts import BotCommand, ChatInfo, User
from talaria.testing.telegram_server.refusals import bad_request
from talaria.testing.telegram_server.room import BotAccount, ChatState
from talaria.testing.telegram_server.webhook import Webhook

_FIRST_PERSON = 5_000_000_001
_FIRST_GROUP = -4_000_000_001
_FIRST_SUPERGROUP = -1_002_000_000_001


class World:
    """People, chats, the webhook and the menus of commands."""

    def __init__(self, office: BotAccount) -> None:
        self.office = office
        self.people: dict[int, User] = {office.bot.id: office.bot}
        self.rooms: dict[int, ChatState] = {}
        self.webhook = Webhook(office)
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

    def add(self, place: ChatInfo, members: Iterable[User], *, admin: bool) -> ChatState:
        """Open a chat."""
        room = self.rooms[place.id] = ChatState(self.office, place, members, admin=admin)
        return room

    def free_id(self, *, large: bool) -> int:
        """Return an id for a new group; supergroups and channels have larger ones."""
        return (_FIRST_SUPERGROUP if large else _FIRST_GROUP) - len(self.rooms)

    def upgrade(self, chat: Chat, user: User) -> Chat:
        """Turn a group into a supergroup with a new id; both chats get a service message."""
        room = self.rooms[chat.id]
        number = self.free_id(large=True)
        large = self.add(
            msgspec.structs.replace(room.place, id=number, type="supergroup"), room.members.values(), admin=room.admin
        )
        room.tell(room.add(user, service={"migrate_to_chat_id": number}))
        room.upgraded_to = number
        large.tell(large.add(None, service={"migrate_from_chat_id": room.place.id}))
        return Chat(large)

    def room(self, chat_id: int | str) -> ChatState:
        """Return the chat that a request names, by number or by ``@name``."""
        room = self.rooms.get(chat_id) if isinstance(chat_id, int) else None
        if isinstance(chat_id, str) and chat_id.startswith("@"):
            wanted = chat_id[1:].lower()
            room = next(
                (
                    one
                    for one in self.rooms.values()
                    if one.place.type != "private" and one.place.username.lower() == wanted
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
