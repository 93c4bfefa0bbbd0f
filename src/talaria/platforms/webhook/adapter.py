"""Webhooks as a network: an implementation of `Platform` in which programs post events and get replies."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.platform import Abilities, Attachment, Content, Incoming, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import Refused, Rejected, Unreachable
from talaria.platforms.webhook.outgoing import TEXT_LIMIT, encode_reply
from talaria.platforms.webhook.posting import Posting
from talaria.platforms.webhook.receiving import Receiving
from talaria.platforms.webhook.routes import Route, Routes
from talaria.platforms.webhook.settings import WebhookSettings
from talaria.platforms.webhook.signatures import signed

PATH = "/webhooks/{route}"
_ABILITIES = Abilities(text_limit=TEXT_LIMIT, idempotent=True, exclusive=True)

log = logging.getLogger(__name__)


class Webhooks:
    """All routes of a profile; ``secret`` returns the value of a secret by its name.

    Replies can be sent whether it is connected or not. Whoever made it closes it.
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
        self._posting = Posting(settings.posting)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Listen and yield events; a sender is told that its event was taken when the next one is asked for."""
        receiving = Receiving(self._settings, self._routes, self._secret, self._clock)
        self._look_through()
        async with (
            receiving.counter.serve(PATH, receiving.receive, largest=self._settings.largest),
            aclosing(_taken(receiving)) as arrivals,
        ):
            log.info("webhooks: listening at http://%s:%d%s", self._settings.host, self._settings.port, PATH)
            yield arrivals

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a reply to where its route wants it; where it wants it nowhere, the transcript has it."""
        body = encode_reply(to, content, key)
        route = self._route(to.chat_id)
        if route.told.deliver_to:
            secret = self._secret(route.reply_secret)
            if not secret:
                raise Unreachable(f"the secret {route.reply_secret} of the route {route.name} is not set")
            headers = {"content-type": "application/json", "idempotency-key": key, "user-agent": "talaria"}
            proof = signed(secret, key, self._clock.now(), body)
            await self._posting.post(route.told.deliver_to, body, headers | proof)
        return MessageRef(to, key)

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Refuse: what was posted is with its receiver."""
        raise Rejected("what was posted cannot be edited")

    async def show_typing(self, to: Address) -> None:
        """Do nothing: programs do not watch."""

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Refuse: events cannot be marked."""
        raise Rejected("events cannot be marked")

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Refuse: events bring no files."""
        raise Rejected("events bring no files")

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Return ``None``: a conversation of events begins with an event."""
        return None

    async def close(self) -> None:
        """Let go of all connections."""
        await self._posting.close()

    def _route(self, name: str) -> Route:
        try:
            route = self._routes.find(name)
        except Refused as error:
            raise Unreachable(str(error)) from error
        if route is None:
            raise Rejected(f"there is no route {name!r}")
        return route

    def _look_through(self) -> None:
        """Say at once what is wrong with routes, and not only when an event comes."""
        names = self._routes.names()
        if not names:
            log.warning("webhooks: there is no route in %s yet", self._routes.folder)
        for name in names:
            try:
                self._routes.find(name)
            except Refused as error:
                log.error("webhook %s cannot be served: %s", name, error)  # noqa: TRY400 - it says what to mend


async def _taken(receiving: Receiving) -> AsyncGenerator[Incoming, None]:
    while (handed := await receiving.counter.following()) is not None:
        try:
            yield handed.item
            handed.settle(taken=True)
        finally:
            handed.settle(taken=False)
