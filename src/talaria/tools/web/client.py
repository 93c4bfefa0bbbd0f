"""Fetch something from the web, within limits of place, size and time."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from msgspec import Struct

if TYPE_CHECKING:  # what fetches is loaded when something is fetched: it takes longer than the rest of a start
    from aiohttp.abc import AbstractResolver

    from talaria.tools.web.fetching import Fetcher

SIZE_LIMIT = 5_000_000  # bytes, unpacked
TIME_LIMIT = timedelta(seconds=30)
_PORTS = {"http": 80, "https": 443}


class Download(Struct, frozen=True):
    """What came back; ``url`` is where redirects ended, ``charset`` what the server said, if it did."""

    url: str
    media_type: str
    charset: str
    body: bytes


class Limits(Struct, frozen=True):
    """How many bytes something may have, unpacked, and how long it may take."""

    size: int = SIZE_LIMIT
    time: timedelta = TIME_LIMIT


class WebClient:
    """Asks public servers, without cookies or credentials; owns its connections from first use to `close`."""

    def __init__(
        self,
        *,
        allowed: AbstractSet[str] = frozenset(),
        size_limit: int = SIZE_LIMIT,
        time_limit: timedelta = TIME_LIMIT,
        resolver: "AbstractResolver | None" = None,
    ) -> None:
        self._limits = Limits(size_limit, time_limit)
        self._allowed = allowed
        self._resolver = resolver
        self._fetcher: Fetcher | None = None

    @classmethod
    def for_service(cls, base_url: str) -> Self:
        """Return a client for a server that the owner chose, be it on this machine."""
        parts = urlsplit(base_url)
        name = parts.hostname or ""
        host = name if name.isascii() else name.encode("idna").decode()
        return cls(allowed={f"{host}:{parts.port or _PORTS.get(parts.scheme)}"})

    async def get(self, url: str, query: Mapping[str, str] | None = None) -> Download:
        """Return what is at an address, or raise `ToolFailed`."""
        return await self._opened().get(url, query or {})

    async def close(self) -> None:
        """Let go of connections."""
        if self._fetcher is not None:
            await self._fetcher.close()

    def _opened(self) -> "Fetcher":
        if self._fetcher is None:
            fetching = import_module("talaria.tools.web.fetching")
            self._fetcher = fetching.Fetcher(self._limits, self._allowed, self._resolver)
        return self._fetcher
