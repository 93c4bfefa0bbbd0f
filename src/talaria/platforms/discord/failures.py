"""What Discord says when it does not do what was asked, and what that means to us."""

from datetime import timedelta

from discord import ConnectionClosed, HTTPException

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable

UNKNOWN_EMOJI = 10014
INVALID_FORM = 50035
CANNOT_REPLY = 160002

_DEFAULT_PAUSE = 5.0
_FATAL = {
    4004: "Discord does not know this bot; its token may have been reset",
    4014: "Discord does not let this bot read messages: turn on Message Content Intent on the Bot page of its"
    " application, or set message_content to false",
}


class Refusal(Rejected):
    """Discord will not do this; ``code`` says why."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


def pause(seconds: float, *, everywhere: bool) -> SlowDown:
    """Return that Discord wants to be left alone for so long."""
    return SlowDown(
        f"Discord asks for a pause of {seconds:g} s", retry_after=timedelta(seconds=seconds), everywhere=everywhere
    )


def our_error(error: HTTPException) -> PlatformError:
    """Return the error of ours for an answer that says no."""
    match error.status:
        case 401:
            return BadCredentials("Discord does not know this bot; its token may have been reset")
        case 429:
            return pause(_seconds(error), everywhere=True)
        case 403 if not error.code:
            return Unreachable("something before Discord refuses us (403)")
        case status if 400 <= status < 500:
            return Refusal(f"Discord refused: {error.text or status} ({error.code})", error.code)
        case status:
            return Unreachable(f"Discord has trouble ({status})")


def closed(error: ConnectionClosed) -> PlatformError:
    """Return the error of ours for a connection that Discord ended for good."""
    if error.code in _FATAL:
        return BadCredentials(_FATAL[error.code])
    return Unreachable(f"Discord ended the connection ({error.code})")


def _seconds(error: HTTPException) -> float:
    try:
        return float(error.response.headers["Retry-After"])
    except (KeyError, ValueError):
        return _DEFAULT_PAUSE
