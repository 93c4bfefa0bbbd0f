"""Block requests of a model to this machine and its network (SSRF)."""

import asyncio
import socket
from collections.abc import Set as AbstractSet
from ipaddress import IPv4Address, ip_address

from talaria.core.errors import ToolFailed
from talaria.http_client.connection import HttpAddress
from talaria.http_client.dial import Ip, Resolve, SocketAddress, is_public, resolve_host

_PRIVATE_DOMAINS = ("local", "localhost", "internal", "intranet", "lan", "corp", "home", "arpa")
_LOOKUP_SECONDS = 3.0  # where only the proxy knows names, a lookup may get no answer at all


class Guard:
    """A guard that allows only public addresses.

    It is the resolver of the connections, so the checked address is the one connected to: a name that resolves
    differently the next time gains nothing. ``allowed`` has hosts, as ``host`` or
    ``host:port``, that are not checked.
    """

    def __init__(self, allowed: AbstractSet[str] = frozenset(), resolve: Resolve | None = None) -> None:
        self._allowed = allowed
        self._resolve = resolve or resolve_host

    def check(self, server: HttpAddress) -> None:
        """Raise `ToolFailed` for a forbidden literal address; names are checked when they are resolved."""
        literal = _parse_literal(server.host)
        if literal is not None and not self.is_allowed(server.host, server.port):
            _refuse_private(literal, server.host)

    async def resolve(self, host: str, port: int) -> list[SocketAddress]:
        """Return the addresses of a host, or raise `ToolFailed` if one of them is not public."""
        addresses = await self._resolve(host, port)
        if not self.is_allowed(host, port):
            for _, address in addresses:
                _refuse_private(ip_address(address[0]), host)
        return addresses

    async def check_through_proxy(self, server: HttpAddress) -> None:
        """Raise `ToolFailed` for an address or name that a proxy must not be asked for.

        The proxy resolves names itself. Those that resolve here have to be public here too; of the others, names of
        private networks are refused and the rest is left to the proxy's rules.
        """
        self.check(server)
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                await self.resolve(server.host, server.port)
        except OSError:  # of the lookup, also `TimeoutError`
            *parents, domain = server.host.rstrip(".").split(".")
            if (not parents or domain in _PRIVATE_DOMAINS) and not self.is_allowed(server.host, server.port):
                raise ToolFailed(f"{server.host} is a name of a private network") from None

    def is_allowed(self, host: str, port: int) -> bool:
        """Return whether the owner allowed a host, whatever its address."""
        return host in self._allowed or f"{host}:{port}" in self._allowed


def _parse_literal(host: str) -> Ip | None:
    """Return the address of a literal host, also in the old decimal, octal and short forms."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _refuse_private(ip: Ip, host: str) -> None:
    if not is_public(ip):
        raise ToolFailed(f"{host} is not a public address; only public websites can be fetched")
