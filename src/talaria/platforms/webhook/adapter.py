"""The webhook adapter: programs post events and get replies, which it posts to their receivers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.platform import (
    Content,
    Incoming,
    MessageRef,
    Platform,
    PlatformAccount,
    PlatformCapabilities,
    PlatformDefaults,
)
from talaria.core.addresses import Address
from talaria.core.errors import (
    MalformedReply,
    PlatformError,
    ProviderUnreachable,
    Refused,
    Rejected,
    SlowDown,
    Unreachable,
)
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts, read_url
from talaria.platforms.signatures import make_signature_headers
from talaria.platforms.webhook.receiver import WebhookReceiver
from talaria.platforms.webhook.routes import Route, Routes
from talaria.platforms.webhook.settings import WebhookSettings, read_settings
from talaria.platforms.webhook_endpoint import take_pushed

PATH = "/webhooks/{route}"
TEXT_LIMIT = 50_000
_ABILITIES = PlatformCapabilities(text_limit=TEXT_LIMIT, idempotent=True, exclusive=True)
_RETRY_STATUSES = {408, 423, 425}
_DEFAULT_PAUSE, _LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=5)
log = logging.getLogger(__name__)


class Webhooks(PlatformDefaults):
    """All routes of a profile; ``secret`` returns the value of a secret by name.

    Replies can be sent whether it is connected or not. The creator closes it.
    """

    def __init__(
        self, settings: WebhookSettings, secret: Callable[[str], str | None], clock: Clock | None = None
    ) -> None:
        self.name = settings.name
        self.abilities = _ABILITIES
        self._settings = settings
        self._routes = Routes(settings.folder)
        self._secret = secret
        self._clock = clock or SystemClock()
        self._poster = ReplyPoster(settings.posting)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Listen and yield events; a sender gets its acknowledgement when the next event is requested."""
        receiving = WebhookReceiver(self._settings, self._routes, self._secret, self._clock)
        self._check_routes()
        async with (
            receiving.push_receiver.serve(PATH, receiving.receive, largest=self._settings.largest),
            aclosing(take_pushed(receiving.push_receiver)) as updates,
        ):
            log.info("webhooks: listening at http://%s:%d%s", self._settings.host, self._settings.port, PATH)
            yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a reply to the URL of its route; without one it stays in the transcript."""
        body = encode_reply(to, content, key)
        route = self._route(to.chat_id)
        if route.parsed.deliver_to:
            secret = self._secret(route.reply_secret)
            if not secret:
                raise Unreachable(f"the secret {route.reply_secret} of the route {route.name} is not set")
            headers = {"content-type": "application/json", "idempotency-key": key, "user-agent": "talaria"}
            signature_headers = make_signature_headers(secret, key, self._clock.now(), body)
            await self._poster.post(route.parsed.deliver_to, body, headers | signature_headers)
        return MessageRef(to, key)

    async def close(self) -> None:
        """Close all connections."""
        await self._poster.close()

    def _route(self, name: str) -> Route:
        try:
            route = self._routes.find(name)
        except Refused as error:
            raise Unreachable(str(error)) from error
        if route is None:
            raise Rejected(f"there is no route {name!r}")
        return route

    def _check_routes(self) -> None:
        """Log problems of routes at once, not only when an event arrives."""
        names = self._routes.names()
        if not names:
            log.warning("webhooks: no routes in %s yet", self._routes.folder)
        for name in names:
            try:
                self._routes.find(name)
            except Refused as error:
                log.error("can't serve webhook %s: %s", name, error)  # noqa: TRY400 - it says what to fix


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter of all routes; they are files in the account's folder unless an option names another."""
    platform = Webhooks(read_settings(account.name, account.options, account.folder), account.secret)
    account.closing.push_async_callback(platform.close)
    return platform


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
