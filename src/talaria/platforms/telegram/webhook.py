"""Receive updates by webhook: each is acknowledged when the next one is requested."""

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec
from telegram import Update

from talaria.core.errors import Unreachable
from talaria.platforms.push_receiver import (
    BodyBroken,
    BodyTooLarge,
    PushedItem,
    PushReceiver,
    PushRequest,
    PushResponse,
)
from talaria.platforms.telegram.client import ApiClient, decode_update
from talaria.platforms.telegram.incoming import ALLOWED_UPDATES
from talaria.platforms.telegram.settings import TelegramSettings, Webhook

_HEADER = "x-telegram-bot-api-secret-token"
_MAX_BODY_BYTES = 4 * 1024 * 1024
_ACKNOWLEDGE_TIMEOUT = timedelta(seconds=25)


class WebhookServer:
    """The server that Telegram calls; during silence, Telegram is asked whether it still does."""

    def __init__(self, client: ApiClient, settings: Webhook, bot: TelegramSettings) -> None:
        self._client = client
        self._settings = settings
        self._secret = settings.secret or sha256(f"webhook:{bot.token}".encode()).hexdigest()
        self._check_interval = 2 * bot.poll
        self._receiver: PushReceiver[Update] = PushReceiver(settings.host, settings.port, _ACKNOWLEDGE_TIMEOUT)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Listen, and ask Telegram to call; updates it can't deliver later stay there."""
        path = urlsplit(self._settings.public_url).path or "/"
        async with self._receiver.serve(path, self._receive, largest=_MAX_BODY_BYTES):
            await self._register()
            yield

    async def next_item(self, timeout_after: timedelta | None = None) -> PushedItem[Update] | None:
        """Return the next update, ``None`` if none comes within some time.

        Without a time it waits. Raises `Unreachable` if Telegram no longer calls here.
        """
        while True:
            pushed = await self._receiver.next_item(timeout_after or self._check_interval)
            if pushed is not None or timeout_after is not None:
                return pushed
            await self._check_webhook()

    async def _check_webhook(self) -> None:
        """Check that silence means that there are no updates."""
        info = await self._client.ask(self._client.bot.get_webhook_info())
        if info.url != self._settings.public_url:
            raise Unreachable("the webhook of this bot was removed by another program")
        if info.pending_update_count and info.last_error_message and self._receiver.is_empty:
            raise Unreachable(f"Telegram can't deliver pending updates: {info.last_error_message}")

    async def _register(self) -> None:
        # One connection at a time, so that updates arrive in order.
        await self._client.ask(
            self._client.bot.set_webhook(
                self._settings.public_url,
                max_connections=1,
                allowed_updates=ALLOWED_UPDATES,
                secret_token=self._secret,
            )
        )

    async def _receive(self, request: PushRequest) -> PushResponse:
        if not hmac.compare_digest(request.headers.get(_HEADER, "").encode(errors="replace"), self._secret.encode()):
            return PushResponse(403)
        try:
            raw = msgspec.json.decode(await request.read(), type=dict[str, Any])
        except BodyTooLarge:
            return PushResponse(413)
        except (msgspec.DecodeError, BodyBroken):
            return PushResponse(400)
        update = decode_update(raw)
        if update is None:
            return PushResponse()  # it would come again forever
        return PushResponse(200 if await self._receiver.push(update) else 503)
