"""A strict Telegram Bot API server on loopback, with simulated people."""

from talaria.testing.telegram_server.chat import Chat, Press
from talaria.testing.telegram_server.files import Document, Photo, Sticker, Upload, Voice, picture
from talaria.testing.telegram_server.messages import Message, Topic, Update, Version
from talaria.testing.telegram_server.parts import InlineKeyboardButton, MessageEntity, User
from talaria.testing.telegram_server.server import TOKEN, Call, TelegramServer
from talaria.testing.telegram_server.world import Delivered

__all__ = [
    "TOKEN",
    "Call",
    "Chat",
    "Delivered",
    "Document",
    "InlineKeyboardButton",
    "Message",
    "MessageEntity",
    "Photo",
    "Press",
    "Sticker",
    "TelegramServer",
    "Topic",
    "Update",
    "Upload",
    "User",
    "Version",
    "Voice",
    "picture",
]
