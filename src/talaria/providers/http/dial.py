"""Connect to a server: addresses, proxies, tunnels, TLS."""

import asyncio
import base64
import ssl
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, quote, unquote, urlsplit

from msgspec import Struct

from talaria.providers.http.connection import Connection
from talaria.providers.http.happy_eyeballs import Resolve, reach

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PORTS = {"http": 80, "https": 443}
_IN_A_PATH = "/%:@!$&'()*+,;=~?"
_OWN_HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "talaria"}


class Address(Struct, frozen=True):
    """A server; ``login`` is the user part of its URL, as the value of a header."""

    scheme: str
    host: str
    port: int
    login: str = ""

    @property
    def is_secure(self) -> bool:
        """Return whether it uses TLS."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Return host and port, as used for a tunnel."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def name(self) -> str:
        """Return the value of the header ``Host``: without the default port."""
        return self.authority.removesuffix(f":{_PORTS[self.scheme]}")


class Route(Struct, frozen=True):
    """A server and, optionally, a proxy."""

    to: Address
    proxy: Address | None = None

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """Return the bytes of a request, or raise `ValueError` for an invalid header."""
        given = {name.lower() for name in headers}
        own = {name: value for name, value in self._headers().items() if name.lower() not in given}
        length = {} if body is None else {"Content-Length": str(len(body))}
        target = f"http://{self.to.name}{path}" if self.proxy and not self.to.is_secure else path
        return _head(f"{method} {target} HTTP/1.1", {**own, **headers, **length}) + (body or b"")

    def _headers(self) -> dict[str, str]:
        login = {"Authorization": self.to.login} if self.to.login else {}
        sees_us = self.proxy is not None and self.proxy.login and not self.to.is_secure
        proxy_login = {"Proxy-Authorization": self.proxy.login} if self.proxy and sees_us else {}
        return {"Host": self.to.name, **_OWN_HEADERS, **login, **proxy_login}


def read_url(url: str) -> tuple[Address, str]:
    """Return the server and the path of a URL, or raise `ValueError`."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("only http:// and https:// URLs are supported")
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    port = _PORTS[parts.scheme] if parts.port is None else parts.port
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, host, port, _login(parts)), quote(path, safe=_IN_A_PATH)


def find_route(to: Address) -> Route:
    """Return the route to a server; never through a proxy for this machine itself."""
    if to.host in LOOPBACK:
        return Route(to)
    from talaria.providers.http.proxies import find_proxy  # noqa: PLC0415 (loaded when a request leaves this machine)

    return Route(to, find_proxy(to))


async def dial(route: Route, tls: Callable[[], ssl.SSLContext], resolve: Resolve | None = None) -> Connection:
    """Connect, with all handshakes on the way, or raise `OSError`; ``resolve`` looks up the first host."""
    first = route.proxy or route.to
    context = tls() if first.is_secure else None
    reached = await reach(first.host, first.port, resolve)
    _, connection = await asyncio.get_running_loop().create_connection(
        Connection,
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


async def _tunnel(connection: Connection, to: Address, proxy: Address) -> None:
    login = {"Proxy-Authorization": proxy.login} if proxy.login else {}
    connection.ask(_head(f"CONNECT {to.authority} HTTP/1.1", {"Host": to.authority, **login}))
    reply = await connection.head()
    if reply.status != 200:
        raise ConnectionRefusedError(f"the proxy {proxy.authority} answered {reply.status}")


def _head(first_line: str, headers: Mapping[str, str]) -> bytes:
    lines = [first_line, *(f"{name}: {value}" for name, value in headers.items())]
    if any(not line.isprintable() and not {"\r", "\n", "\0"}.isdisjoint(line) for line in lines):
        raise ValueError("a header contains a line break")
    return "\r\n".join([*lines, "", ""]).encode(errors="surrogateescape")


def _login(parts: SplitResult) -> str:
    if parts.username is None:
        return ""
    words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(words.encode()).decode()}"
