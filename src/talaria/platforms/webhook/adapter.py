"""The webhook adapter: programs post events and get replies."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

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
from talaria.core.errors import Refused, Rejected, Unreachable
from talaria.platforms.webhook.receiver import WebhookReceiver
from talaria.platforms.webhook.routes import Route, Routes
from talaria.platforms.webhook.sender import TEXT_LIMIT, ReplyPoster, encode_reply
from talaria.platforms.webhook.settings import WebhookSettings, read_settings
from talaria.platforms.webhook.signatures import make_signature_headers
from talaria.platforms.webhook_endpoint import take_pushed

PATH = "/webhooks/{route}"
_ABILITIES = PlatformCapabilities(text_limit=TEXT_LIMIT, idempotent=True, exclusive=True)

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
