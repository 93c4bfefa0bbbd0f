"""Updates that Telegram hands over itself: each is acknowledged when the next one is asked for."""

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from telegram import Update

from talaria.core.errors import Unreachable
from talaria.platforms.counter import Counter, Handed
from talaria.platforms.telegram.calls import Calls, read_raw
from talaria.platforms.telegram.incoming import ALLOWED_UPDATES
from talaria.platforms.telegram.settings import TelegramSettings, Webhook

_HEADER = "X-Telegram-Bot-Api-Secret-Token"
_LARGEST = 4 * 1024 * 1024
_TAKEN_WITHIN = timedelta(seconds=25)


class Hook:
    """The server that Telegram calls; where it is quiet, Telegram is asked whether it still does."""

    def __init__(self, calls: Calls, settings: Webhook, bot: TelegramSettings) -> None:
        self._calls = calls
        self._settings = settings
        self._secret = settings.secret or sha256(f"webhook:{bot.token}".encode()).hexdigest()
        self._look_after = 2 * bot.poll
        self._counter: Counter[Update] = Counter(settings.host, settings.port, _TAKEN_WITHIN)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Listen, and ask Telegram to call; what it cannot hand over afterwards it keeps."""
        path = urlsplit(self._settings.public_url).path or "/"
        async with self._counter.serve(path, self._receive, largest=_LARGEST):
            await self._announce()
            yield

    async def following(self, within: timedelta | None = None) -> Handed[Update] | None:
        """Return what Telegram hands over next, ``None`` where nothing comes within some time.

        Without a time it waits. Raises `Unreachable` when Telegram does not call here any more.
        """
        while True:
            handed = await self._counter.following(within or self._look_after)
            if handed is not None or within is not None:
                return handed
            await self._look()

    async def _look(self) -> None:
        """Make sure that nothing is to be heard because nothing is said."""
        info = await self._calls.ask(self._calls.bot.get_webhook_info())
        if info.url != self._settings.public_url:
            raise Unreachable("somebody has taken the webhook of this bot away")
        if info.pending_update_count and info.last_error_message and self._counter.is_empty:
            raise Unreachable(f"Telegram cannot hand over what waits there: {info.last_error_message}")

    async def _announce(self) -> None:
        # One connection at a time, so that what people write arrives in its order.
        await self._calls.ask(
            self._calls.bot.set_webhook(
                self._settings.public_url,
                max_connections=1,
                allowed_updates=ALLOWED_UPDATES,
                secret_token=self._secret,
            )
        )

    async def _receive(self, request: web.Request) -> web.Response:
        if not hmac.compare_digest(request.headers.get(_HEADER, "").encode(errors="replace"), self._secret.encode()):
            return web.Response(status=403)
        try:
            raw = msgspec.json.decode(await request.read(), type=dict[str, Any])
        except msgspec.DecodeError:
            return web.Response(status=400)
        update = read_raw(raw)
        if update is None:
            return web.Response()  # it would come again for ever
        return web.Response(status=200 if await self._counter.hand_over(update) else 503)
