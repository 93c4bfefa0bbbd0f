"""Happy eyeballs: open a socket to the first address of a host that answers.

The loop's own implementation loses a socket when it is cancelled in the moment of success.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import Any

NEXT_ADDRESS_SECONDS = 0.25  # what RFC 8305 recommends

Place = tuple[int, tuple[Any, ...]]  # a family, and an address in it
Resolve = Callable[[str, int], Awaitable[list[Place]]]  # the addresses of a host and port, in the order to try


async def reach(host: str, port: int, resolve: Resolve | None = None) -> socket.socket:
    """Return a connected socket, or raise `OSError` or, for an invalid name, `UnicodeError`."""
    race = _Race(await (resolve or resolve_host)(host, port))
    try:
        await race.run()
    except BaseException:
        race.close()
        raise
    return race.winner()


class _Race:
    """Attempts that start one after the other: when the previous one has failed or takes too long."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._failed = [asyncio.Event() for _ in places]
        self._trouble: list[OSError] = []
        self._connected: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._tasks = [group.create_task(self._attempt(turn)) for turn in range(len(self._places))]

    def winner(self) -> socket.socket:
        if not self._connected:
            raise self._trouble[0]
        first, *self._connected = self._connected
        self.close()
        return first

    def close(self) -> None:
        for one in self._connected:
            one.close()

    async def _attempt(self, turn: int) -> None:
        if turn:
            with suppress(TimeoutError):
                async with asyncio.timeout(turn * NEXT_ADDRESS_SECONDS):
                    await self._failed[turn - 1].wait()
        try:
            self._connected.append(await _connect(*self._places[turn]))
        except OSError as error:
            self._trouble.append(error)
            self._failed[turn].set()
        else:
            self._stop_others(turn)

    def _stop_others(self, turn: int) -> None:
        for other, task in enumerate(self._tasks):
            if other != turn:
                task.cancel()


async def _connect(family: int, address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)  # noqa: FBT003 (takes no keyword)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made


async def resolve_host(host: str, port: int) -> list[Place]:
    """Return all addresses of a host, alternating families; a literal address needs no lookup."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return [(family, (host, port))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    places: list[Place] = [(family, address) for family, _, _, _, address in found]
    preferred = places[0][0]
    first = [place for place in places if place[0] == preferred]
    second = [place for place in places if place[0] != preferred]
    return [place for place in chain.from_iterable(zip_longest(first, second)) if place is not None]
