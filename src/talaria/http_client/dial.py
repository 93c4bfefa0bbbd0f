"""Connect to a server: proxies, tunnels, TLS, public addresses, and the first one that answers (happy eyeballs).

The loop's own implementation of the last loses a socket when it is cancelled in the moment of success.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import chain, zip_longest
from typing import Any

from talaria.http_client.connection import LOOPBACK, HttpAddress, HttpConnection, HttpRoute, make_head, read_url

Ip = IPv4Address | IPv6Address
_NAT64 = IPv6Network("64:ff9b::/96")
_METADATA = (
    IPv4Network("168.63.129.16"),  # public addresses that are reachable only inside Azure
    IPv4Network("192.0.0.0/24"),  # and at Oracle
)
NEXT_ADDRESS_SECONDS = 0.25  # what RFC 8305 recommends
SocketAddress = tuple[int, tuple[Any, ...]]  # a family, and an address in it
Resolve = Callable[[str, int], Awaitable[list[SocketAddress]]]  # the addresses of a host and port, in the order to try


def is_public(ip: Ip) -> bool:
    """Return whether an address is public, even inside another notation."""
    if isinstance(ip, IPv6Address):
        if (inner := _extract_ipv4(ip)) is not None:
            return is_public(inner)
        if ip.is_site_local:
            return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or any(ip in network for network in _METADATA))


class ProxyRefused(ConnectionRefusedError):
    """A proxy was reached and didn't open a tunnel."""


class ProxyUnsupported(ValueError):
    """The environment names a proxy that isn't an HTTP proxy."""


def find_route(to: HttpAddress) -> HttpRoute:
    """Return the route to a server; never through a proxy for this machine itself."""
    if to.host in LOOPBACK:
        return HttpRoute(to)
    return HttpRoute(to, _find_proxy(to))


async def dial(route: HttpRoute, tls: Callable[[], ssl.SSLContext], resolve: Resolve | None = None) -> HttpConnection:
    """Connect, with all handshakes on the way, or raise `OSError`; ``resolve`` looks up the server, never a proxy."""
    first = route.proxy or route.to
    context = tls() if first.is_secure else None
    reached = await reach(first.host, first.port, None if route.proxy else resolve)
    _, connection = await asyncio.get_running_loop().create_connection(
        HttpConnection,
        sock=reached,
        ssl=context,
        server_hostname=first.host if context else None,
    )
    try:
        if route.proxy is not None and route.to.is_secure:
            await _tunnel(connection, route.to, route.proxy)
            await connection.secure(tls(), route.to.host)
    except BaseException:
        connection.abort()
        raise
    return connection


async def reach(host: str, port: int, resolve: Resolve | None = None) -> socket.socket:
    """Return a connected socket, or raise `OSError` or, for an invalid name, `UnicodeError`."""
    race = _Race(await (resolve or resolve_host)(host, port))
    try:
        await race.run()
    except BaseException:
        race.close()
        raise
    return race.take_winner()


class _Race:
    """Attempts that start one after the other: when the previous one has failed or takes too long."""

    def __init__(self, addresses: Sequence[SocketAddress]) -> None:
        self._addresses = addresses
        self._failed = [asyncio.Event() for _ in addresses]
        self._trouble: list[OSError] = []
        self._connected: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._tasks = [group.create_task(self._attempt(turn)) for turn in range(len(self._addresses))]

    def take_winner(self) -> socket.socket:
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
            self._connected.append(await _connect(*self._addresses[turn]))
        except OSError as error:
            self._trouble.append(error)
            self._failed[turn].set()
        else:
            self._stop_others(turn)

    def _stop_others(self, turn: int) -> None:
        for other, task in enumerate(self._tasks):
            if other != turn:
                task.cancel()


async def resolve_host(host: str, port: int) -> list[SocketAddress]:
    """Return all addresses of a host, alternating families; a literal address needs no lookup."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return [(family, (host, port))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses: list[SocketAddress] = [(family, address) for family, _, _, _, address in found]
    preferred = addresses[0][0]
    first = [one for one in addresses if one[0] == preferred]
    second = [one for one in addresses if one[0] != preferred]
    return [one for one in chain.from_iterable(zip_longest(first, second)) if one is not None]


def _extract_ipv4(ip: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that traffic to this one reaches."""
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


def _find_proxy(to: HttpAddress) -> HttpAddress | None:
    """Return the proxy for a server; raises `ProxyUnsupported` for another kind, for example SOCKS."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 (slow; only for requests that leave this machine)

    url = None if proxy_bypass(to.authority) else getproxies().get(to.scheme)
    if not url:
        return None
    try:
        return read_url(url if "://" in url else f"http://{url}")[0]
    except ValueError as error:
        kind = url.partition("://")[0]
        raise ProxyUnsupported(f"the environment names a {kind}:// proxy, and only HTTP proxies work") from error


async def _tunnel(connection: HttpConnection, to: HttpAddress, proxy: HttpAddress) -> None:
    login = {"Proxy-Authorization": proxy.login} if proxy.login else {}
    reply = await connection.ask(make_head(f"CONNECT {to.authority} HTTP/1.1", {"Host": to.authority, **login}))
    if reply.status != 200:
        raise ProxyRefused(f"the proxy {proxy.authority} answered {reply.status}")


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
