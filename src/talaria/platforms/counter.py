"""A counter where others hand things over by HTTP: each is acknowledged when the next one is asked for."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Generic, TypeVar

from aiohttp import web
from aiohttp.http import HttpProcessingError
from msgspec import Struct

from talaria.core.errors import Unreachable
from talaria.platforms.head_timer import HeadTimer

T = TypeVar("T")
_STEPS_OF_ACCEPTING = 5
_HEAD = timedelta(seconds=10)

log = logging.getLogger(__name__)


class Handed(Struct, Generic[T], frozen=True):
    """Something that was handed over, and what its sender waits for: whether it was taken."""

    item: T
    taken: asyncio.Future[bool]

    def settle(self, *, taken: bool) -> None:
        """Let the sender know that it was received, or that it has to come again."""
        if not self.taken.done():
            self.taken.set_result(taken)


class Counter(Generic[T]):
    """The server. A sender waits for ``patience`` at most, and is then to come again; a head has ``head`` to arrive."""

    def __init__(self, host: str, port: int, patience: timedelta, head: timedelta = _HEAD) -> None:
        self._host = host
        self._port = port
        self._patience = patience
        self._head = head
        self._waiting: asyncio.Queue[Handed[T]] = asyncio.Queue()
        self._closing = False

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits."""
        return self._waiting.empty()

    @asynccontextmanager
    async def serve(
        self, path: str, receive: Callable[[web.Request], Awaitable[web.StreamResponse]], *, largest: int
    ) -> AsyncIterator[None]:
        """Listen, and let ``receive`` answer what is posted to a path; raises `Unreachable` where that cannot be."""
        timer = HeadTimer(self._head.total_seconds())
        app = web.Application(client_max_size=largest, middlewares=[timer.note_arrival])
        app.router.add_post(path, receive)
        log.addFilter(_is_no_stranger)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, logger=log)
        listener = self._listener()
        await runner.setup()
        accepting: asyncio.Server | None = None
        try:
            if runner.server is None:
                raise Unreachable("the server could not be set up")
            loop = asyncio.get_running_loop()
            accepting = await loop.create_server(timer.watched(runner.server), sock=listener)
            yield
        finally:
            self._closing = True
            while not self._waiting.empty():
                self._waiting.get_nowait().settle(taken=False)
            # Accept nothing more, and let what is being accepted arrive: closed in between, such a connection would
            # be known to nobody, and its sender wait for an answer in vain.
            asyncio.get_running_loop().remove_reader(listener)
            for _ in range(_STEPS_OF_ACCEPTING):
                await asyncio.sleep(0)
            if accepting is not None:
                accepting.close()
            await runner.cleanup()
            listener.close()

    async def hand_over(self, item: T) -> bool:
        """Wait until it is taken, and tell whether it was."""
        if self._closing:
            return False
        handed = Handed(item, asyncio.get_running_loop().create_future())
        self._waiting.put_nowait(handed)
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                return await handed.taken
        except TimeoutError:
            return False

    async def following(self, within: timedelta | None = None) -> Handed[T] | None:
        """Return what is handed over next, to be settled by the caller; ``None`` where nothing comes in time."""
        try:
            async with asyncio.timeout(within.total_seconds() if within else None):
                while (handed := await self._waiting.get()).taken.done():
                    pass
                return handed
        except TimeoutError:
            return None

    def _listener(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            return socket.create_server((self._host, self._port), family=family)
        except OSError as error:
            raise Unreachable(f"nothing can be received at port {self._port} of {self._host}: {error}") from error


def _is_no_stranger(record: logging.LogRecord) -> bool:
    """Tell whether a line is about us: what is no HTTP is answered as such, and is nobody's bug."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | web.RequestPayloadError))
