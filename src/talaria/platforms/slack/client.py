"""Calls of Slack's Web API, with time-outs and our error types, and names of people and channels."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
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
_MOST_NAMES = 5000
_NAME_SECONDS = 3600.0
_MISSING_SECONDS = 300.0
_MOST_AT_ONCE = 10


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


class NameDirectory:
    """A cache of names for an hour; unknown ids have none for some minutes."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._checked_until: dict[str, float] = {}
        self._names: OrderedDict[str, tuple[str, float]] = OrderedDict()

    async def people(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the known names of people by id."""
        found = {
            one: await self._get_name(one, self._fetch_user_name) for one in list(dict.fromkeys(ids))[:_MOST_AT_ONCE]
        }
        return {one: name for one, name in found.items() if name}

    async def channel(self, channel: str) -> str:
        """Return the name of a channel, empty for a private chat."""
        return "" if channel.startswith("D") else await self._get_name(channel, self._fetch_channel_name)

    async def check_access(self, channel: str) -> None:
        """Raise `Rejected` if we have no access to the channel; recent results are cached."""
        now = asyncio.get_running_loop().time()
        if self._checked_until.get(channel, 0.0) > now:
            return
        try:
            answer = await self._client.ask_raw(self._client.web.conversations_info(channel=channel))
        except CallRefused as call_refused:
            if call_refused.refusal.code in CHANNEL_ERRORS:
                raise to_platform_error(call_refused.refusal) from call_refused
            answer = {}
        found: dict[str, Any] = answer.get("channel") or {}
        if found.get("is_archived") or found.get("is_member") is False:
            raise Rejected(f"the app is not a member of {channel}, or the channel is empty")
        self._checked_until[channel] = now + _MISSING_SECONDS

    async def _get_name(self, key: str, ask: Callable[[str], Awaitable[str]]) -> str:
        now = asyncio.get_running_loop().time()
        known = self._names.get(key)
        if known is not None and known[1] > now:
            return known[0]
        name = await ask(key) or (known[0] if known else "")
        self._names[key] = (name, now + (_NAME_SECONDS if name else _MISSING_SECONDS))
        self._names.move_to_end(key)
        if len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)
        return name

    async def _fetch_user_name(self, user: str) -> str:
        answer = await self._client.attempt(self._client.web.users_info(user=user))
        person: dict[str, Any] = (answer or {}).get("user") or {}
        profile: dict[str, Any] = person.get("profile") or {}
        names = (profile.get("display_name"), profile.get("real_name"), person.get("real_name"), person.get("name"))
        return next((str(name) for name in names if name), "")

    async def _fetch_channel_name(self, channel: str) -> str:
        answer = await self._client.attempt(self._client.web.conversations_info(channel=channel))
        found: dict[str, Any] = (answer or {}).get("channel") or {}
        return str(found.get("name") or "")
