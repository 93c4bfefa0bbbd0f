"""Calls to a homeserver, with time-outs and our error types."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import aiohttp
import msgspec
import nio
from msgspec import Struct

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable

_AUTH_ERRORS = {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED", "M_USER_LOCKED"}


_DEFAULT_PAUSE = timedelta(seconds=5)


_LONGEST_PAUSE = timedelta(hours=1)


def to_platform_error(
    code: str, status: int, message_text: str, *, retry_after: timedelta | None = None
) -> PlatformError:
    """Return our error for a Matrix error code and HTTP status; either may be missing."""
    problem = f"the homeserver answered {code or status or 'with something that is not Matrix'}: {message_text}"
    if code == "M_LIMIT_EXCEEDED" or status == 429:
        pause = _DEFAULT_PAUSE if retry_after is None else min(retry_after, _LONGEST_PAUSE)
        return SlowDown(problem, retry_after=pause, everywhere=True)  # homeservers limit accounts, not rooms
    if code in _AUTH_ERRORS or status == 401:
        return BadCredentials(problem)
    # A broken proxy in between answers in HTML, with any status.
    if status >= 500 or not code:
        return Unreachable(problem)
    return Rejected(problem)


def to_login_error(error: PlatformError) -> PlatformError:
    """Return the error for a refused login."""
    return BadCredentials(str(error)) if isinstance(error, Rejected) else error


_CHUNK = 64 * 1024


_MAX_ERROR_BYTES = 10_000


class _ErrorBody(Struct):
    """The error body of a homeserver."""

    errcode: str = ""
    error: str = ""


async def ask(call: Awaitable[Any], patience: timedelta) -> Any:
    """Return the result of a nio call; raises one of our errors for a refusal or a time-out."""
    try:
        async with asyncio.timeout(patience.total_seconds()):
            answer = await call
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"the homeserver doesn't answer: {str(error) or type(error).__name__}") from error
    except nio.SendRetryError as error:
        raise Unreachable(f"the room's keys haven't arrived yet: {error}") from error
    except (nio.ProtocolError, nio.EncryptionError) as error:
        raise Rejected(f"can't send that: {error}") from error
    if isinstance(answer, nio.ErrorResponse):
        raise _read_error(answer)
    return answer


async def fetch_bytes(client: nio.AsyncClient, address: str, *, patience: timedelta, limit: int) -> bytes:
    """Return the content of a URL on the homeserver; raises `Rejected` if it is larger than ``limit``."""
    headers = {"Authorization": f"Bearer {client.access_token}"}
    try:
        async with asyncio.timeout(patience.total_seconds()):
            async with await client.send("GET", address, headers=headers, timeout=0) as answer:
                if answer.status != 200:
                    raise await _read_http_error(answer)
                return await _read_limited(answer.content, limit)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"the homeserver doesn't answer: {str(error) or type(error).__name__}") from error


async def _read_limited(stream: aiohttp.StreamReader, limit: int) -> bytes:
    data = bytearray()
    async for piece in stream.iter_chunked(_CHUNK):
        data += piece
        if len(data) > limit:
            raise Rejected(f"the content is larger than {limit} bytes")
    return bytes(data)


async def _read_http_error(answer: aiohttp.ClientResponse) -> PlatformError:
    body = await answer.content.read(_MAX_ERROR_BYTES)
    try:
        problem = msgspec.json.decode(body, type=_ErrorBody)
    except msgspec.MsgspecError:
        problem = _ErrorBody()
    return to_platform_error(problem.errcode, answer.status, problem.error)


def _read_error(answer: nio.ErrorResponse) -> PlatformError:
    wire = answer.transport_response
    milliseconds = answer.retry_after_ms
    if milliseconds is None and wire is not None:
        seconds = wire.headers.get("Retry-After", "")
        milliseconds = int(seconds) * 1000 if seconds.isdecimal() else None
    pause = None if milliseconds is None else timedelta(milliseconds=milliseconds)
    return to_platform_error(answer.status_code or "", wire.status if wire else 0, answer.message, retry_after=pause)
