"""Allowed host names of the server, and allowed origins of browser pages."""

import ipaddress
import re
from collections.abc import Mapping

from msgspec import Struct

from talaria.http.errors import Problem

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{0,255}))(?::[0-9]{1,5})?")
_MAX_AGE = "600"
_EXPOSED_HEADERS = ("x-request-id", "retry-after", "idempotent-replayed", "location")


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class OriginPolicy(Struct, frozen=True):
    """Allowed hosts and origins: ``bound`` is the listening address, ``names`` are further host names.

    If the server listens for other machines, every host name is allowed unless some are given: those requests need a
    key. Pages of other origins may read ``exposed_headers`` in addition to the server's own.
    """

    bound: str
    names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    exposed_headers: tuple[str, ...] = ()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise a `Problem` for a page using a foreign host name for this machine, or from a foreign origin.

        Such a page needs no key where none is required, and may post without a preflight request.
        """
        host, known = _parse_host(headers.get("host", "")), {*_LOCAL, self.bound.lower(), *self.names}
        if host is None or (host not in known and (self.names or is_loopback(self.bound))):
            raise Problem(
                "Unknown host. Use localhost, or add the name to the setting `api.hosts`.", 421, code="unknown_host"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed(origin, headers.get("host", "")):
            raise Problem(
                "This origin isn't allowed. Add it to the setting `api.cors_origins`.",
                403,
                kind="permission_error",
                code="origin_not_allowed",
            )

    def reply_headers(self, origin: str | None) -> dict[str, str]:
        """Return the headers that let a browser page read the reply."""
        if origin is None or not self._is_listed(origin):
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": ", ".join((*self.exposed_headers, *_EXPOSED_HEADERS)),
            "vary": "Origin",
        }

    def preflight_headers(self, headers: Mapping[str, str], methods: str) -> dict[str, str]:
        """Return the headers of a preflight response.

        All request headers are allowed: official clients add their own.
        """
        allowed = self.reply_headers(headers.get("origin"))
        if not allowed:
            return {}
        return allowed | {
            "access-control-allow-methods": methods,
            "access-control-allow-headers": headers.get("access-control-request-headers", "*"),
            "access-control-max-age": _MAX_AGE,
            "vary": "Origin, Access-Control-Request-Headers",
        }

    def _is_allowed(self, origin: str, host: str) -> bool:
        return self._is_listed(origin) or origin.partition("://")[2].lower() == host.lower()

    def _is_listed(self, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins


def _parse_host(host: str) -> str | None:
    """Return the host name in a header, without the port; ``None`` for an invalid one."""
    found = _HOST.fullmatch(host)
    return (found["address"] or found["name"] or "").rstrip(".").lower() if found else None
