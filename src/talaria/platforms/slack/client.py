"""Calls of Slack's Web API, with time-outs and our error types."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.slack.settings import SlackSettings

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
_CHUNK = 64 * 1024
_BEST_EFFORT = timedelta(seconds=5)
_SLACK_HOSTS = (".slack.com", ".slack-edge.com", ".slack-files.com")

log = logging.getLogger(__name__)


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


class CallRefused(Exception):
    """A refusal by Slack, for the caller to judge."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


class ApiClient:
    """The library's client; nothing is sent before the first call."""

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._web: AsyncWebClient | None = None

    @property
    def web(self) -> AsyncWebClient:
        """Return the client; it stays connected until `close`."""
        if self._web is None or self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
            self._web = AsyncWebClient(
                token=self._settings.token,
                base_url=self._settings.base_url,
                session=self._session,
                retry_handlers=[],
                logger=silent_logger(),
            )
        return self._web

    async def ask(self, call: Awaitable[AsyncSlackResponse], patience: timedelta | None = None) -> dict[str, Any]:
        """Return the answer, or raise one of our errors."""
        try:
            return await self.ask_raw(call, patience)
        except CallRefused as call_refused:
            raise to_platform_error(call_refused.refusal) from call_refused

    async def ask_raw(self, call: Awaitable[AsyncSlackResponse], patience: timedelta | None = None) -> dict[str, Any]:
        """Return the answer, but raise `CallRefused` instead of `Rejected`."""
        seconds = (patience or self._settings.patience).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                answer = await call
        except TimeoutError as error:
            raise Unreachable(f"Slack didn't answer within {seconds:g} s") from error
        except SlackApiError as error:
            refusal = read_refusal(error)
            platform_error = to_platform_error(refusal)
            if isinstance(platform_error, Rejected):
                raise CallRefused(refusal) from error
            raise platform_error from error
        except (SlackClientError, aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(f"can't reach Slack: {type(error).__name__}") from error
        return answer.data if isinstance(answer.data, dict) else {}

    async def attempt(self, call: Awaitable[AsyncSlackResponse]) -> dict[str, Any] | None:
        """Make an optional call; ``None`` if it fails."""
        try:
            return await self.ask(call, min(_BEST_EFFORT, self._settings.patience))
        except BadCredentials:
            raise
        except PlatformError as error:
            log.info("%s: %s", self._settings.name, error)
            return None

    async def fetch_bytes(self, url: str, media_type: str) -> bytes:
        """Return the content of a Slack URL; the token is sent only there, not to redirect targets."""
        if not self._is_slack(url):
            raise Rejected("not a file on Slack")
        session = self.web.session
        assert session is not None
        headers = {"Authorization": f"Bearer {self._settings.token}"}
        try:
            async with (
                asyncio.timeout(self._settings.file_patience.total_seconds()),
                session.get(url, headers=headers, allow_redirects=False) as answer,
            ):
                _check_download(answer, media_type)
                return await self._read_limited(answer.content)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"can't fetch a file from Slack: {type(error).__name__}") from error

    async def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        session, self._session, self._web = self._session, None, None
        if session is not None:
            await session.close()

    async def _read_limited(self, stream: aiohttp.StreamReader) -> bytes:
        data, limit = bytearray(), self._settings.file_limit
        async for piece in stream.iter_chunked(_CHUNK):
            data += piece
            if len(data) > limit:
                raise Rejected(f"the file is larger than {limit} bytes")
        return bytes(data)

    def _is_slack(self, url: str) -> bool:
        target, base = urlsplit(url), urlsplit(self._settings.base_url)
        if (target.scheme, target.netloc) == (base.scheme, base.netloc):
            return True
        return target.scheme == "https" and f".{target.hostname or ''}".endswith(_SLACK_HOSTS)


def silent_logger() -> logging.Logger:
    """Return a silent logger for the library: it would log tracebacks, URLs and messages."""
    logger = logging.getLogger(f"{__name__}.library")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


def _check_download(answer: aiohttp.ClientResponse, media_type: str) -> None:
    if answer.status == 429 or answer.status >= 500:
        raise Unreachable(f"can't fetch a file from Slack right now (HTTP {answer.status})")
    # Without access to a file, Slack shows or redirects to its login page.
    is_page = answer.content_type == "text/html" and media_type != "text/html"
    if answer.status != 200 or is_page:
        raise Rejected(
            "Slack denied access to this file: it may have been deleted, or the app lacks the scope files:read"
        )
