"""Calls of the Bot API, with time-outs and our error types; no error contains the token."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Raw, Struct

from talaria.core.errors import (
    BadCredentials,
    PlatformError,
    ProviderError,
    Rejected,
    ReplyTooLong,
    SlowDown,
    Unreachable,
)
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import FormFile, Timeouts, encode_form
from talaria.platforms.telegram.settings import TelegramSettings

_DEFAULT_PAUSE = 5
_NOT_MODIFIED = "message is not modified"
_ENTITY_ERRORS = ("can't parse entities", "entity", "entities")
_INVALID_REACTION = "REACTION_INVALID"
_NO_TEXT_TO_EDIT = "there is no text in the message to edit"
_LARGEST_ANSWER = 32 * 1024 * 1024
_T = TypeVar("_T")


class _Parameters(Struct, frozen=True):
    """Machine-readable details of an error."""

    retry_after: int = 0
    migrate_to_chat_id: int = 0


class _ErrorAnswer(Struct, frozen=True):
    """An error answer."""

    description: str = ""
    parameters: _Parameters = _Parameters()


class Refusal(Exception):
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


def to_platform_error(error: Refusal) -> PlatformError:
    """Return our error for an error answer."""
    match error.code:
        case 401 | 404:
            return BadCredentials(f"Telegram rejected the bot token; it may have been revoked ({error})")
        case 409:
            return Unreachable("another program is receiving messages for this bot; Telegram allows only one at a time")
        case 429:
            pause = timedelta(seconds=error.retry_after or _DEFAULT_PAUSE)
            return SlowDown(f"Telegram asks us to wait {pause.total_seconds():g} s", retry_after=pause)
        case code if 400 <= code < 500:
            return Rejected(f"Telegram refused: {error.description}")
        case _:
            return Unreachable(f"Telegram is having problems: {error}")


class _OkAnswer(Struct, frozen=True):
    """A successful answer."""

    result: Raw


class BotApi:
    """The calls of one bot; nothing is sent before the first one.

    A call is never sent twice: Telegram would post a message again.
    """

    def __init__(self, settings: TelegramSettings) -> None:
        self._url = f"{settings.base_url}{settings.token}"
        self._file_url = f"{settings.base_file_url}{settings.token}"
        self._patience = settings.patience
        self._pool = HttpPool()

    async def ask(
        self, method: str, answer_type: type[_T], patience: timedelta | None = None, **parameters: object
    ) -> _T:
        """Return the answer to a call within a time limit, or raise one of our errors."""
        try:
            return await self.ask_raw(method, answer_type, parameters, patience)
        except Refusal as refusal:
            raise to_platform_error(refusal) from refusal

    async def ask_raw(
        self,
        method: str,
        answer_type: type[_T],
        parameters: Mapping[str, object],
        patience: timedelta | None = None,
        file: FormFile | None = None,
    ) -> _T:
        """Return the answer, but leave a `Refusal` to the caller; parameters without a value are left out."""
        fields = {name: _encode(value) for name, value in parameters.items() if value is not None}
        content_type, body = "application/x-www-form-urlencoded", urlencode(fields, errors="replace").encode()
        if file is not None:
            form = encode_form(fields, file)
            content_type, body = form.content_type, form.body
        headers = {"Content-Type": content_type}
        answer = await self._request("POST", f"{self._url}/{method}", body, headers, patience or self._patience)
        try:
            return msgspec.json.decode(msgspec.json.decode(answer, type=_OkAnswer).result, type=answer_type)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"the answer is not from the Bot API: {error}") from error

    async def download(self, path: str, patience: timedelta, limit: int) -> bytes:
        """Return a file; raises `Rejected` if it is too large."""
        return await self._request("GET", f"{self._file_url}/{quote(path)}", None, {}, patience, limit)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    async def _request(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        patience: timedelta,
        limit: int = _LARGEST_ANSWER,
    ) -> bytes:
        seconds, timeouts = patience.total_seconds(), Timeouts(patience, patience, patience)
        try:
            async with (
                asyncio.timeout(seconds),
                self._pool.request(method, url, body, headers, timeouts, repeats=body is None) as answer,
            ):
                payload = await answer.body(limit)
        except TimeoutError:
            raise Unreachable(f"Telegram didn't answer within {seconds:g} s") from None
        except ReplyTooLong:
            raise Rejected(f"Telegram sent more than {limit} bytes") from None
        except ProviderError as error:
            reason = getattr(error, "cause", "") or type(error).__name__
            raise Unreachable(f"can't reach Telegram: {reason}") from None
        if answer.status != 200:
            raise read_refusal(answer.status, payload)
        return payload


def _encode(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
