"""The webhook adapter: programs post events, authorised and limited, and get replies posted to their receivers."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta
from http import HTTPStatus

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
from talaria.platforms.push_receiver import PushReceiver, PushRequest, PushResponse
from talaria.platforms.signatures import BadSignature, has_signature, make_signature_headers, verify_signature
from talaria.platforms.webhook.incoming import UnreadableBody, read_event, translate
from talaria.platforms.webhook.routes import Route, Routes
from talaria.platforms.webhook.settings import WebhookSettings, is_loopback, read_settings
from talaria.platforms.webhook.templates import Event
from talaria.platforms.webhook_endpoint import BodyReaders, PostRejected, take_pushed

_PROXY_HEADERS = ("origin", "forwarded", "x-forwarded-for", "x-forwarded-host", "via")
log = logging.getLogger(__name__)
PATH = "/webhooks/{route}"
TEXT_LIMIT = 50_000
_ABILITIES = PlatformCapabilities(text_limit=TEXT_LIMIT, idempotent=True, exclusive=True)
_RETRY_STATUSES = {408, 423, 425}
_DEFAULT_PAUSE, _LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=5)


class RateLimiter:
    """Allows a number of events per minute, at once if need be, then one at a time."""

    def __init__(self) -> None:
        self._used = 0.0
        self._updated_at: datetime | None = None

    def acquire(self, now: datetime, per_minute: int) -> int:
        """Admit one and return 0, or return the seconds until the next one."""
        if self._updated_at is not None:
            elapsed = max((now - self._updated_at).total_seconds(), 0.0)
            self._used = max(self._used - elapsed * per_minute / 60, 0.0)
        self._updated_at = now
        if self._used + 1 <= per_minute:
            self._used += 1
            return 0
        return int((self._used + 1 - per_minute) * 60 / per_minute) + 1


class WebhookReceiver:
    """Receives posts for all routes; ``secret`` returns the value of a secret by name."""

    def __init__(
        self, settings: WebhookSettings, routes: Routes, secret: Callable[[str], str | None], clock: Clock
    ) -> None:
        self.push_receiver: PushReceiver[Incoming] = PushReceiver(
            settings.host, settings.port, settings.patience, settings.head
        )
        self._settings = settings
        self._routes = routes
        self._secret = secret
        self._clock = clock
        self._in_flight = 0
        self._readers = BodyReaders(settings.waiting, settings.reading)
        self._rate_limiters: dict[str, RateLimiter] = {}

    async def receive(self, request: PushRequest) -> PushResponse:
        """Answer a post."""
        name = request.name
        try:
            return await self._receive(self._find_route(name), request)
        except PostRejected as rejected:
            log.warning("webhook %r: rejected a request: %d, %s", name[:64], rejected.status, rejected)
            headers = {"retry-after": str(rejected.retry_after)} if rejected.retry_after else {}
            return _respond(rejected.status, {"error": str(rejected)}, headers)

    async def _receive(self, route: Route, request: PushRequest) -> PushResponse:
        headers = {name: _replace_surrogates(value) for name, value in request.headers.items()}
        if not has_signature(route.parsed.scheme, headers, header=route.parsed.header):
            raise PostRejected(HTTPStatus.UNAUTHORIZED, "The signature is invalid: it is missing.")
        raw = await self._readers.read(request)
        self._authorize(route, headers, raw)
        try:
            event = read_event(headers, raw, route)
        except UnreadableBody as error:
            raise PostRejected(HTTPStatus.BAD_REQUEST, f"Can't read the request: {error}.") from error
        challenge = _answer_challenge(route, event)
        if challenge is not None:
            return PushResponse(body=challenge.encode())
        now = self._clock.now()
        parsed = translate(route, event, raw, platform=self._settings.name, at=now, mark=secrets.token_hex(6))
        if parsed.missing:
            log.warning("webhook %s: the event has no %s", route.name, ", ".join(parsed.missing))
        if parsed.incoming is None:
            log.info("webhook %s: ignored an event: %s", route.name, parsed.why)
            return _respond(HTTPStatus.OK, {"status": "ignored"})
        await self._store_incoming(parsed.incoming)
        return _respond(HTTPStatus.ACCEPTED, {"status": "accepted", "id": parsed.incoming.message_id})

    async def _store_incoming(self, incoming: Incoming) -> None:
        if self._in_flight >= self._settings.waiting:
            raise PostRejected(HTTPStatus.TOO_MANY_REQUESTS, "Too many pending events.", retry_after=5)
        self._in_flight += 1
        try:
            taken = await self.push_receiver.push(incoming)
        finally:
            self._in_flight -= 1
        if not taken:
            raise PostRejected(HTTPStatus.SERVICE_UNAVAILABLE, "The event couldn't be stored in time.", retry_after=5)

    def _find_route(self, name: str) -> Route:
        try:
            route = self._routes.find(name)
        except Refused as error:
            raise _reject_route(name, str(error)) from error
        if route is None:
            raise PostRejected(HTTPStatus.NOT_FOUND, "There is no such route.")
        if route.parsed.scheme == "none" and not self._settings.is_on_loopback:
            raise _reject_route(name, f"unsigned requests are accepted only on loopback, not on {self._settings.host}")
        return route

    def _authorize(self, route: Route, headers: dict[str, str], raw: bytes) -> None:
        """Raise `PostRejected` unless the sender is authorised and within its rate; others are not counted."""
        parsed, now = route.parsed, self._clock.now()
        secret = self._secret(parsed.secret) or ""
        if parsed.scheme == "none":
            if any(name in headers for name in _PROXY_HEADERS) or not is_loopback(_read_host(headers)):
                raise PostRejected(HTTPStatus.FORBIDDEN, "Unsigned requests are accepted only from this machine.")
        elif not secret:
            raise _reject_route(route.name, f"the secret {parsed.secret} is not set")
        try:
            verify_signature(
                parsed.scheme, secret, headers, raw, header=parsed.header, now=now, tolerance=parsed.tolerance
            )
        except BadSignature as error:
            raise PostRejected(HTTPStatus.UNAUTHORIZED, f"The signature is invalid: {error}.") from error
        rate_limiter = self._rate_limiters.setdefault(route.name, RateLimiter())
        pause = rate_limiter.acquire(now, parsed.per_minute)
        if pause:
            raise PostRejected(HTTPStatus.TOO_MANY_REQUESTS, "Too many events for this route.", retry_after=pause)


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
        route = self._find_route(to.chat_id)
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

    def _find_route(self, name: str) -> Route:
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


def _reject_route(name: str, why: str) -> PostRejected:
    """Return the answer for a misconfigured route: retry later."""
    log.error("can't serve webhook %s: %s", name, why)
    return PostRejected(HTTPStatus.SERVICE_UNAVAILABLE, "This route is misconfigured.", retry_after=60)


def _answer_challenge(route: Route, event: Event) -> str | None:
    """Return the answer to Slack's URL verification."""
    if route.parsed.scheme != "slack" or event.find("body.type") != "url_verification":
        return None
    return event.find("body.challenge") or ""


def _read_host(headers: dict[str, str]) -> str:
    host = headers.get("host", "")
    return host.partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _replace_surrogates(value: str) -> str:
    return value.encode(errors="replace").decode()


def _respond(status: HTTPStatus, content: dict[str, str], headers: dict[str, str] | None = None) -> PushResponse:
    body = msgspec.json.encode(content) + b"\n"
    return PushResponse(status, body, "application/json", headers or {})


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
