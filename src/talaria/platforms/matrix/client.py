"""Calls to a homeserver, with time-outs and our error types."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.http_api import ApiAnswer, HttpApi
from talaria.platforms.matrix.settings import MatrixSettings

_AUTH_ERRORS = {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED", "M_USER_LOCKED"}
_DEFAULT_PAUSE = timedelta(seconds=5)
_LONGEST_PAUSE = timedelta(hours=1)
_LARGEST_ANSWER = 16_000_000  # a hundred events, which have at most 65,536 bytes each, and more
_T = TypeVar("_T")


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


class _ErrorBody(Struct):
    """The error body of a homeserver."""

    errcode: str = ""
    error: str = ""
    retry_after_ms: int | None = None


class _Uploaded(Struct):
    """The URL of an uploaded file."""

    content_uri: str


class MatrixApi:
    """The calls of one account; ``set_token`` authorises them."""

    def __init__(self, settings: MatrixSettings) -> None:
        self._homeserver = settings.homeserver
        self._patience = settings.patience
        self._file_patience = settings.file_patience
        self._file_limit = settings.file_limit
        self._headers: dict[str, str] = {}
        self._http = HttpApi("the homeserver", _to_error)

    def set_token(self, token: str) -> None:
        """Authorise the following calls."""
        self._headers = {"Authorization": f"Bearer {token}"}

    async def get(
        self, path: str, answer_type: type[_T], *, query: Mapping[str, str | int] | None = None, version: str = "v3"
    ) -> _T:
        """Return the decoded answer to a request; its query has no empty values."""
        return decode(await self.fetch(path, query or {}, self._patience, version=version), answer_type)

    async def fetch(
        self,
        path: str,
        query: Mapping[str, str | int],
        patience: timedelta,
        *,
        limit: int = _LARGEST_ANSWER,
        version: str = "v3",
    ) -> bytes:
        """Return the answer to a request as it is."""
        given = urlencode({name: value for name, value in query.items() if value != ""}, quote_via=quote)
        url = self._make_url(f"/client/{version}{path}") + (f"?{given}" if given else "")
        async with _limit_duration(patience):
            return (await self._http.call("GET", url, self._headers, patience, limit=limit)).body

    async def send(self, method: str, path: str, body: object, answer_type: type[_T]) -> _T:
        """Return the decoded answer to a request with a JSON body."""
        headers = {**self._headers, "Content-Type": "application/json"}
        url, encoded = self._make_url(f"/client/v3{path}"), msgspec.json.encode(body)
        async with _limit_duration(self._patience):
            return decode((await self._http.call(method, url, headers, self._patience, body=encoded)).body, answer_type)

    async def upload(self, data: bytes, media_type: str, name: str) -> str:
        """Upload a file and return its URL; ``name`` is public, and may be empty."""
        url = self._make_url("/media/v3/upload") + (
            f"?{urlencode({'filename': name}, quote_via=quote)}" if name else ""
        )
        headers = {**self._headers, "Content-Type": media_type}
        async with _limit_duration(self._file_patience):
            answer = await self._http.call("POST", url, headers, self._file_patience, body=data)
        return decode(answer.body, _Uploaded).content_uri

    async def download(self, server: str, media_id: str) -> bytes:
        """Return a file; raises `Rejected` if it is larger than the settings allow."""
        url = self._make_url("/client/v1" + path_of("media", "download", server, media_id))
        async with _limit_duration(self._file_patience):
            return await self._http.download(url, self._headers, self._file_patience, self._file_limit)

    async def close(self) -> None:
        """Disconnect; the next call connects again."""
        await self._http.close()

    def _make_url(self, path: str) -> str:
        return f"{self._homeserver}/_matrix{path}"


def path_of(*parts: str) -> str:
    """Return the path of these parts, which may have any characters."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def decode(body: bytes, answer_type: type[_T]) -> _T:
    """Return the content of an answer; raises `Unreachable` if something else than a homeserver wrote it."""
    try:
        return msgspec.json.decode(body, type=answer_type)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"the homeserver's answer is not Matrix: {error}") from error


@asynccontextmanager
async def _limit_duration(patience: timedelta) -> AsyncIterator[None]:
    """Limit a whole call; the HTTP client only limits how long nothing arrives."""
    try:
        async with asyncio.timeout(patience.total_seconds()):
            yield
    except TimeoutError as error:
        seconds = f"{patience.total_seconds():g}"
        raise Unreachable(f"the homeserver doesn't answer within {seconds} seconds") from error


def _to_error(answer: ApiAnswer) -> PlatformError:
    try:
        problem = msgspec.json.decode(answer.body, type=_ErrorBody)
    except msgspec.MsgspecError:
        problem = _ErrorBody()
    pause = None if problem.retry_after_ms is None else timedelta(milliseconds=problem.retry_after_ms)
    seconds = answer.headers.get("retry-after", "")
    if pause is None and seconds.isdecimal():
        pause = timedelta(seconds=int(seconds))
    target = answer.headers.get("location", "")
    text = f"it redirects to {target}; use the address of the homeserver itself" if target else problem.error
    return to_platform_error(problem.errcode, answer.status, text, retry_after=pause)
