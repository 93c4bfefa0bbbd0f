"""Floor for a turn: a bare HTTP client that only sends the same bodies and reads the replies."""

from collections.abc import Sequence
from time import perf_counter
from types import TracebackType
from typing import Self

import httpx2

_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer sk-bench"}


class BareClient:
    """HTTP client with httpx, as the SDKs of vendors use it."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._http = httpx2.AsyncClient(headers=_HEADERS)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def send(self, bodies: Sequence[bytes]) -> float:
        """Send requests one after the other; return the seconds until the last reply's first bytes."""
        first_byte = 0.0
        for body in bodies:
            began = perf_counter()
            first_byte = 0.0
            async with self._http.stream("POST", self._url, content=body) as response:
                async for _ in response.aiter_bytes():
                    first_byte = first_byte or perf_counter() - began
        return first_byte
