"""Post replies to receivers, with our error types."""

import asyncio
from datetime import timedelta

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Content
from talaria.core.addresses import Address
from talaria.core.errors import MalformedReply, PlatformError, ProviderUnreachable, Rejected, SlowDown, Unreachable
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import read_url
from talaria.http_client.timeouts import Timeouts

TEXT_LIMIT = 50_000


class WebhookReply(Struct, frozen=True, kw_only=True):
    """The body of a reply."""

    id: str
    route: str
    conversation: str
    reply_to: str
    text: str
    format: str = "markdown"


def encode_reply(to: Address, content: Content, key: str) -> bytes:
    """Return the body for a message; raises `Rejected` if it can't be posted."""
    if content.files:
        raise Rejected("webhook replies can't contain files")
    if not content.text.strip():
        raise Rejected("there is nothing to post")
    if len(content.text) > TEXT_LIMIT:
        raise Rejected(f"a webhook reply may have at most {TEXT_LIMIT} characters")
    text = content.text.encode(errors="replace").decode()
    return msgspec.json.encode(
        WebhookReply(id=key, route=to.chat_id, conversation=to.thread_id, reply_to=content.reply_to, text=text)
    )


_RETRY_STATUSES = {408, 423, 425}


_DEFAULT_PAUSE, _LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=5)


class ReplyPoster:
    """Connections to receivers, opened when needed."""

    def __init__(self, patience: timedelta) -> None:
        self._timeout = patience
        self._timeouts = Timeouts(connect=patience, first_byte=patience, silence=patience)
        self._pool = HttpPool(direct=True)

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        """Post a reply until accepted; redirects are not followed (nobody signed for their target)."""
        try:
            read_url(url)
        except ValueError as wrong:
            raise Rejected(f"the receiver's URL is invalid: {wrong}") from wrong
        try:
            async with (
                asyncio.timeout(self._timeout.total_seconds()),
                self._pool.post(url, body, headers, self._timeouts) as answer,
            ):
                error = _to_platform_error(answer.status, answer.headers.get("retry-after", ""))
                await answer.drain()
        except TimeoutError as late:
            seconds = self._timeout.total_seconds()
            raise Unreachable(f"the receiver didn't answer within {seconds:g} s") from late
        except ProviderUnreachable as broken:
            raise Unreachable(f"can't reach the receiver: {broken.cause}") from broken
        except MalformedReply as broken:
            raise Unreachable(f"the receiver doesn't speak HTTP: {broken}") from broken
        if error is not None:
            raise error

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()


def _to_platform_error(status: int, retry_after: str) -> PlatformError | None:
    if 200 <= status < 300:
        return None
    if status == 429:
        requested = timedelta(seconds=int(retry_after[:9])) if retry_after.isdecimal() else _DEFAULT_PAUSE
        pause = min(max(requested, timedelta(seconds=1)), _LONGEST_PAUSE)
        return SlowDown("the receiver asks us to wait", retry_after=pause, everywhere=False)
    if status >= 500 or status in _RETRY_STATUSES:
        return Unreachable(f"the receiver answered with {status}")
    return Rejected(f"the receiver answered with {status}")
