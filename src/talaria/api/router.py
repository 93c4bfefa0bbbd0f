"""The routes of the API: each is data, and the one list of them is the source of everything said about it.

To add some, write a class with ``routes() -> tuple[Route, ...]`` whose handlers take a `Request` and return a `Reply`,
and name it where `app` makes the application (``app/api.py``). The body is read with ``request.read(Struct)``, the
query with ``request.asked(Struct)``, what braces in the path stand for is in ``request.parts``; a `Problem` that is
raised becomes an error of OpenAI's shape, as do the errors of `core`. Key, limits, body size, idempotency and a client
that goes away are looked after before and around the handler. The OpenAPI document is made of the structs.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from talaria.api.http import Reply, Request
from talaria.api.problems import Problem, missing
from talaria.sessions.api_keys import KeyScope

Handler = Callable[[Request], Awaitable[Reply]]


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path: what it needs, what it takes and what it gives.

    ``path`` may have parts in braces, each standing for one segment; a last one with a star stands for all the rest.
    Without a ``scope`` no key is needed. ``takes``, ``asks`` and ``gives`` are the structs of body, query and reply;
    ``events`` is what the ``data`` of each event is, where the reply may be a stream of server-sent events.
    ``repeatable`` lets an ``Idempotency-Key`` stand for the answer; ``lasting`` says that a client that goes away ends
    nothing. ``heeds`` are headers that mean something to this route alone.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    scope: KeyScope | None = "chat"
    takes: type | None = None
    asks: type | None = None
    gives: type | None = None
    status: int = 200
    events: Any = None
    repeatable: bool = False
    lasting: bool = False
    heeds: tuple[str, ...] = ()
    tag: str = "talaria"


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._fixed: dict[str, dict[str, Route]] = {}
        self._open: list[tuple[list[str], Route]] = []
        for route in self.routes:
            if "{" in route.path:
                self._open.append((route.path.split("/"), route))
            else:
                self._fixed.setdefault(route.path, {})[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Return the route and what its braces stand for; raises a `Problem` where there is none."""
        wanted = "GET" if method == "HEAD" else method
        fixed = self._fixed.get(path, {})
        if wanted in fixed:
            return fixed[wanted], {}
        found = {route.method: (route, parts) for route, parts in self._matching(path)}
        if wanted in found:
            return found[wanted]
        allowed = ", ".join(self.methods(path))
        raise Problem(
            f"`{method[:20]}` is not understood here, only {allowed}.",
            HTTPStatus.METHOD_NOT_ALLOWED,
            code="method_not_allowed",
            headers={"allow": allowed},
        )

    def methods(self, path: str) -> list[str]:
        """Return what may be done with a path, with any at all for ``*``; raises a `Problem` where there is none."""
        every = self.routes if path == "*" else [route for route, _ in self._matching(path)]
        methods = {route.method for route in every}
        if not methods:
            raise missing(f"There is no `{path[:200]}` here; `/openapi.json` tells what there is.", code="unknown_url")
        return [*sorted(methods | ({"HEAD"} if "GET" in methods else set())), "OPTIONS"]

    def _matching(self, path: str) -> Iterable[tuple[Route, Mapping[str, str]]]:
        """Yield the routes of a path, those that name it whole last: they go before the others."""
        segments = path.replace("\0", "\ufffd").split("/")  # which no id has, and PostgreSQL takes
        for pattern, route in self._open:
            parts = _parts(pattern, segments)
            if parts is not None:
                yield route, parts
        for route in self._fixed.get(path, {}).values():
            yield route, {}


def _parts(pattern: list[str], segments: list[str]) -> Mapping[str, str] | None:
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
