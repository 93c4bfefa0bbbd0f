"""Processor time of an API turn in a long conversation, next to turns in conversations that stay short."""

import asyncio
from collections.abc import Awaitable
from statistics import median

import aiohttp

from bench.agent_server import served
from bench.api_servers import CHAT, Server, talaria
from bench.measure import Measurement

NAME = "growth"

_SESSION = "X-Talaria-Session-Id"
_LONG = 2000
_GOAL = 2.0
_BLOCK = 40
_SHORT = 5


def run(quick: bool) -> list[Measurement]:
    """Measure warm turns; both kinds take turns in one server, so that they share the noise of the machine."""
    return asyncio.run(_run(quick))


async def _run(quick: bool) -> list[Measurement]:
    async with served() as model, talaria(model, context_limit=4_000_000) as server, aiohttp.ClientSession() as http:
        clients = _Clients(server, http)
        long_session = await clients.grow(_LONG)
        await clients.short_turns()
        long_turns, short_turns = [], []
        for _ in range(3 if quick else 9):
            long_turns.append(await clients.cost_of(clients.turns(_BLOCK, long_session)))
            short_turns.append(await clients.cost_of(clients.short_turns()))
        memory = server.memory()
    return [
        Measurement(
            f"CPU of a turn, {_LONG:,} messages", median(long_turns) * 1000, "ms", _GOAL, median(short_turns) * 1000
        ),
        Measurement(f"memory of the server with {_LONG:,} messages warm", memory, "MB", 122),
    ]


class _Clients:
    """Clients of one server."""

    def __init__(self, server: Server, http: aiohttp.ClientSession) -> None:
        self._server = server
        self._http = http
        self._headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}

    async def grow(self, messages: int) -> str:
        """Return a conversation of so many messages."""
        session = await self.turns(1, "")
        return await self.turns(messages // 2 - 1, session)

    async def turns(self, count: int, session: str) -> str:
        """Take turns one after the other, in a new conversation if none is given, and return its id."""
        body = {"model": "talaria", "messages": [{"role": "user", "content": "Tell me more of the fox, please."}]}
        for _ in range(count):
            headers = self._headers | ({_SESSION: session} if session else {})
            async with self._http.post(
                self._server.url + CHAT, json=body, headers=headers, raise_for_status=True
            ) as reply:
                await reply.read()
                session = reply.headers[_SESSION]
        return session

    async def short_turns(self) -> str:
        """Take as many turns in conversations that stay short."""
        for _ in range(_BLOCK // _SHORT):
            session = await self.turns(1, "")
            await self.turns(_SHORT - 1, session)
        return session

    async def cost_of(self, turns: Awaitable[str]) -> float:
        """Return the processor time of one of the turns, in seconds."""
        before = self._server.processor_time()
        await turns
        return (self._server.processor_time() - before) / _BLOCK
