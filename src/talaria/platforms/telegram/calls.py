"""Calls of the Bot API: each within its time, each failure one of ours."""

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
from talaria.platforms.telegram.refusals import Refusal, our_error, read_refusal
from talaria.platforms.telegram.settings import TelegramSettings
from talaria.platforms.telegram.transport import Transport, TransportTimeouts

_CONNECTIONS = 64
_T = TypeVar("_T")

log = logging.getLogger(__name__)


class Calls:
    """The library's bot, and how it is asked; nothing is sent before the first question."""

    def __init__(self, settings: TelegramSettings) -> None:
        # At this level the library's HTTP client writes every address, and the token is part of it.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._patience = settings.patience
        timeouts = TransportTimeouts(settings.patience, settings.file_patience)
        self._requests = (_Request(_CONNECTIONS, timeouts), _Receiving(1, timeouts, closes=True))
        self.bot = Bot(
            settings.token,
            base_url=settings.base_url,
            base_file_url=settings.base_file_url,
            request=self._requests[0],
            get_updates_request=self._requests[1],
        )

    async def ask(self, call: Awaitable[_T], patience: timedelta | None = None) -> _T:
        """Wait for an answer, within some time, and raise one of our errors if there is none."""
        try:
            return await self.ask_openly(call, patience)
        except Refusal as refusal:
            raise our_error(refusal) from refusal

    async def ask_openly(self, call: Awaitable[_T], patience: timedelta | None = None) -> _T:
        """The same, except that a `Refusal` is for the caller to judge."""
        seconds = (patience or self._patience).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError as error:
            raise Unreachable(f"Telegram did not answer within {seconds:g} s") from error
        except Refusal:
            raise
        except TelegramError as error:
            raise our_error(error) from error

    async def close(self) -> None:
        """Let go of all connections."""
        for request in self._requests:
            await request.shutdown()


class _Answer(Struct):
    """An answer that says yes."""

    result: msgspec.Raw


class _Updates(Struct):
    """An answer with updates."""

    result: list[dict[str, Any]]
    ok: bool = True


class _Request(Transport):
    """Transport of calls; errors keep what the server said of them."""

    async def do_request(self, *arguments: Any, **named: Any) -> tuple[int, bytes]:
        """Send a request and return the answer, or raise a `Refusal`."""
        code, payload = await super().do_request(*arguments, **named)
        if code >= 400:
            raise read_refusal(code, payload)
        if named.get("method") == "POST" and not _is_an_answer(payload):
            raise NetworkError("what came back is no answer of the Bot API")
        return code, payload


class _Receiving(_Request):
    """The transport of updates: one that the library cannot read does not keep it from those behind."""

    async def do_request(self, *arguments: Any, **named: Any) -> tuple[int, bytes]:
        """Send a request and return the answer, with an empty update in place of each that cannot be read."""
        code, payload = await super().do_request(*arguments, **named)
        return code, _readable(payload)


def _is_an_answer(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=_Answer)
    except msgspec.DecodeError:
        return False
    return True


def _readable(payload: bytes) -> bytes:
    try:
        answer = msgspec.json.decode(payload, type=_Updates)
    except msgspec.DecodeError:
        return payload
    result = [update if read_raw(update) else {"update_id": update["update_id"]} for update in answer.result]
    return msgspec.json.encode(_Updates(result))


def read_raw(update: dict[str, Any]) -> Update | None:
    """Return an update as the library reads it, ``None`` where it cannot."""
    try:
        return Update.de_json(update)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        log.warning("an update of Telegram cannot be read and is left out: %r", error)
        return None
