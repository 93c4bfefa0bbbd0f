"""Cancelled calls leave no connection and no task behind, and nothing is sent twice."""

import asyncio
from collections.abc import Coroutine

import msgspec
import pytest
from tests.platforms.telegram.far_side import settings_for

from talaria.contracts.platform import Content
from talaria.core.addresses import Address
from talaria.core.errors import Unreachable
from talaria.platforms.telegram.adapter import Telegram
from talaria.testing.telegram_server import TelegramServer

STEPS = 40
CANCELLED = 400


async def cancel_after(number: int, call: Coroutine[None, None, object]) -> None:
    """Cancel a call after this many steps of the event loop."""
    task = asyncio.ensure_future(call)
    for _ in range(number):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("what", ["typing", "receiving"])
async def test_calls_cancelled_at_any_await_leave_nothing_behind(what: str) -> None:
    async with TelegramServer() as server:
        chat = server.private(server.user("Ann"))
        telegram = Telegram(settings_for(server))
        address = Address("telegram", str(chat.id))

        async def receive() -> None:
            async with telegram.connect() as arriving:
                await anext(arriving)

        for number in range(CANCELLED if what == "typing" else CANCELLED // 4):
            server.drop_connections()  # most calls make a new one
            await cancel_after(number % STEPS, telegram.show_typing(address) if what == "typing" else receive())
        await telegram.send(address, Content(text="still here"), "k")
        assert [message.text for message in chat.answers] == ["still here"]
        await telegram.close()


async def test_message_on_a_lost_connection_is_not_sent_again() -> None:
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        received.append(await reader.readexactly(length))
        if len(received) == 1:
            body = b'{"ok": true, "result": true}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await reader.readuntil(b"\r\n\r\n")  # the message, on the same connection
            received.append(b"taken, and never answered")
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/bot"
    async with TelegramServer() as server, listener:
        telegram = Telegram(msgspec.structs.replace(settings_for(server), base_url=url))
        await telegram.show_typing(Address("telegram", "7"))
        with pytest.raises(Unreachable):
            await telegram.send(Address("telegram", "7"), Content(text="once"), "k")
        await telegram.close()
    assert len(received) == 2
