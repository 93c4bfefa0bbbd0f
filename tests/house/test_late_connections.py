"""A connection that a server accepts just before its end is closed: `_close_late_connections` of ``conftest``."""

import asyncio
import contextlib
import socket

import pytest

from talaria.testing.wait import LIMIT


@pytest.mark.parametrize("steps", range(3))  # after the second, the connection is accepted, but has no transport yet
async def test_connection_that_a_closing_server_accepts_is_closed(steps: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1")
    with socket.socket() as client:
        client.connect(server.sockets[0].getsockname())
        for _ in range(steps):
            await asyncio.sleep(0)
        server.close()
        client.settimeout(0)
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(ConnectionResetError):
                assert await loop.sock_recv(client, 1) == b""
