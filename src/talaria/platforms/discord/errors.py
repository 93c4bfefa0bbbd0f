"""Discord's errors, translated to ours."""

from datetime import timedelta

from discord import ConnectionClosed, HTTPException

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable

UNKNOWN_EMOJI = 10014
INVALID_FORM = 50035
CANNOT_REPLY = 160002

_DEFAULT_PAUSE = 5.0
_FATAL = {
    4004: "Discord rejected the bot token; it may have been reset",
    4014: "Discord doesn't let this bot read messages. Turn on Message Content Intent on the Bot page of its "
    "application, or set message_content to false",
}


class Refusal(Rejected):
    """A refusal by Discord; ``code`` says why."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


def pause(seconds: float, *, everywhere: bool) -> SlowDown:
    """Return the error for a rate limit."""
    return SlowDown(
        f"Discord asks us to wait {seconds:g} s", retry_after=timedelta(seconds=seconds), everywhere=everywhere
    )


def to_platform_error(error: HTTPException) -> PlatformError:
    """Return our error for an error response."""
    match error.status:
        case 401:
            return BadCredentials("Discord rejected the bot token; it may have been reset")
        case 429:
            return pause(_seconds(error), everywhere=True)
        case 403 if not error.code:
            return Unreachable("a proxy in front of Discord refused the request (403)")
        case status if 400 <= status < 500:
            return Refusal(f"Discord refused: {error.text or status} ({error.code})", error.code)
        case status:
            return Unreachable(f"Discord is having problems ({status})")


def to_close_error(error: ConnectionClosed) -> PlatformError:
    """Return our error for a connection that Discord closed permanently."""
    if error.code in _FATAL:
        return BadCredentials(_FATAL[error.code])
    return Unreachable(f"Discord closed the connection ({error.code})")


def _seconds(error: HTTPException) -> float:
    try:
        return float(error.response.headers["Retry-After"])
    except (KeyError, ValueError):
        return _DEFAULT_PAUSE
