"""HTTP calls of an adapter to its network: limits of size and time, and the errors of the platform contract."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from talaria.core.errors import (
    BadCredentials,
    BadKey,
    PlatformError,
    ProviderError,
    Rejected,
    ReplyTooLong,
    SlowDown,
    Unreachable,
)
from talaria.core.messages import File, Image
from talaria.http_client.bearer_tokens import BearerToken, TokenRequest
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts

_MAX_ANSWER = 1024 * 1024
_MOST_REDIRECTS = 3
_UNAUTHORIZED = 401
_PAUSE = timedelta(seconds=60)  # of a network that doesn't say how long
ERROR_TEXT = 200


class ApiAnswer(Struct, frozen=True):
    """The answer to a call."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class HttpApi:
    """The calls of one account; ``to_error`` returns the error for an answer that is no success.

    With a ``token_request``, calls are authorised with its token; if ``is_expired`` for an answer, another one is
    requested once. ``known_key`` is the status of the answer to a request whose key was accepted before.
    """

    def __init__(
        self,
        title: str,
        to_error: Callable[[ApiAnswer], PlatformError],
        token_request: TokenRequest | None = None,
        token_patience: timedelta = timedelta(seconds=15),
        *,
        is_expired: Callable[[ApiAnswer], bool] = lambda answer: answer.status == _UNAUTHORIZED,
        known_key: int | None = None,
    ) -> None:
        self._title = title
        self._to_error = to_error
        self._is_expired = is_expired
        self._known_key = known_key
        self._pool = HttpPool()
        timeouts = Timeouts(token_patience, token_patience, token_patience)
        self._token = BearerToken(token_request, self._pool, timeouts=timeouts) if token_request else None

    async def authorization(self) -> Mapping[str, str]:
        """Return the header with the token; raises `BadCredentials` if the account gets none."""
        if self._token is None:
            return {}
        async with self._translate_errors():
            return await self._token.headers("", "", b"")

    async def call(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        patience: timedelta,
        *,
        body: bytes | None = None,
        limit: int = _MAX_ANSWER,
        has_key: bool = False,
    ) -> ApiAnswer:
        """Return the answer, of at most ``limit`` bytes, if it is a success.

        ``has_key`` means that the network recognises a repeated POST. Others are not sent again when a connection is
        lost, because they may post a message twice: the caller gets `Unreachable` and decides.
        """
        timeouts, repeats = Timeouts(patience, patience, patience), has_key or method != "POST"
        for may_renew in (True, False):
            sent = {**headers, **await self.authorization()}
            async with (
                self._translate_errors(),
                self._pool.request(method, url, body, sent, timeouts, repeats=repeats) as answer,
            ):
                given = ApiAnswer(answer.status, await answer.body(limit), answer.headers)
            if self._token is None or not may_renew or not self._is_expired(given):
                break
            await self._token.renew(sent)
        if 200 <= given.status < 300 or (has_key and given.status == self._known_key):
            return given
        raise self._to_error(given)

    async def download(self, url: str, headers: Mapping[str, str], patience: timedelta, limit: int) -> bytes:
        """Return a file of at most ``limit`` bytes; credentials are not sent to another host that it redirects to."""
        timeouts = Timeouts(patience, patience, patience)
        host = urlsplit(url).netloc
        for _ in range(_MOST_REDIRECTS):
            given = headers if urlsplit(url).netloc == host else {}
            async with self._translate_errors(), self._pool.get(url, given, timeouts) as answer:
                if answer.status in {301, 302, 303, 307, 308} and (target := answer.headers.get("location", "")):
                    url = target
                    continue
                if answer.status != 200:
                    raise self._to_error(ApiAnswer(answer.status, await answer.body(_MAX_ANSWER), answer.headers))
                try:
                    return await answer.body(limit)
                except ReplyTooLong as error:
                    raise Rejected(f"the file has more than {limit} bytes") from error
        raise Rejected("the file is behind too many redirects")

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    @asynccontextmanager
    async def _translate_errors(self) -> AsyncIterator[None]:
        try:
            yield
        except BadKey as error:
            raise BadCredentials(f"{self._title} doesn't accept the credentials: {error}") from error
        except ProviderError as error:  # of the HTTP client, which model providers share
            raise Unreachable(f"{self._title} can't be reached: {error}") from error


def pause_of(answer: ApiAnswer) -> SlowDown:
    """Return the error for a rate limit, with the pause that the network asks for."""
    seconds = answer.headers.get("retry-after", "")
    pause = timedelta(seconds=int(seconds)) if seconds.isdigit() else _PAUSE
    return SlowDown("the network asks for a pause", retry_after=pause)


def describe_error(answer: ApiAnswer) -> str:
    """Return status and start of an answer, for the log."""
    return f"status {answer.status}: {answer.body[:ERROR_TEXT].decode(errors='replace').strip()}"


def require_file(file: File | Image, limit: int) -> Path:
    """Return the path of a file to send; raises `Rejected` if it can't be read or is too large."""
    path = Path(file.source)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise Rejected(f"{file.source} can't be read: {error.strerror}") from error
    if size > limit:
        raise Rejected(f"{path.name} has {size} bytes, and the network takes {limit}")
    return path
