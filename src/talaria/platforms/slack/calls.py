"""Calls of the Web API: each within its time, each failure one of ours."""

import asyncio
import logging
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from talaria.core.errors import BadCredentials, PlatformError, Rejected, Unreachable
from talaria.platforms.slack.refusals import Refusal, our_error, read_refusal
from talaria.platforms.slack.settings import SlackSettings

_CHUNK = 64 * 1024
_BEST_EFFORT = timedelta(seconds=5)
_SLACKS = (".slack.com", ".slack-edge.com", ".slack-files.com")

log = logging.getLogger(__name__)


class NotTaken(Exception):
    """Slack said no, for the caller to judge."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


class Calls:
    """The library's client, and how it is asked; nothing is sent before the first question."""

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._web: AsyncWebClient | None = None

    @property
    def web(self) -> AsyncWebClient:
        """The client; it has connections as long as `close` was not called."""
        if self._web is None or self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
            self._web = AsyncWebClient(
                token=self._settings.token,
                base_url=self._settings.base_url,
                session=self._session,
                retry_handlers=[],
                logger=quiet_log(),
            )
        return self._web

    async def ask(self, call: Awaitable[AsyncSlackResponse], patience: timedelta | None = None) -> dict[str, Any]:
        """Return the answer, or raise one of our errors."""
        try:
            return await self.ask_openly(call, patience)
        except NotTaken as no:
            raise our_error(no.refusal) from no

    async def ask_openly(
        self, call: Awaitable[AsyncSlackResponse], patience: timedelta | None = None
    ) -> dict[str, Any]:
        """The same, except that what `Rejected` would stand for is told by `NotTaken`."""
        seconds = (patience or self._settings.patience).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                answer = await call
        except TimeoutError as error:
            raise Unreachable(f"Slack did not answer within {seconds:g} s") from error
        except SlackApiError as error:
            refusal = read_refusal(error)
            meant = our_error(refusal)
            if isinstance(meant, Rejected):
                raise NotTaken(refusal) from error
            raise meant from error
        except (SlackClientError, aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(f"Slack cannot be reached: {type(error).__name__}") from error
        return answer.data if isinstance(answer.data, dict) else {}

    async def attempt(self, call: Awaitable[AsyncSlackResponse]) -> dict[str, Any] | None:
        """Ask for something that a conversation can do without; ``None`` where that is not to be had."""
        try:
            return await self.ask(call, min(_BEST_EFFORT, self._settings.patience))
        except BadCredentials:
            raise
        except PlatformError as error:
            log.info("%s: %s", self._settings.name, error)
            return None

    async def load(self, url: str, media_type: str) -> bytes:
        """Return what is at an address of Slack's; the token goes there alone, and is not carried on to elsewhere."""
        if not self._is_slack(url):
            raise Rejected("this file is not at Slack")
        session = self.web.session
        assert session is not None
        headers = {"Authorization": f"Bearer {self._settings.token}"}
        try:
            async with (
                asyncio.timeout(self._settings.file_patience.total_seconds()),
                session.get(url, headers=headers, allow_redirects=False) as answer,
            ):
                _check(answer, media_type)
                return await self._content(answer.content)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"a file cannot be fetched from Slack: {type(error).__name__}") from error

    async def close(self) -> None:
        """Let go of all connections; the next call makes new ones."""
        session, self._session, self._web = self._session, None, None
        if session is not None:
            await session.close()

    async def _content(self, stream: aiohttp.StreamReader) -> bytes:
        data, limit = bytearray(), self._settings.file_limit
        async for piece in stream.iter_chunked(_CHUNK):
            data += piece
            if len(data) > limit:
                raise Rejected(f"the file is larger than {limit} bytes")
        return bytes(data)

    def _is_slack(self, url: str) -> bool:
        there, ours = urlsplit(url), urlsplit(self._settings.base_url)
        if (there.scheme, there.netloc) == (ours.scheme, ours.netloc):
            return True
        return there.scheme == "https" and f".{there.hostname or ''}".endswith(_SLACKS)


def quiet_log() -> logging.Logger:
    """Return the log of the library: it would write tracebacks, addresses and what people say."""
    logger = logging.getLogger(f"{__name__}.library")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


def _check(answer: aiohttp.ClientResponse, media_type: str) -> None:
    if answer.status == 429 or answer.status >= 500:
        raise Unreachable(f"a file cannot be fetched from Slack now (HTTP {answer.status})")
    # Who may not see a file is shown the page to log in at, or sent there.
    is_page = answer.content_type == "text/html" and media_type != "text/html"
    if answer.status != 200 or is_page:
        raise Rejected("Slack does not give us this file: it may be gone, or the app lacks the scope files:read")
