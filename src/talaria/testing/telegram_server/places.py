"""People and chats in wire form."""

from typing import Literal

from msgspec import Struct

ChatType = Literal["private", "group", "supergroup", "channel"]
Wire = dict[str, object]


class User(Struct, frozen=True, kw_only=True):
    """A person or a bot."""

    id: int
    first_name: str
    last_name: str = ""
    username: str = ""
    is_bot: bool = False

    def wire(self) -> Wire:
        """Return the ``User`` that stands in messages."""
        return _without_empty(
            id=self.id,
            is_bot=self.is_bot,
            first_name=self.first_name,
            last_name=self.last_name,
            username=self.username,
            language_code="" if self.is_bot else "en",
        )


class ChatInfo(Struct, frozen=True, kw_only=True):
    """The description of a chat."""

    id: int
    type: ChatType
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""
    is_forum: bool = False

    def wire(self) -> Wire:
        """Return the ``Chat`` that stands in messages."""
        return _without_empty(
            id=self.id,
            type=self.type,
            title=self.title,
            username=self.username,
            first_name=self.first_name,
            last_name=self.last_name,
            is_forum=self.is_forum or None,
        )


def _without_empty(**fields: object) -> Wire:
    return {name: value for name, value in fields.items() if value is not None and value != ""}
