"""A connection to signal-cli's daemon: JSON-RPC requests and notifications, one per line."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct

from talaria.core.errors import PlatformError, Unreachable
from talaria.core.formatting import describe_os_error
from talaria.platforms.signal.settings import SignalSettings
from talaria.platforms.signal.wire import Envelope, to_error

log = logging.getLogger(__name__)

_CHUNK = 64 * 1024
_CLOSE_PATIENCE = timedelta(seconds=1)


class _Received(Struct):
    envelope: Envelope = Envelope()
    account: str = ""
    result: "_Received | None" = None  # of a subscription


class _RpcError(Struct):
    code: int = 0
    message: str = ""


class _RpcMessage(Struct):
    id: str | int | None = None
    method: str = ""
    params: _Received = msgspec.field(default_factory=_Received)
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: _RpcError | None = None


_decode = msgspec.json.Decoder(_RpcMessage).decode


class SignalConnection:
    """One connection. ``receive`` stores what was received; no later line is read until it has."""

    def __init__(self, settings: SignalSettings, receive: Callable[[Sequence[Envelope]], Awaitable[None]]) -> None:
        self._settings = settings
        self._receive = receive
        self._numbers = count(1)
        self._requests: dict[str, asyncio.Future[msgspec.Raw]] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failed.add_done_callback(lambda failed: failed.cancelled() or failed.exception())
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Future[None] | None = None
        self._subscription: object = None

    @property
    def is_open(self) -> bool:
        """Return whether it can be used."""
        return self._writer is not None and not self._failed.done()

    async def open(self) -> None:
        """Connect to the daemon."""
        settings = self._settings
        try:
            async with asyncio.timeout(settings.patience.total_seconds()):
                if settings.socket:
                    self._reader, self._writer = await asyncio.open_unix_connection(settings.socket)
                else:
                    self._reader, self._writer = await asyncio.open_connection(settings.host, settings.port)
        except (OSError, TimeoutError) as error:
            endpoint = settings.socket or f"{settings.host}:{settings.port}"
            raise Unreachable(
                f"the daemon of signal-cli can't be reached at {endpoint}: {describe_os_error(error)}"
            ) from error
        self._reading = asyncio.ensure_future(self._read())
        self._reading.add_done_callback(self._end_reading)

    async def close(self) -> None:
        """Disconnect; before that, end the subscription, because the daemon counts as delivered what it has sent."""
        if self._subscription is not None and self.is_open:
            with suppress(PlatformError):
                await self.call("unsubscribeReceive", {"subscription": self._subscription}, _CLOSE_PATIENCE)
        self._fail(Unreachable("we closed the connection"))
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def subscribe(self) -> None:
        """Start to receive messages on this connection."""
        self._subscription = await self.call("subscribeReceive", {})

    async def watch(self) -> None:
        """Wait until the connection fails, and raise why; a silent daemon is asked for a sign of life."""
        while True:
            await asyncio.wait([self._failed], timeout=self._settings.silence.total_seconds() / 2)
            if self._failed.done():
                self._failed.result()
            await self.call("version", {}, self._settings.silence / 2, account=False)

    async def call(
        self, method: str, params: dict[str, object], patience: timedelta | None = None, *, account: bool = True
    ) -> Any:
        """Return the result of a call; ``account`` adds ours to the parameters."""
        if self._writer is None or self._failed.done():
            raise Unreachable("the connection to signal-cli is closed")
        number = str(next(self._numbers))
        given = {**params, "account": self._settings.account} if account else params
        answered: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._requests[number] = answered
        try:
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": given}
            self._writer.write(msgspec.json.encode(request) + b"\n")
            async with asyncio.timeout((patience or self._settings.patience).total_seconds()):
                await self._writer.drain()
                return msgspec.json.decode(await answered)
        except TimeoutError as error:
            self._fail(Unreachable("signal-cli doesn't answer"))
            raise Unreachable("signal-cli doesn't answer") from error
        except OSError as error:
            raise Unreachable(f"the connection to signal-cli broke: {error}") from error
        finally:
            self._requests.pop(number, None)
            answered.cancel()

    def _fail(self, error: PlatformError) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
        for answered in self._requests.values():
            if not answered.done():
                answered.set_exception(error)
        if self._writer is not None:
            self._writer.close()

    async def _read(self) -> None:
        unfinished: list[bytes] = []
        most = self._settings.file_limit * 2  # a file in base 64
        size = 0
        try:
            while data := await self._reader.read(_CHUNK):
                *lines, rest = data.split(b"\n")
                if lines:
                    lines[0] = b"".join([*unfinished, lines[0]])
                    unfinished, size = [], 0
                    await self._process(lines)
                unfinished.append(rest)
                size += len(rest)
                if size > max(most, _CHUNK):
                    raise Unreachable("signal-cli sent a line that is too long")
            raise Unreachable("signal-cli closed the connection")
        except PlatformError as error:
            self._fail(error)
        except OSError as error:
            self._fail(Unreachable(f"the connection to signal-cli broke: {error}"))

    def _end_reading(self, reading: asyncio.Future[None]) -> None:
        """Give up a connection that sent lines which we can't process."""
        if not reading.cancelled() and (error := reading.exception()):
            log.error("signal: a line can't be processed", exc_info=error)
            self._fail(Unreachable(f"the daemon sent something that can't be processed: {error!r}"))

    async def _process(self, lines: Sequence[bytes]) -> None:
        """Store what was received, then hand out answers."""
        messages = []
        for line in filter(bytes.strip, lines):
            try:
                messages.append(_decode(line))
            except msgspec.DecodeError:
                continue  # of a newer daemon
        envelopes = [self._read_envelope(one.params) for one in messages if one.method == "receive"]
        if stored := [envelope for envelope in envelopes if envelope is not None]:
            await self._receive(stored)
        for message in messages:
            answered = self._requests.get(str(message.id))
            if answered is None or answered.done():
                continue
            if message.error is not None:
                answered.set_exception(to_error(message.error.code, message.error.message))
            else:
                answered.set_result(message.result)

    def _read_envelope(self, received: _Received) -> Envelope | None:
        """Return what was received for our account, if it is a message."""
        received = received.result or received
        other = received.account not in ("", self._settings.account)
        return None if other or received.envelope.message is None else received.envelope
