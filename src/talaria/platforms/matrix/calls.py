"""Calls to a homeserver: each with a deadline, and each refusal as one of our errors."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import aiohttp
import msgspec
import nio
from msgspec import Struct

from talaria.core.errors import PlatformError, Rejected, Unreachable
from talaria.platforms.matrix.failures import failure

_CHUNK = 64 * 1024
_LONGEST_REFUSAL = 10_000


class _Said(Struct):
    """How a homeserver says no."""

    errcode: str = ""
    error: str = ""


async def ask(call: Awaitable[Any], patience: timedelta) -> Any:
    """Return the answer to a call of nio; raises one of our errors where it is a refusal or does not come in time."""
    try:
        async with asyncio.timeout(patience.total_seconds()):
            answer = await call
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"the homeserver does not answer: {str(error) or type(error).__name__}") from error
    except nio.SendRetryError as error:
        raise Unreachable(f"the keys of the room are not there yet: {error}") from error
    except (nio.ProtocolError, nio.EncryptionError) as error:
        raise Rejected(f"that cannot be sent there: {error}") from error
    if isinstance(answer, nio.ErrorResponse):
        raise _refusal(answer)
    return answer


async def load(client: nio.AsyncClient, address: str, *, patience: timedelta, limit: int) -> bytes:
    """Return what stands at an address of the homeserver; raises `Rejected` where that is larger than ``limit``."""
    headers = {"Authorization": f"Bearer {client.access_token}"}
    try:
        async with asyncio.timeout(patience.total_seconds()):
            async with await client.send("GET", address, headers=headers, timeout=0) as answer:
                if answer.status != 200:
                    raise await _plain_refusal(answer)
                return await _content(answer.content, limit)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"the homeserver does not answer: {str(error) or type(error).__name__}") from error


async def _content(stream: aiohttp.StreamReader, limit: int) -> bytes:
    data = bytearray()
    async for piece in stream.iter_chunked(_CHUNK):
        data += piece
        if len(data) > limit:
            raise Rejected(f"what is there is larger than {limit} bytes")
    return bytes(data)


async def _plain_refusal(answer: aiohttp.ClientResponse) -> PlatformError:
    body = await answer.content.read(_LONGEST_REFUSAL)
    try:
        said = msgspec.json.decode(body, type=_Said)
    except msgspec.MsgspecError:
        said = _Said()
    return failure(said.errcode, answer.status, said.error)


def _refusal(answer: nio.ErrorResponse) -> PlatformError:
    wire = answer.transport_response
    milliseconds = answer.retry_after_ms
    if milliseconds is None and wire is not None:
        seconds = wire.headers.get("Retry-After", "")
        milliseconds = int(seconds) * 1000 if seconds.isdecimal() else None
    pause = None if milliseconds is None else timedelta(milliseconds=milliseconds)
    return failure(answer.status_code or "", wire.status if wire else 0, answer.message, retry_after=pause)
