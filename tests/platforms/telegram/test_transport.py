"""Cancelled calls release their connections, and an exhausted connection pool is replaced."""

import asyncio
import gc
from collections.abc import Coroutine

import httpcore
import pytest
from tests.platforms.telegram.far_side import settings_for

from talaria.contracts.platform import Content
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError
from talaria.platforms.telegram.adapter import Telegram
from talaria.testing.telegram_server import TelegramServer

CONNECTIONS = 64
STEPS = 40
CANCELLED = 2_000


def pools() -> list[httpcore.AsyncConnectionPool]:
    """Return all connection pools of this process."""
    return [one for one in gc.get_objects() if isinstance(one, httpcore.AsyncConnectionPool)]


async def steps(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def cancel_after(number: int, call: Coroutine[None, None, object]) -> None:
    """Cancel a call after so many steps of the loop."""
    task = asyncio.ensure_future(call)
    await steps(number)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def leak_connection(pool: httpcore.AsyncConnectionPool, call: Coroutine[None, None, object]) -> None:
    """Cancel the request itself between connecting and sending, as nothing in the product does."""

    def unused() -> int:
        return sum(" NEW," in repr(connection) for connection in pool.connections)

    before, leaked = asyncio.all_tasks(), unused()
    task = asyncio.ensure_future(call)
    while unused() == leaked:
        assert not task.done(), "no connection can be leaked like this any more, so this test can go"
        await asyncio.sleep(0)
    for request in asyncio.all_tasks() - before - {task}:
        if "Pool" in repr(request):
            request.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["typing", "receiving"])
async def test_calls_cancelled_at_any_await_leak_no_connection(what: str) -> None:
    async with TelegramServer() as server:
        chat = server.private(server.user("Ann"))
        telegram = Telegram(settings_for(server))
        address = Address("telegram", str(chat.id))

        async def receive() -> None:
            async with telegram.connect() as arriving:
                await anext(arriving)

        others = asyncio.all_tasks()
        for number in range(CANCELLED if what == "typing" else CANCELLED // 10):
            call = telegram.show_typing(address) if what == "typing" else receive()
            await cancel_after(number % STEPS, call)
            server.drop_connections()  # the next one is made new
        requests = [one for one in asyncio.all_tasks() - others if "Pool" in repr(one)]
        await asyncio.gather(*requests, return_exceptions=True)
        await telegram.send(address, Content(text="still here"), "k")
        assert [message.text for message in chat.answers] == ["still here"]
        connections = [connection for pool in pools() for connection in pool.connections]
        assert all(connection.is_idle() or connection.is_closed() for connection in connections)
        await telegram.close()


@pytest.mark.slow
async def test_exhausted_pool_is_replaced() -> None:
    async with TelegramServer() as server:
        chat = server.private(server.user("Ann"))
        telegram = Telegram(settings_for(server))
        address = Address("telegram", str(chat.id))
        await telegram.show_typing(address)
        server.drop_connections()
        [pool] = [one for one in pools() if one.connections]
        for _ in range(CONNECTIONS):
            await leak_connection(pool, telegram.show_typing(address))

        async def is_sent() -> bool:
            try:
                await telegram.send(address, Content(text="still here"), "k")
            except PlatformError:
                return False
            return True

        async with asyncio.timeout(60):
            while not await is_sent():
                pass
        assert [message.text for message in chat.answers] == ["still here"]
        await telegram.close()
        assert not pool.connections
