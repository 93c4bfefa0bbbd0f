"""What a homeserver's refusals mean: one of our errors for each."""

from datetime import timedelta

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable

_NOBODY = {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED", "M_USER_LOCKED"}
_PAUSE = timedelta(seconds=5)
_LONGEST_PAUSE = timedelta(hours=1)


def failure(code: str, status: int, words: str, *, retry_after: timedelta | None = None) -> PlatformError:
    """Return the error for an answer with this error code and HTTP status; either may be missing."""
    said = f"the homeserver answered {code or status or 'with something else than Matrix'}: {words}"
    if code == "M_LIMIT_EXCEEDED" or status == 429:
        pause = _PAUSE if retry_after is None else min(retry_after, _LONGEST_PAUSE)
        return SlowDown(said, retry_after=pause, everywhere=True)  # homeservers limit accounts, not rooms
    if code in _NOBODY or status == 401:
        return BadCredentials(said)
    # A gateway in between that is out of order speaks HTML, with any status.
    if status >= 500 or not code:
        return Unreachable(said)
    return Rejected(said)


def login_failure(error: PlatformError) -> PlatformError:
    """Return what a refusal means where it answers a login: that the account is not ours."""
    return BadCredentials(str(error)) if isinstance(error, Rejected) else error
