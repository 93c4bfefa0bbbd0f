"""Updates that Telegram hands over itself: each is acknowledged when the next one is asked for."""

import asyncio
import hmac
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from msgspec import Struct
from telegram import Update

from talaria.core.errors import Unreachable
from talaria.platforms.telegram.calls import Calls, read_raw
from talaria.platforms.telegram.incoming import ALLOWED_UPDATES
from talaria.platforms.telegram.settings import TelegramSettings, Webhook

_HEADER = "X-Telegram-Bot-Api-Secret-Token"
_LARGEST = 4 * 1024 * 1024
_TAKEN_WITHIN = 25.0
_STEPS_OF_ACCEPTING = 5


class Handed(Struct, frozen=True):
    """An update, and what Telegram waits for: whether it was taken."""

    update: Update
    taken: asyncio.Future[bool]

    def settle(self, *, taken: bool) -> None:
        """Let Telegram know that the update was received, or that it has to come again."""
        if not self.taken.done():
            self.taken.set_result(taken)


class Hook:
    """The server that Telegram calls; where it is quiet, Telegram is asked whether it still does."""

    def __init__(self, calls: Calls, settings: Webhook, bot: TelegramSettings) -> None:
        self._calls = calls
        self._settings = settings
        self._secret = settings.secret or sha256(f"webhook:{bot.token}".encode()).hexdigest()
        self._look_after = 2 * bot.poll
        self._waiting: asyncio.Queue[Handed] = asyncio.Queue()
        self._closing = False

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Listen, and ask Telegram to call; what it cannot hand over afterwards it keeps."""
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_post(urlsplit(self._settings.public_url).path or "/", self._receive)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        listener = self._listener()
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            await self._announce()
            yield
        finally:
            self._closing = True
            while not self._waiting.empty():
                self._waiting.get_nowait().settle(taken=False)
            # Accept nothing more, and let what is being accepted arrive: closed in between, such a connection would
            # be known to nobody, and Telegram wait for an answer in vain.
            asyncio.get_running_loop().remove_reader(listener)
            for _ in range(_STEPS_OF_ACCEPTING):
                await asyncio.sleep(0)
            await runner.cleanup()
            listener.close()

    async def following(self, within: timedelta | None = None) -> Handed | None:
        """Return what Telegram hands over next, ``None`` where nothing comes within some time.

        Without a time it waits. Raises `Unreachable` when Telegram does not call here any more.
        """
        while True:
            try:
                async with asyncio.timeout((within or self._look_after).total_seconds()):
                    handed = await self._waiting.get()
            except TimeoutError:
                if within is not None:
                    return None
                await self._look()
                continue
            if not handed.taken.done():
                return handed

    async def _look(self) -> None:
        """Make sure that nothing is to be heard because nothing is said."""
        info = await self._calls.ask(self._calls.bot.get_webhook_info())
        if info.url != self._settings.public_url:
            raise Unreachable("somebody has taken the webhook of this bot away")
        if info.pending_update_count and info.last_error_message and self._waiting.empty():
            raise Unreachable(f"Telegram cannot hand over what waits there: {info.last_error_message}")

    def _listener(self) -> socket.socket:
        host, port = self._settings.host, self._settings.port
        try:
            return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise Unreachable(f"nothing can be received at port {port} of {host}: {error}") from error

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
        if not hmac.compare_digest(request.headers.get(_HEADER, "").encode(), self._secret.encode()):
            return web.Response(status=403)
        try:
            raw = msgspec.json.decode(await request.read(), type=dict[str, Any])
        except msgspec.DecodeError:
            return web.Response(status=400)
        if self._closing:
            return web.Response(status=503)
        update = read_raw(raw)
        if update is None:
            return web.Response()  # it would come again for ever
        handed = Handed(update, asyncio.get_running_loop().create_future())
        self._waiting.put_nowait(handed)
        try:
            async with asyncio.timeout(_TAKEN_WITHIN):
                return web.Response(status=200 if await handed.taken else 503)
        except TimeoutError:
            return web.Response(status=503)
