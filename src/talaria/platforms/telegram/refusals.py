"""What the Bot API says when it does not do what was asked, and what that means to us.

It has a number for each class of errors; within "400" there is nothing but a sentence to tell them apart.
"""

from datetime import timedelta

import msgspec
from msgspec import Struct
from telegram.error import Conflict, InvalidToken, TelegramError

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable

_DEFAULT_PAUSE = 5
_NOT_MODIFIED = "message is not modified"
_ABOUT_MARKS = ("can't parse entities", "entity", "entities")
_NO_MARK = "REACTION_INVALID"
_WITHOUT_TEXT = "there is no text in the message to edit"


class _Parameters(Struct, frozen=True):
    """What a program can do about an error."""

    retry_after: int = 0
    migrate_to_chat_id: int = 0


class _Answer(Struct, frozen=True):
    """An answer that says no."""

    description: str = ""
    parameters: _Parameters = _Parameters()


class Refusal(TelegramError):
    """An answer of the Bot API other than yes."""

    def __init__(self, code: int, description: str, *, retry_after: int = 0, moved_to: int = 0) -> None:
        super().__init__(f"{code} {description}")
        self.code = code
        self.description = description
        self.retry_after = retry_after
        self.moved_to = moved_to

    @property
    def changes_nothing(self) -> bool:
        """Whether an edit was refused because the message says that already."""
        return self.code == 400 and _NOT_MODIFIED in self.description

    @property
    def is_about_marks(self) -> bool:
        """Whether the same text may be taken without its marks."""
        return self.code == 400 and any(word in self.description.lower() for word in _ABOUT_MARKS)

    @property
    def wants_another_mark(self) -> bool:
        """Whether a message cannot be marked like this, neither there nor perhaps anywhere."""
        return self.code == 400 and _NO_MARK in self.description

    @property
    def wants_a_caption(self) -> bool:
        """Whether an edit was refused because the message is a file, whose text is its caption."""
        return self.code == 400 and _WITHOUT_TEXT in self.description


def read_refusal(code: int, payload: bytes) -> Refusal:
    """Return the error in an answer; one that nobody can read counts by its status alone."""
    try:
        answer = msgspec.json.decode(payload, type=_Answer)
    except msgspec.DecodeError:
        answer = _Answer()
    return Refusal(
        code,
        answer.description or "without a reason",
        retry_after=answer.parameters.retry_after,
        moved_to=answer.parameters.migrate_to_chat_id,
    )


def our_error(error: TelegramError) -> PlatformError:
    """Return the error of ours for one of the library; never with the token in its text."""
    if isinstance(error, InvalidToken):
        return BadCredentials("Telegram does not know this bot; its token may have been revoked")
    if isinstance(error, Conflict):
        return _another_receiver()
    if not isinstance(error, Refusal):
        return Unreachable(f"Telegram cannot be reached: {type(error).__name__}")
    match error.code:
        case 401 | 404:
            return BadCredentials(f"Telegram does not know this bot; its token may have been revoked ({error})")
        case 409:
            return _another_receiver()
        case 429:
            pause = timedelta(seconds=error.retry_after or _DEFAULT_PAUSE)
            return SlowDown(f"Telegram asks for a pause of {pause.total_seconds():g} s", retry_after=pause)
        case code if 400 <= code < 500:
            return Rejected(f"Telegram refused: {error.description}")
        case _:
            return Unreachable(f"Telegram has trouble: {error}")


def _another_receiver() -> Unreachable:
    return Unreachable("another program receives for this bot: Telegram allows one at a time")
