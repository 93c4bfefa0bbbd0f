"""From where the API may be asked: by which names of this machine, and by which pages in a browser."""

import ipaddress
import re
from collections.abc import Mapping

from msgspec import Struct

from talaria.api.problems import Problem

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{0,255}))(?::[0-9]{1,5})?")
_AGE = "600"
_EXPOSED = "x-talaria-session-id, x-request-id, retry-after, idempotent-replayed, location"


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Hosts(Struct, frozen=True):
    """``bound`` is where the server listens, ``names`` by what else it may be asked, ``origins`` pages that may ask.

    Where it listens for others too, every name is good as long as none is given: those need a key.
    """

    bound: str
    names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise a `Problem` for a page that reaches this machine under a name of its own, or is not among the origins.

        Such a page needs no key where none is asked for, and may post without being asked first.
        """
        host, known = _name(headers.get("host", "")), {*_LOCAL, self.bound.lower(), *self.names}
        if host is None or (host not in known and (self.names or is_loopback(self.bound))):
            raise Problem("Ask for localhost, or for a name in the setting `api.hosts`.", 421, code="unknown_host")
        origin = headers.get("origin")
        if origin is not None and not self._admits(origin, headers.get("host", "")):
            raise Problem(
                "Pages of other origins may not ask: the setting `api.cors_origins` names those that may.",
                403,
                kind="permission_error",
                code="origin_not_allowed",
            )

    def reply_headers(self, origin: str | None) -> dict[str, str]:
        """Return what tells a browser that the page may read the reply."""
        if origin is None or not self._is_named(origin):
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": _EXPOSED,
            "vary": "Origin",
        }

    def preflight_headers(self, headers: Mapping[str, str], methods: str) -> dict[str, str]:
        """Return what a browser wants to know before it asks for a page.

        Whatever headers the page would send are good: official clients add some of their own.
        """
        allowed = self.reply_headers(headers.get("origin"))
        if not allowed:
            return {}
        return allowed | {
            "access-control-allow-methods": methods,
            "access-control-allow-headers": headers.get("access-control-request-headers", "*"),
            "access-control-max-age": _AGE,
            "vary": "Origin, Access-Control-Request-Headers",
        }

    def _admits(self, origin: str, host: str) -> bool:
        return self._is_named(origin) or origin.partition("://")[2].lower() == host.lower()

    def _is_named(self, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins


def _name(host: str) -> str | None:
    """Return the name in a header, without the port; ``None`` for what is not a name or an address as a whole."""
    found = _HOST.fullmatch(host)
    return (found["address"] or found["name"] or "").rstrip(".").lower() if found else None
