"""Routes: a file for each program that may post events, read again when it changes."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused
from talaria.platforms.signatures import Scheme
from talaria.platforms.webhook.templates import Event, Template, parse_template

SUFFIX = ".toml"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

Scalar = str | int | bool


class RouteFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A route as described by its file.

    ``secret`` and ``deliver_secret`` are names of secrets, never their values. ``task`` is what the agent should do, in
    the owner's words; ``template`` makes the rest of the message from the event, marked as text of strangers unless
    ``fenced`` is off. ``when`` lists required values of fields. ``id`` identifies redeliveries, ``repeats`` means that
    equal events without one are separate. Events of one ``conversation`` share a transcript. Replies are posted to
    ``deliver_to``; without one they stay there.
    """

    title: str = ""
    scheme: Scheme = "standard"
    secret: str = "WEBHOOK_SECRET"  # noqa: S105 - its name
    header: str = ""
    tolerance_seconds: Annotated[int, Meta(ge=1, le=3600)] = 300
    task: str = ""
    template: str = "{{ body }}"
    fenced: bool = True
    when: dict[str, Scalar | tuple[Scalar, ...]] = {}
    id: str = ""
    repeats: bool = False
    conversation: str = ""
    longest: Annotated[int, Meta(ge=100, le=200_000)] = 20_000
    per_minute: Annotated[int, Meta(ge=1, le=100_000)] = 60
    deliver_to: str = ""
    deliver_secret: str = ""

    @property
    def tolerance(self) -> timedelta:
        """Return the tolerance for signed timestamps."""
        return timedelta(seconds=self.tolerance_seconds)


class Route(Struct, frozen=True):
    """A valid route: the content of its file, with parsed templates."""

    name: str
    parsed: RouteFile
    template: Template
    id: Template
    conversation: Template

    @property
    def title(self) -> str:
        """Return the title."""
        return self.parsed.title or self.name

    @property
    def reply_secret(self) -> str:
        """Return the name of the secret that signs replies."""
        return self.parsed.deliver_secret or self.parsed.secret

    def matches(self, event: Event) -> bool:
        """Return whether an event matches the route's conditions."""
        return all(event.find(path) in _list_accepted_values(expected) for path, expected in self.parsed.when.items())


class Routes:
    """The routes in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cached: dict[str, tuple[tuple[int, int], Route]] = {}

    def names(self) -> list[str]:
        """Return the names of all routes, including broken ones."""
        return sorted(path.stem for path in self.folder.glob(f"*{SUFFIX}") if _NAME.fullmatch(path.stem))

    def find(self, name: str) -> Route | None:
        """Return the current route, ``None`` if there is none; raises `Refused` for a broken one."""
        if not _NAME.fullmatch(name):
            return None
        path = self.folder / f"{name}{SUFFIX}"
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if name not in self._cached or self._cached[name][0] != stamp:
                self._cached[name] = (stamp, read_route(name, path))
        except FileNotFoundError:
            self._cached.pop(name, None)
            return None
        except OSError as error:
            raise Refused(f"Can't read {path}: {error.strerror}.") from error
        return self._cached[name][1]


def read_route(name: str, path: Path) -> Route:
    """Read a route from its file; raises `Refused` for an invalid one."""
    raw = path.read_bytes()
    try:
        parsed = msgspec.toml.decode(raw, type=RouteFile)
        _check_route_file(parsed)
        return Route(name, parsed, *map(parse_template, (parsed.template, parsed.id, parsed.conversation)))
    except (msgspec.DecodeError, UnicodeDecodeError, Refused) as error:
        raise Refused(f"{path}: {str(error).rstrip('.')}.") from error


def _check_route_file(parsed: RouteFile) -> None:
    if parsed.deliver_to:
        try:
            target = urlsplit(parsed.deliver_to)
            is_valid = target.scheme in {"http", "https"} and target.hostname and (target.port is None or target.port)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise Refused("`deliver_to` must be the http or https URL to post replies to")
    if parsed.scheme == "none" and not parsed.fenced:
        raise Refused("`fenced = false` requires a signing scheme, so that the author is known")
    if parsed.fenced and parsed.task.lstrip().startswith("/"):
        raise Refused("`task` can't be a command: text from strangers would become its arguments")
    if parsed.scheme != "none" and not parsed.secret:
        raise Refused("`secret` must name the secret that requests are signed with")


def _list_accepted_values(expected: Scalar | tuple[Scalar, ...]) -> set[str]:
    return {_format_scalar(one) for one in (expected if isinstance(expected, tuple) else (expected,))}


def _format_scalar(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
