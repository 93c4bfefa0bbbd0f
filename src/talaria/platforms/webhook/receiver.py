"""Receive posts: authorisation, size and rate limits; acknowledged when stored."""

import logging
import secrets
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus

import msgspec

from talaria.contracts.clock import Clock
from talaria.contracts.platform import Incoming
from talaria.core.errors import Refused
from talaria.platforms.push_receiver import PushReceiver, PushRequest, PushResponse
from talaria.platforms.signatures import BadSignature, has_signature, verify_signature
from talaria.platforms.webhook.incoming import UnreadableBody, read_event, translate
from talaria.platforms.webhook.routes import Route, Routes
from talaria.platforms.webhook.settings import WebhookSettings, is_loopback
from talaria.platforms.webhook.templates import Event
from talaria.platforms.webhook_endpoint import BodyReaders, PostRejected

_PROXY_HEADERS = ("origin", "forwarded", "x-forwarded-for", "x-forwarded-host", "via")

log = logging.getLogger(__name__)


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
            return await self._receive(self._route(name), request)
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
        challenge = _challenge(route, event)
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

    def _route(self, name: str) -> Route:
        try:
            route = self._routes.find(name)
        except Refused as error:
            raise _route_unavailable(name, str(error)) from error
        if route is None:
            raise PostRejected(HTTPStatus.NOT_FOUND, "There is no such route.")
        if route.parsed.scheme == "none" and not self._settings.is_on_loopback:
            raise _route_unavailable(
                name, f"unsigned requests are accepted only on loopback, not on {self._settings.host}"
            )
        return route

    def _authorize(self, route: Route, headers: dict[str, str], raw: bytes) -> None:
        """Raise `PostRejected` unless the sender is authorised and within its rate; others are not counted."""
        parsed, now = route.parsed, self._clock.now()
        secret = self._secret(parsed.secret) or ""
        if parsed.scheme == "none":
            if any(name in headers for name in _PROXY_HEADERS) or not is_loopback(_host(headers)):
                raise PostRejected(HTTPStatus.FORBIDDEN, "Unsigned requests are accepted only from this machine.")
        elif not secret:
            raise _route_unavailable(route.name, f"the secret {parsed.secret} is not set")
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


def _route_unavailable(name: str, why: str) -> PostRejected:
    """Return the answer for a misconfigured route: retry later."""
    log.error("can't serve webhook %s: %s", name, why)
    return PostRejected(HTTPStatus.SERVICE_UNAVAILABLE, "This route is misconfigured.", retry_after=60)


def _challenge(route: Route, event: Event) -> str | None:
    """Return the answer to Slack's URL verification."""
    if route.parsed.scheme != "slack" or event.find("body.type") != "url_verification":
        return None
    return event.find("body.challenge") or ""


def _host(headers: dict[str, str]) -> str:
    host = headers.get("host", "")
    return host.partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _replace_surrogates(value: str) -> str:
    return value.encode(errors="replace").decode()


def _respond(status: HTTPStatus, content: dict[str, str], headers: dict[str, str] | None = None) -> PushResponse:
    body = msgspec.json.encode(content) + b"\n"
    return PushResponse(status, body, "application/json", headers or {})
