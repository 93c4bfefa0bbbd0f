"""Deliver updates by POST, one after the other, until they are accepted."""

import asyncio

import aiohttp
import msgspec
from msgspec import Struct

from talaria.testing.telegram_server.parts import Wire
from talaria.testing.telegram_server.room import BotAccount
from talaria.testing.telegram_server.updates import DEFAULT_KINDS, Update

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
_PATIENCE = 10


class Delivered(Struct, frozen=True):
    """One attempt to deliver an update; without a status there was no answer."""

    update: Update
    status: int | None


class Webhook:
    """The webhook that updates are sent to."""

    def __init__(self, office: BotAccount) -> None:
        self.url = ""
        self.secret = ""
        self.connections = 40
        self.attempts: list[Delivered] = []
        self._office = office
        self._error: tuple[int, str] | None = None

    def point(self, url: str, secret: str, connections: int) -> None:
        """Deliver there from now on, or nowhere."""
        self.url, self.secret, self.connections = url, secret, connections
        self._error = None
        self._office.updates.webhook = bool(url)
        self._office.changes.happened()

    def wire(self) -> Wire:
        """Return the ``WebhookInfo``."""
        updates = self._office.updates
        info: Wire = {"url": self.url, "has_custom_certificate": False, "pending_update_count": len(updates.pending)}
        if self.url:
            info |= {"max_connections": self.connections, "ip_address": "127.0.0.1"}
        if self.url and self._error is not None:
            info |= {"last_error_date": self._error[0], "last_error_message": self._error[1]}
        if updates.allowed != DEFAULT_KINDS:
            info["allowed_updates"] = sorted(updates.allowed)
        return info

    async def deliver(self) -> None:
        """Deliver updates in order until cancelled; failed deliveries are retried after growing pauses."""
        pause = _FIRST_PAUSE
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PATIENCE)) as http:
            while True:
                await self._office.changes.until(self._has_work, within=float("inf"))
                update = self._office.updates.first()
                if update is not None and await self._post(http, update):
                    pause = _FIRST_PAUSE
                else:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def _has_work(self) -> bool:
        return bool(self.url) and self._office.updates.first() is not None

    async def _post(self, http: aiohttp.ClientSession, update: Update) -> bool:
        headers = {"Content-Type": "application/json"}
        if self.secret:
            headers["X-Telegram-Bot-Api-Secret-Token"] = self.secret
        status = None
        try:
            async with http.post(self.url, data=msgspec.json.encode(update.wire()), headers=headers) as response:
                status = response.status
                response_text = f"Wrong response from the webhook: {status} {response.reason}"
        except (aiohttp.ClientError, TimeoutError) as error:
            response_text = f"Connection failed: {error}" if str(error) else "Read timeout expired"
        self.attempts.append(Delivered(update, status))
        taken = status is not None and 200 <= status < 300
        if not taken:
            self._error = (self._office.now(), response_text)
        elif update in (*self._office.updates.pending, self._office.updates.first()):
            self._office.updates.delivered(update)
        self._office.changes.happened()
        return taken
