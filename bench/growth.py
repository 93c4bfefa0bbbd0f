"""CPU time of an API turn in a long session, compared with turns in short sessions."""

import asyncio
from collections.abc import Awaitable
from statistics import median

import aiohttp

from bench.agent_server import run_model_server
from bench.api_servers import CHAT, Server, run_talaria
from bench.measure import Measurement

NAME = "growth"

_SESSION_HEADER = "X-Talaria-Session-Id"
_LONG_MESSAGES = 2000
_GOAL = 2.0
_TURNS_PER_ROUND = 40
_SHORT_TURNS = 5


def run(quick: bool) -> list[Measurement]:
    """Measure warm turns in long and short sessions, alternately in one server."""
    return asyncio.run(_run(quick))


async def _run(quick: bool) -> list[Measurement]:
    async with (
        run_model_server() as model,
        run_talaria(model, context_limit=4_000_000) as server,
        aiohttp.ClientSession() as http,
    ):
        client = _ApiClient(server, http)
        long_session = await client.create_session(_LONG_MESSAGES)
        await client.run_short_turns()
        long_turns, short_turns = [], []
        for _ in range(3 if quick else 9):
            long_turns.append(await client.cpu_per_turn(client.run_turns(_TURNS_PER_ROUND, long_session)))
            short_turns.append(await client.cpu_per_turn(client.run_short_turns()))
        memory = server.memory()
    return [
        Measurement(
            f"CPU of a turn, {_LONG_MESSAGES:,} messages",
            median(long_turns) * 1000,
            "ms",
            _GOAL,
            median(short_turns) * 1000,
        ),
        Measurement(f"server memory with an open session of {_LONG_MESSAGES:,} messages", memory, "MB", 122),
    ]


class _ApiClient:
    """Client that runs turns on one server."""

    def __init__(self, server: Server, http: aiohttp.ClientSession) -> None:
        self._server = server
        self._http = http
        self._headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}

    async def create_session(self, messages: int) -> str:
        """Create a session with this number of messages and return its id."""
        session = await self.run_turns(1, "")
        return await self.run_turns(messages // 2 - 1, session)

    async def run_turns(self, count: int, session: str) -> str:
        """Run turns one after the other, in a new session if none is given, and return its id."""
        body = {"model": "talaria", "messages": [{"role": "user", "content": "Tell me more of the fox, please."}]}
        for _ in range(count):
            headers = self._headers | ({_SESSION_HEADER: session} if session else {})
            async with self._http.post(
                self._server.url + CHAT, json=body, headers=headers, raise_for_status=True
            ) as reply:
                await reply.read()
                session = reply.headers[_SESSION_HEADER]
        return session

    async def run_short_turns(self) -> str:
        """Run the same number of turns in short sessions."""
        for _ in range(_TURNS_PER_ROUND // _SHORT_TURNS):
            session = await self.run_turns(1, "")
            await self.run_turns(_SHORT_TURNS - 1, session)
        return session

    async def cpu_per_turn(self, turns: Awaitable[str]) -> float:
        """Return the CPU time per turn, in seconds."""
        before = self._server.cpu_time()
        await turns
        return (self._server.cpu_time() - before) / _TURNS_PER_ROUND
