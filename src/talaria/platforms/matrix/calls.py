"""Calls to a homeserver: each with a deadline, and each refusal as one of our errors."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import aiohttp
import nio

from talaria.core.errors import PlatformError, Rejected, Unreachable
from talaria.platforms.matrix.failures import failure


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


def _refusal(answer: nio.ErrorResponse) -> PlatformError:
    wire = answer.transport_response
    milliseconds = answer.retry_after_ms
    if milliseconds is None and wire is not None:
        seconds = wire.headers.get("Retry-After", "")
        milliseconds = int(seconds) * 1000 if seconds.isdecimal() else None
    pause = None if milliseconds is None else timedelta(milliseconds=milliseconds)
    return failure(answer.status_code or "", wire.status if wire else 0, answer.message, retry_after=pause)
