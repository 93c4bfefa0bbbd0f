"""What Slack says when it does not do what was asked, and what that means to us."""

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct
from slack_sdk.errors import SlackApiError

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable

_NOBODY = frozenset({
    "invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type",
    "org_login_required", "team_access_not_granted", "user_removed_from_team", "app_not_installed",
})  # fmt: skip
_TROUBLE = frozenset({
    "internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org", "rollup_error",
    "external_service_timeout",
})  # fmt: skip
_ABOUT_BLOCKS = frozenset({
    "invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "invalid_attachments", "only_one_table_allowed",
})  # fmt: skip
GONE = frozenset({"channel_not_found", "not_in_channel", "is_archived"})
_PAUSE = 5
_LONGEST_PAUSE = 3600


class Refusal(Struct, frozen=True):
    """An answer other than yes; ``code`` is empty where it was no answer of Slack's at all."""

    code: str
    status: int
    retry_after: timedelta
    needed: str = ""

    @property
    def is_about_blocks(self) -> bool:
        """Whether the same text may be taken without anything around it."""
        return self.code in _ABOUT_BLOCKS


def read_refusal(error: SlackApiError) -> Refusal:
    """Return what an error of the library says."""
    response = error.response
    status = getattr(response, "status_code", None) or getattr(response, "status", None) or 0
    data = getattr(response, "data", None)
    said: Mapping[str, object] = data if isinstance(data, dict) else {}
    headers: Mapping[str, str] = getattr(response, "headers", None) or {}
    seconds = str(headers.get("Retry-After", ""))
    pause = min(int(seconds), _LONGEST_PAUSE) if seconds.isascii() and seconds.isdecimal() else _PAUSE
    return Refusal(
        str(said.get("error") or ""), int(status), timedelta(seconds=max(pause, 1)), str(said.get("needed") or "")
    )


def our_error(refusal: Refusal) -> PlatformError:
    """Return the error of ours. A pause is one for an address: Slack counts by method, and messages by channel."""
    code = refusal.code
    if code in ("ratelimited", "rate_limited", "message_limit_exceeded") or refusal.status == 429:
        pause = refusal.retry_after
        return SlowDown(f"Slack asks for a pause of {pause.total_seconds():g} s", retry_after=pause, everywhere=False)
    if code in _NOBODY:
        return BadCredentials(f"Slack does not know this app any more ({code}); its tokens may have been revoked")
    if not code or code in _TROUBLE or refusal.status >= 500:
        return Unreachable(f"Slack has trouble ({code or refusal.status or 'no answer that can be read'})")
    if code == "missing_scope":
        return Rejected(
            f"Slack wants the app to have the scope {refusal.needed or 'for that'}: install it anew with it"
        )
    return Rejected(f"Slack refused: {code}")
