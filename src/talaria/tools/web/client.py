"""Fetch from the web, within limits of address, size and time."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from msgspec import Struct

if TYPE_CHECKING:  # imported on first use, with sockets, TLS and the address check
    from talaria.providers.http.happy_eyeballs import Resolve
    from talaria.tools.web.http_client import Fetcher

SIZE_LIMIT = 5_000_000  # bytes, decompressed
TIME_LIMIT = timedelta(seconds=30)
_PORTS = {"http": 80, "https": 443}


class Download(Struct, frozen=True):
    """A response; ``url`` is the address after redirects, ``charset`` the server's declaration, if any."""

    url: str
    media_type: str
    charset: str
    body: bytes


class Limits(Struct, frozen=True):
    """Limits: size in bytes, decompressed, and time."""

    size: int = SIZE_LIMIT
    time: timedelta = TIME_LIMIT


class WebClient:
    """A client for public servers, without cookies or credentials; owns its connections from first use to `close`."""

    def __init__(
        self,
        *,
        allowed: AbstractSet[str] = frozenset(),
        size_limit: int = SIZE_LIMIT,
        time_limit: timedelta = TIME_LIMIT,
        resolve: "Resolve | None" = None,
    ) -> None:
        self._limits = Limits(size_limit, time_limit)
        self._allowed = allowed
        self._resolve = resolve
        self._fetcher: Fetcher | None = None

    @classmethod
    def for_service(cls, base_url: str) -> Self:
        """Return a client for a server chosen by the owner, even on this machine."""
        parts = urlsplit(base_url)
        name = parts.hostname or ""
        host = name if name.isascii() else name.encode("idna").decode()
        return cls(allowed={f"{host}:{parts.port or _PORTS.get(parts.scheme)}"})

    async def get(self, url: str, query: Mapping[str, str] | None = None) -> Download:
        """Return the content of a URL, or raise `ToolFailed`."""
        return await self._opened().get(url, query or {})

    async def close(self) -> None:
        """Close the connections."""
        if self._fetcher is not None:
            await self._fetcher.close()

    def _opened(self) -> "Fetcher":
        if self._fetcher is None:
            from talaria.tools.web.http_client import Fetcher  # noqa: PLC0415 (loaded with the first request)

            self._fetcher = Fetcher(self._limits, self._allowed, self._resolve)
        return self._fetcher
