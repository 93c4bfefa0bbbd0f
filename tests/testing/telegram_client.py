"""A client of the Bot API without a library."""

from typing import Any

import aiohttp

from talaria.testing.telegram_server import TelegramServer


class Client:
    """Calls methods by JSON."""

    def __init__(self, server: TelegramServer, http: aiohttp.ClientSession) -> None:
        self.server = server
        self.http = http

    def address(self, method: str) -> str:
        return f"{self.server.base_url}{self.server.token}/{method}"

    async def ask(self, method: str, **parameters: object) -> Any:
        """Return the whole answer."""
        async with self.http.post(self.address(method), json=parameters) as response:
            answer = await response.json()
        assert answer["ok"] == (response.status == 200)
        assert response.status == answer.get("error_code", 200)
        return answer

    async def get(self, method: str, **parameters: object) -> Any:
        """Return the result."""
        answer = await self.ask(method, **parameters)
        assert answer["ok"], answer
        return answer["result"]

    async def refused(self, method: str, **parameters: object) -> str:
        """Return the reason of the refusal."""
        answer = await self.ask(method, **parameters)
        assert not answer["ok"], answer
        return str(answer["description"])
