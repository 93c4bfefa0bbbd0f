"""Calls of the Bot API that can be cancelled at any moment, with time-outs and our error types.

httpcore loses a connection permanently when its request is cancelled while it connects or begins to send. So no
cancellation reaches it: every request runs in a task of its own, with time-outs inside. A request whose caller is gone
is given up before it is sent, if it has not been sent yet.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import httpx
import msgspec
from msgspec import Struct
from telegram import Bot, Update
from telegram.error import Conflict, InvalidToken, NetworkError, TelegramError, TimedOut
from telegram.request import BaseRequest, HTTPXRequest, RequestData

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.telegram.settings import TelegramSettings

_DEFAULT_PAUSE = 5
_NOT_MODIFIED = "message is not modified"
_ENTITY_ERRORS = ("can't parse entities", "entity", "entities")
_INVALID_REACTION = "REACTION_INVALID"
_NO_TEXT_TO_EDIT = "there is no text in the message to edit"
_POOL_TIMEOUTS = 3  # in a row; then the pool counts as exhausted for good and is replaced
_CLOSING = 1.0  # seconds that requests have to end when their connections are closed
_SENDING = "http11.send_request_headers.started"
_CONNECTIONS = 64
_T = TypeVar("_T")

log = logging.getLogger(__name__)


class _Parameters(Struct, frozen=True):
    """Machine-readable details of an error."""

    retry_after: int = 0
    migrate_to_chat_id: int = 0


class _ErrorAnswer(Struct, frozen=True):
    """An error answer."""

    description: str = ""
    parameters: _Parameters = _Parameters()


class Refusal(TelegramError):
    """An error answer of the Bot API."""

    def __init__(self, code: int, description: str, *, retry_after: int = 0, moved_to: int = 0) -> None:
        super().__init__(f"{code} {description}")
        self.code = code
        self.description = description
        self.retry_after = retry_after
        self.moved_to = moved_to

    @property
    def is_not_modified(self) -> bool:
        """Return whether an edit was refused because it changes nothing."""
        return self.code == 400 and _NOT_MODIFIED in self.description

    @property
    def is_about_entities(self) -> bool:
        """Return whether the same text may be accepted without formatting."""
        return self.code == 400 and any(word in self.description.lower() for word in _ENTITY_ERRORS)

    @property
    def is_invalid_reaction(self) -> bool:
        """Return whether a message can't be marked with this emoji."""
        return self.code == 400 and _INVALID_REACTION in self.description

    @property
    def is_caption_only(self) -> bool:
        """Return whether an edit was refused because the message is a file with a caption."""
        return self.code == 400 and _NO_TEXT_TO_EDIT in self.description


def read_refusal(code: int, payload: bytes) -> Refusal:
    """Return the error in an answer; an unreadable one counts by its status alone."""
    try:
        answer = msgspec.json.decode(payload, type=_ErrorAnswer)
    except msgspec.DecodeError:
        answer = _ErrorAnswer()
    return Refusal(
        code,
        answer.description or "no reason given",
        retry_after=answer.parameters.retry_after,
        moved_to=answer.parameters.migrate_to_chat_id,
    )


def to_platform_error(error: TelegramError) -> PlatformError:
    """Return our error for one of the library; never with the token in its text."""
    if isinstance(error, InvalidToken):
        return BadCredentials("Telegram rejected the bot token; it may have been revoked")
    if isinstance(error, Conflict):
        return _make_conflict_error()
    if not isinstance(error, Refusal):
        return Unreachable(f"can't reach Telegram: {type(error).__name__}")
    match error.code:
        case 401 | 404:
            return BadCredentials(f"Telegram rejected the bot token; it may have been revoked ({error})")
        case 409:
            return _make_conflict_error()
        case 429:
            pause = timedelta(seconds=error.retry_after or _DEFAULT_PAUSE)
            return SlowDown(f"Telegram asks us to wait {pause.total_seconds():g} s", retry_after=pause)
        case code if 400 <= code < 500:
            return Rejected(f"Telegram refused: {error.description}")
        case _:
            return Unreachable(f"Telegram is having problems: {error}")


def _make_conflict_error() -> Unreachable:
    return Unreachable("another program is receiving messages for this bot; Telegram allows only one at a time")


class TransportTimeouts:
    """Time limits for the phases of a request, in seconds; ``file`` is for sending files."""

    def __init__(self, patience: timedelta, file_patience: timedelta) -> None:
        self.phase = patience.total_seconds()
        self.file = file_patience.total_seconds()
        self.pool = self.phase / _POOL_TIMEOUTS


class Transport(BaseRequest):
    """Requests over at most ``connections`` connections, each request in a task of its own.

    With ``closes`` a cancelled call closes all connections (for long polls, which would continue at the server);
    otherwise the answer is read and dropped. After several pool time-outs in a row the connection pool is replaced.
    """

    def __init__(self, connections: int, timeouts: TransportTimeouts, *, closes: bool = False) -> None:
        self._make_pool: Callable[[], _Pool] = lambda: _Pool(connections, timeouts)
        self._pool = self._make_pool()
        self._retired: dict[asyncio.Future[None], _Pool] = {}
        self._slots = asyncio.Semaphore(connections)
        self._timeouts = timeouts
        self._closes = closes
        self._pool_timeouts = 0

    @property
    def read_timeout(self) -> float | None:
        """Return how long an answer may take, in seconds."""
        return self._timeouts.phase

    async def initialize(self) -> None:
        """Do nothing; connections are opened when needed."""

    async def shutdown(self) -> None:
        """Close all connections."""
        for pool in (self._pool, *self._retired.values()):
            await pool.close()
        await asyncio.gather(*self._retired, return_exceptions=True)

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *arguments: Any, **kwargs: Any
    ) -> tuple[int, bytes]:
        """Send a request and return status and body; raises what the library's own transport raises."""
        await self._slots.acquire()
        exchange = _Exchange()
        request = self._pool.start(exchange, url, method, request_data, *arguments, **kwargs)
        request.add_done_callback(self._finished)
        try:
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            exchange.abandoned = True
            if self._closes:
                self._replace(_Pool.close)
            raise

    def _finished(self, request: "asyncio.Future[tuple[int, bytes]]") -> None:
        """Release the slot, and replace the pool if it gives out no connections any more."""
        self._slots.release()
        error = None if request.cancelled() else request.exception()
        if not isinstance(error, TimedOut) or not isinstance(error.__cause__, httpx.PoolTimeout):
            self._pool_timeouts = 0 if error is None else self._pool_timeouts
            return
        self._pool_timeouts += 1
        if self._pool_timeouts >= _POOL_TIMEOUTS:
            log.warning("Telegram: no free connection %d times in a row; opening new ones", self._pool_timeouts)
            self._replace(_Pool.drain)

    def _replace(self, end: "Callable[[_Pool], Coroutine[Any, Any, None]]") -> None:
        """Use new connections from now on, and end the old ones."""
        self._pool_timeouts = 0
        retired = asyncio.ensure_future(end(self._pool))
        self._retired[retired] = self._pool
        retired.add_done_callback(self._retired.pop)
        self._pool = self._make_pool()


class _Exchange:
    """One request; ``abandoned`` when its caller is gone."""

    def __init__(self) -> None:
        self.abandoned = False

    async def trace(self, event: str, _: dict[str, Any]) -> None:
        """Stop a request that nobody waits for, at a point where httpcore closes its connection properly."""
        if event == _SENDING and self.abandoned:
            raise NetworkError("the call was cancelled before it was sent")


_current: ContextVar[_Exchange] = ContextVar("telegram_exchange")


async def _attach_trace(request: httpx.Request) -> None:
    request.extensions["trace"] = _current.get().trace


@cache
def _trusted_certificates() -> ssl.SSLContext:
    """Load the certificates once: that takes longer than a request, and a pool may be replaced often."""
    return httpx.create_ssl_context()


class _Pool:
    """The library's transport with the requests that use it."""

    def __init__(self, connections: int, timeouts: TransportTimeouts) -> None:
        self._requests: dict[asyncio.Future[tuple[int, bytes]], _Exchange] = {}
        self._http = HTTPXRequest(
            connection_pool_size=connections,
            read_timeout=timeouts.phase,
            write_timeout=timeouts.phase,
            connect_timeout=timeouts.phase,
            pool_timeout=timeouts.pool,
            media_write_timeout=timeouts.file,
            httpx_kwargs={"event_hooks": {"request": [_attach_trace]}, "verify": _trusted_certificates()},
        )

    def start(self, exchange: _Exchange, *arguments: Any, **kwargs: Any) -> "asyncio.Future[tuple[int, bytes]]":
        """Send a request in a task of its own."""
        request = asyncio.ensure_future(self._send(exchange, *arguments, **kwargs))
        self._requests[request] = exchange
        request.add_done_callback(self._requests.pop)
        return request

    async def _send(self, exchange: _Exchange, *arguments: Any, **kwargs: Any) -> tuple[int, bytes]:
        _current.set(exchange)
        return await self._http.do_request(*arguments, **kwargs)

    async def drain(self) -> None:
        """Let the requests end, then close the connections."""
        if self._requests:
            await asyncio.wait(self._requests)
        await self.close()

    async def close(self) -> None:
        """Close the connections; requests that use them fail, those that are connecting end soon."""
        for exchange in self._requests.values():
            exchange.abandoned = True
        await self._http.shutdown()
        if self._requests:
            await asyncio.wait(self._requests, timeout=_CLOSING)
        for request in tuple(self._requests):
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)


class ApiClient:
    """The library's bot; nothing is sent before the first call."""

    def __init__(self, settings: TelegramSettings) -> None:
        # At this level the library's HTTP client logs every URL, which contains the token.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._timeout = settings.patience
        timeouts = TransportTimeouts(settings.patience, settings.file_patience)
        self._requests = (_Request(_CONNECTIONS, timeouts), _UpdatesRequest(1, timeouts, closes=True))
        self.bot = Bot(
            settings.token,
            base_url=settings.base_url,
            base_file_url=settings.base_file_url,
            request=self._requests[0],
            get_updates_request=self._requests[1],
        )

    async def ask(self, call: Awaitable[_T], patience: timedelta | None = None) -> _T:
        """Return the answer within a time limit, or raise one of our errors."""
        try:
            return await self.ask_raw(call, patience)
        except Refusal as refusal:
            raise to_platform_error(refusal) from refusal

    async def ask_raw(self, call: Awaitable[_T], patience: timedelta | None = None) -> _T:
        """Return the answer, but leave a `Refusal` to the caller."""
        seconds = (patience or self._timeout).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError as error:
            raise Unreachable(f"Telegram didn't answer within {seconds:g} s") from error
        except Refusal:
            raise
        except TelegramError as error:
            raise to_platform_error(error) from error

    async def close(self) -> None:
        """Close all connections."""
        for request in self._requests:
            await request.shutdown()


class _OkAnswer(Struct):
    """A successful answer."""

    result: msgspec.Raw


class _Updates(Struct):
    """An answer with updates."""

    result: list[dict[str, Any]]
    ok: bool = True


class _Request(Transport):
    """Transport of calls; errors keep the server's description."""

    async def do_request(self, *arguments: Any, **kwargs: Any) -> tuple[int, bytes]:
        """Send a request and return the answer, or raise a `Refusal`."""
        code, payload = await super().do_request(*arguments, **kwargs)
        if code >= 400:
            raise read_refusal(code, payload)
        if kwargs.get("method") == "POST" and not _is_ok_answer(payload):
            raise NetworkError("the answer is not from the Bot API")
        return code, payload


class _UpdatesRequest(_Request):
    """Transport of updates: one that the library can't read doesn't block those after it."""

    async def do_request(self, *arguments: Any, **kwargs: Any) -> tuple[int, bytes]:
        """Send a request and return the answer, with an empty update for each unreadable one."""
        code, payload = await super().do_request(*arguments, **kwargs)
        return code, _drop_unreadable(payload)


def _is_ok_answer(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=_OkAnswer)
    except msgspec.DecodeError:
        return False
    return True


def _drop_unreadable(payload: bytes) -> bytes:
    try:
        answer = msgspec.json.decode(payload, type=_Updates)
    except msgspec.DecodeError:
        return payload
    result = [update if decode_update(update) else {"update_id": update["update_id"]} for update in answer.result]
    return msgspec.json.encode(_Updates(result))


def decode_update(update: dict[str, Any]) -> Update | None:
    """Return an update as the library's type, ``None`` if it is unreadable."""
    try:
        return Update.de_json(update)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        log.warning("skipping an unreadable Telegram update: %r", error)
        return None
