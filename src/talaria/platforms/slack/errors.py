"""Slack's errors, translated to ours."""

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct
from slack_sdk.errors import SlackApiError

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable

_AUTH_ERRORS = frozenset({
    "invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type",
    "org_login_required", "team_access_not_granted", "user_removed_from_team", "app_not_installed",
})  # fmt: skip
_SERVER_ERRORS = frozenset({
    "internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org", "rollup_error",
    "external_service_timeout",
})  # fmt: skip
_BLOCK_ERRORS = frozenset({
    "invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "invalid_attachments", "only_one_table_allowed",
})  # fmt: skip
CHANNEL_ERRORS = frozenset({"channel_not_found", "not_in_channel", "is_archived"})
_DEFAULT_PAUSE = 5
_LONGEST_PAUSE = 3600


class Refusal(Struct, frozen=True):
    """An error answer; ``code`` is empty if it wasn't from Slack at all."""

    code: str
    status: int
    retry_after: timedelta
    needed: str = ""

    @property
    def is_about_blocks(self) -> bool:
        """Return whether the same text may be accepted without blocks."""
        return self.code in _BLOCK_ERRORS


def read_refusal(error: SlackApiError) -> Refusal:
    """Return the refusal in an error of the library."""
    response = error.response
    status = getattr(response, "status_code", None) or getattr(response, "status", None) or 0
    data = getattr(response, "data", None)
    body: Mapping[str, object] = data if isinstance(data, dict) else {}
    headers: Mapping[str, str] = getattr(response, "headers", None) or {}
    seconds = str(headers.get("Retry-After", ""))
    pause = min(int(seconds), _LONGEST_PAUSE) if seconds.isascii() and seconds.isdecimal() else _DEFAULT_PAUSE
    return Refusal(
        str(body.get("error") or ""), int(status), timedelta(seconds=max(pause, 1)), str(body.get("needed") or "")
    )


def to_platform_error(refusal: Refusal) -> PlatformError:
    """Return our error. A pause applies to one address: Slack counts by method, and messages by channel."""
    code = refusal.code
    if code in ("ratelimited", "rate_limited", "message_limit_exceeded") or refusal.status == 429:
        pause = refusal.retry_after
        return SlowDown(f"Slack asks us to wait {pause.total_seconds():g} s", retry_after=pause, everywhere=False)
    if code in _AUTH_ERRORS:
        return BadCredentials(f"Slack rejected the app's tokens ({code}); they may have been revoked")
    if not code or code in _SERVER_ERRORS or refusal.status >= 500:
        return Unreachable(f"Slack is having problems ({code or refusal.status or 'unreadable answer'})")
    if code == "missing_scope":
        return Rejected(f"the Slack app lacks the scope {refusal.needed or 'for that'}. Add it and reinstall the app")
    return Rejected(f"Slack refused: {code}")
