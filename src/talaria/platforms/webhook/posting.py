"""Post replies to whoever is to have them; each failure is one of ours."""

import asyncio
from datetime import timedelta

import aiohttp

from talaria.core.errors import PlatformError, Rejected, SlowDown, Unreachable

_TRY_AGAIN = {408, 423, 425}
_PAUSE, _LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=5)


class Posting:
    """Connections to receivers, made when they are needed."""

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        """Return when the receiver has it; a redirect is not followed, as nobody signed for where it leads."""
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        try:
            async with (
                asyncio.timeout(self._patience.total_seconds()),
                self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                error = _error(answer.status, answer.headers.get("retry-after", ""))
        except TimeoutError as late:
            seconds = self._patience.total_seconds()
            raise Unreachable(f"the receiver did not answer within {seconds:g} s") from late
        except aiohttp.InvalidURL as wrong:
            raise Rejected(f"the receiver's address makes no sense: {wrong}") from wrong
        except (aiohttp.ClientError, OSError) as broken:
            raise Unreachable(f"the receiver cannot be reached: {str(broken) or type(broken).__name__}") from broken
        if error is not None:
            raise error

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _error(status: int, retry_after: str) -> PlatformError | None:
    if 200 <= status < 300:
        return None
    if status == 429:
        said = timedelta(seconds=int(retry_after[:9])) if retry_after.isdecimal() else _PAUSE
        pause = min(max(said, timedelta(seconds=1)), _LONGEST_PAUSE)
        return SlowDown("the receiver asks for a pause", retry_after=pause, everywhere=False)
    if status >= 500 or status in _TRY_AGAIN:
        return Unreachable(f"the receiver answered with {status}")
    return Rejected(f"the receiver answered with {status}")
