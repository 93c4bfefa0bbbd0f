"""Calls of the Bot API, with time-outs and our error types."""

import asyncio
import logging
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from telegram import Bot, Update
from telegram.error import NetworkError, TelegramError

from talaria.core.errors import Unreachable
from talaria.platforms.telegram.errors import Refusal, read_refusal, to_platform_error
from talaria.platforms.telegram.settings import TelegramSettings
from talaria.platforms.telegram.transport import Transport, TransportTimeouts

_CONNECTIONS = 64
_T = TypeVar("_T")

log = logging.getLogger(__name__)


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
