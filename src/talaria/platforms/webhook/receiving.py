"""Posts as they come in: who may, how much, how often; what is taken is told so when it is stored."""

import logging
import secrets
from collections.abc import Callable
from http import HTTPStatus

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.http import HttpProcessingError

from talaria.contracts.clock import Clock
from talaria.contracts.platform import Incoming
from talaria.core.errors import Refused
from talaria.platforms.counter import Counter
from talaria.platforms.webhook.incoming import Unreadable, read_event, translate
from talaria.platforms.webhook.pace import Turnstile
from talaria.platforms.webhook.readers import Readers
from talaria.platforms.webhook.routes import Route, Routes
from talaria.platforms.webhook.settings import WebhookSettings, is_loopback
from talaria.platforms.webhook.signatures import BadSignature, check, has_signature
from talaria.platforms.webhook.templates import Event

_FOREIGN = ("origin", "forwarded", "x-forwarded-for", "x-forwarded-host", "via")

log = logging.getLogger(__name__)


class Turned(Exception):
    """A post is turned away, with a status and a sentence for its sender; ``after`` is when it may come again."""

    def __init__(self, status: HTTPStatus, sentence: str, *, after: int = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.after = after


class Receiving:
    """Takes posts for all routes; ``secret`` returns the value of a secret by its name."""

    def __init__(
        self, settings: WebhookSettings, routes: Routes, secret: Callable[[str], str | None], clock: Clock
    ) -> None:
        self.counter: Counter[Incoming] = Counter(settings.host, settings.port, settings.patience, settings.head)
        self._settings = settings
        self._routes = routes
        self._secret = secret
        self._clock = clock
        self._under_way = 0
        self._readers = Readers(settings.waiting)
        self._turnstiles: dict[str, Turnstile] = {}

    async def receive(self, request: web.Request) -> web.Response:
        """Answer a post."""
        name = request.match_info["route"]
        try:
            return await self._receive(self._route(name), request)
        except Turned as turned:
            log.warning("webhook %r: a post was turned away: %d, %s", name[:64], turned.status, turned)
            headers = {"retry-after": str(turned.after)} if turned.after else {}
            return _answer(turned.status, {"error": str(turned)}, headers)

    async def _receive(self, route: Route, request: web.Request) -> web.Response:
        headers = {name.lower(): _clean(value) for name, value in request.headers.items()}
        if not has_signature(route.told.scheme, headers, header=route.told.header):
            raise Turned(HTTPStatus.UNAUTHORIZED, "The signature is not valid: it has no signature.")
        raw = await self._read(request)
        self._let_in(route, headers, raw)
        try:
            event = read_event(headers, raw, route)
        except Unreadable as error:
            raise Turned(HTTPStatus.BAD_REQUEST, f"This cannot be read: {error}.") from error
        challenge = _challenge(route, event)
        if challenge is not None:
            return web.Response(text=challenge)
        now = self._clock.now()
        told = translate(route, event, raw, platform=self._settings.name, at=now, mark=secrets.token_hex(6))
        if told.missing:
            log.warning("webhook %s: the event has no %s", route.name, ", ".join(told.missing))
        if told.incoming is None:
            log.info("webhook %s: an event was left aside: %s", route.name, told.why)
            return _answer(HTTPStatus.OK, {"status": "ignored"})
        await self._hand_over(told.incoming)
        return _answer(HTTPStatus.ACCEPTED, {"status": "accepted", "id": told.incoming.message_id})

    async def _hand_over(self, incoming: Incoming) -> None:
        if self._under_way >= self._settings.waiting:
            raise Turned(HTTPStatus.TOO_MANY_REQUESTS, "Too many events wait.", after=5)
        self._under_way += 1
        try:
            taken = await self.counter.hand_over(incoming)
        finally:
            self._under_way -= 1
        if not taken:
            raise Turned(HTTPStatus.SERVICE_UNAVAILABLE, "It could not be stored in time.", after=5)

    def _route(self, name: str) -> Route:
        try:
            route = self._routes.find(name)
        except Refused as error:
            raise _out_of_order(name, str(error)) from error
        if route is None:
            raise Turned(HTTPStatus.NOT_FOUND, "There is no such route.")
        if route.told.scheme == "none" and not self._settings.is_on_loopback:
            raise _out_of_order(name, f"unsigned posts are taken on loopback only, not on {self._settings.host}")
        return route

    async def _read(self, request: web.Request) -> bytes:
        try:
            async with self._readers.reading(request.remote or "", self._settings.reading.total_seconds()):
                return await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            largest = self._settings.largest
            raise Turned(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {largest} bytes are taken.") from error
        except TimeoutError as error:
            raise Turned(HTTPStatus.REQUEST_TIMEOUT, "The body did not arrive in time.") from error
        except (OSError, aiohttp.ClientError, HttpProcessingError, web.RequestPayloadError) as error:
            raise Turned(HTTPStatus.BAD_REQUEST, "The body broke off, or its encoding is wrong.") from error

    def _let_in(self, route: Route, headers: dict[str, str], raw: bytes) -> None:
        """Raise `Turned` unless the sender may post, and not too often; whoever may not is not counted."""
        told, now = route.told, self._clock.now()
        secret = self._secret(told.secret) or ""
        if told.scheme == "none":
            if any(name in headers for name in _FOREIGN) or not is_loopback(_host(headers)):
                raise Turned(HTTPStatus.FORBIDDEN, "Unsigned posts are taken from this machine only.")
        elif not secret:
            raise _out_of_order(route.name, f"the secret {told.secret} is not set")
        try:
            check(told.scheme, secret, headers, raw, header=told.header, now=now, tolerance=told.tolerance)
        except BadSignature as error:
            raise Turned(HTTPStatus.UNAUTHORIZED, f"The signature is not valid: {error}.") from error
        turnstile = self._turnstiles.setdefault(route.name, Turnstile())
        pause = turnstile.pass_at(now, told.per_minute)
        if pause:
            raise Turned(HTTPStatus.TOO_MANY_REQUESTS, "Events come too fast for this route.", after=pause)


def _out_of_order(name: str, why: str) -> Turned:
    """Return what a sender is told of a route that its owner has to mend: to come again."""
    log.error("webhook %s cannot be served: %s", name, why)
    return Turned(HTTPStatus.SERVICE_UNAVAILABLE, "This route is out of order.", after=60)


def _challenge(route: Route, event: Event) -> str | None:
    """Return what Slack wants to hear before it sends any event."""
    if route.told.scheme != "slack" or event.find("body.type") != "url_verification":
        return None
    return event.find("body.challenge") or ""


def _host(headers: dict[str, str]) -> str:
    host = headers.get("host", "")
    return host.partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _clean(value: str) -> str:
    return value.encode(errors="replace").decode()


def _answer(status: HTTPStatus, said: dict[str, str], headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(said) + b"\n"
    return web.Response(status=status, body=body, headers=headers, content_type="application/json")
