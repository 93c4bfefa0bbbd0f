"""Telegram's errors, translated to ours.

The Bot API has a number for each class of errors; within "400" only the description tells them apart.
"""

from datetime import timedelta

import msgspec
from msgspec import Struct
from telegram.error import Conflict, InvalidToken, TelegramError

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable

_DEFAULT_PAUSE = 5
_NOT_MODIFIED = "message is not modified"
_ENTITY_ERRORS = ("can't parse entities", "entity", "entities")
_INVALID_REACTION = "REACTION_INVALID"
_NO_TEXT_TO_EDIT = "there is no text in the message to edit"


class _Parameters(Struct, frozen=True):
    """Machine-readable details of an error."""

    retry_after: int = 0
    migrate_to_chat_id: int = 0


class _ErrorAnswer(Struct, frozen=True):
    """An error answer."""

    description: str = ""
    parameters: _Parameters = _Parameters()


class Refusal(TelegramError):
    """An error answer of the Bot API."""

    def __init__(self, code: int, description: str, *, retry_after: int = 0, moved_to: int = 0) -> None:
        super().__init__(f"{code} {description}")
        self.code = code
        self.description = description
        self.retry_after = retry_after
        self.moved_to = moved_to

    @property
    def is_not_modified(self) -> bool:
        """Return whether an edit was refused because it changes nothing."""
        return self.code == 400 and _NOT_MODIFIED in self.description

    @property
    def is_about_entities(self) -> bool:
        """Return whether the same text may be accepted without formatting."""
        return self.code == 400 and any(word in self.description.lower() for word in _ENTITY_ERRORS)

    @property
    def is_invalid_reaction(self) -> bool:
        """Return whether a message can't be marked with this emoji."""
        return self.code == 400 and _INVALID_REACTION in self.description

    @property
    def is_caption_only(self) -> bool:
        """Return whether an edit was refused because the message is a file with a caption."""
        return self.code == 400 and _NO_TEXT_TO_EDIT in self.description


def read_refusal(code: int, payload: bytes) -> Refusal:
    """Return the error in an answer; an unreadable one counts by its status alone."""
    try:
        answer = msgspec.json.decode(payload, type=_ErrorAnswer)
    except msgspec.DecodeError:
        answer = _ErrorAnswer()
    return Refusal(
        code,
        answer.description or "no reason given",
        retry_after=answer.parameters.retry_after,
        moved_to=answer.parameters.migrate_to_chat_id,
    )


def to_platform_error(error: TelegramError) -> PlatformError:
    """Return our error for one of the library; never with the token in its text."""
    if isinstance(error, InvalidToken):
        return BadCredentials("Telegram rejected the bot token; it may have been revoked")
    if isinstance(error, Conflict):
        return _make_conflict_error()
    if not isinstance(error, Refusal):
        return Unreachable(f"can't reach Telegram: {type(error).__name__}")
    match error.code:
        case 401 | 404:
            return BadCredentials(f"Telegram rejected the bot token; it may have been revoked ({error})")
        case 409:
            return _make_conflict_error()
        case 429:
            pause = timedelta(seconds=error.retry_after or _DEFAULT_PAUSE)
            return SlowDown(f"Telegram asks us to wait {pause.total_seconds():g} s", retry_after=pause)
        case code if 400 <= code < 500:
            return Rejected(f"Telegram refused: {error.description}")
        case _:
            return Unreachable(f"Telegram is having problems: {error}")


def _make_conflict_error() -> Unreachable:
    return Unreachable("another program is receiving messages for this bot; Telegram allows only one at a time")
