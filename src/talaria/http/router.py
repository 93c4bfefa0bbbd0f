"""Routes: data from which dispatch and documentation are derived.

To add routes, write a class with ``routes() -> tuple[Route, ...]`` whose handlers take a `Request` and return a
`Reply`, and list it where `app` builds the application (``app/api.py``). Read the body with ``request.read(Struct)``,
the query with ``request.asked(Struct)``, and values of path braces from ``request.parts``; a `Problem` becomes an error
response, as do the errors of `core`. Caller, limits, body size, idempotency and disconnected clients are handled around
the handler. The OpenAPI document is generated from the structs.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from talaria.http.errors import Problem, make_not_found
from talaria.http.messages import Reply, Request

Handler = Callable[[Request[Any]], Awaitable[Reply]]


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path: its requirements, input and output.

    ``path`` may have parts in braces, each standing for one segment; a last one with a star stands for all the rest.
    ``scope`` is what a caller must be allowed to do; with ``None`` everybody may use the route. ``takes``, ``asks`` and
    ``reply_type`` are the structs of body, query and reply; ``events`` is the type of the ``data`` of server-sent
    events. ``repeatable`` accepts an ``Idempotency-Key``; ``lasting`` means that a disconnecting client ends nothing.
    ``used_headers`` are headers used by this route alone.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    scope: str | None
    takes: type | None = None
    asks: type | None = None
    reply_type: type | None = None
    status: int = 200
    events: Any = None
    repeatable: bool = False
    lasting: bool = False
    used_headers: tuple[str, ...] = ()
    tag: str = "talaria"


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[list[str], Route]] = []
        for route in self.routes:
            if "{" in route.path:
                self._patterns.append((route.path.split("/"), route))
            else:
                self._fixed.setdefault(route.path, {})[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Return the route and the values of its braces; raises a `Problem` if there is none."""
        lookup_method = "GET" if method == "HEAD" else method
        fixed = self._fixed.get(path, {})
        if lookup_method in fixed:
            return fixed[lookup_method], {}
        found = {route.method: (route, parts) for route, parts in self._iterate_matching(path)}
        if lookup_method in found:
            return found[lookup_method]
        allowed = ", ".join(self.methods(path))
        raise Problem(
            f"Method `{method[:20]}` isn't allowed here; use {allowed}.",
            HTTPStatus.METHOD_NOT_ALLOWED,
            code="method_not_allowed",
            headers={"allow": allowed},
        )

    def methods(self, path: str) -> list[str]:
        """Return the methods of a path, or all methods for ``*``; raises a `Problem` for an unknown path."""
        matching = self.routes if path == "*" else [route for route, _ in self._iterate_matching(path)]
        methods = {route.method for route in matching}
        if not methods:
            raise make_not_found(f"There is no `{path[:200]}`. `/openapi.json` lists all routes.", code="unknown_url")
        return [*sorted(methods | ({"HEAD"} if "GET" in methods else set())), "OPTIONS"]

    def _iterate_matching(self, path: str) -> Iterable[tuple[Route, Mapping[str, str]]]:
        """Yield the routes of a path, exact ones last: they take precedence."""
        segments = path.replace("\0", "\ufffd").split("/")  # which no id has, and PostgreSQL takes
        for pattern, route in self._patterns:
            parts = _match_parts(pattern, segments)
            if parts is not None:
                yield route, parts
        for route in self._fixed.get(path, {}).values():
            yield route, {}


def _match_parts(pattern: list[str], segments: list[str]) -> Mapping[str, str] | None:
    if pattern[-1].endswith("*}") and len(segments) > len(pattern):
        rest = len(pattern) - 1
        segments = [*segments[:rest], "/".join(segments[rest:])]
    if len(pattern) != len(segments):
        return None
    parts = {}
    for expected, found in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            if not found:
                return None
            parts[expected.strip("{*}")] = found
        elif expected != found:
            return None
    return parts
