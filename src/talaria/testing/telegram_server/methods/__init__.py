"""The methods of the Bot API, in groups."""

from talaria.testing.telegram_server.methods.base import Method
from talaria.testing.telegram_server.methods.chats import ACCOUNT, CHATS
from talaria.testing.telegram_server.methods.messages import MEDIA, TEXTS

METHODS: dict[str, Method] = {
    method.name.lower(): method for group in (ACCOUNT, TEXTS, MEDIA, CHATS) for method in group
}

__all__ = ["METHODS", "Method"]
